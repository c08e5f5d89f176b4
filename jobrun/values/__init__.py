"""Blobs in memory: what a value can be, and the workspace that holds the values of a node."""
