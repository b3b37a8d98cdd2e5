"""What the engine and the services need from outside, as protocols; the adapters fulfil them and are plugged in by `wiring`."""
