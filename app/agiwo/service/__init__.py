"""What the product does, one verb a function: publish, trigger, read, decide, cancel. Speaks to ports and the engine, knows no adapter."""
