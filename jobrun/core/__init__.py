"""The base of every other package: events, positions, names, text, processes, randomness."""
