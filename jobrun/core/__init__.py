"""What every other package builds on: events, positions, names, texts, processes, randomness."""
