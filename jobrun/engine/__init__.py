"""The engine: decides, runs a job epoch by epoch, saves it, and ends it."""
