"""Pipes on one node: reading batches, running steps ahead, applying them in order."""
