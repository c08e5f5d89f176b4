"""What every other package builds on: events, positions, names, text, processes, randomness."""
