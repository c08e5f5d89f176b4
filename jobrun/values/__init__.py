"""Blobs in memory: their stored form, and the workspace that holds the blobs of a node."""
