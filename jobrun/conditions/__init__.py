"""Stop conditions: how each is written, what it observes, and when it is true."""
