"""The channels over which people are told that something waits for them."""
