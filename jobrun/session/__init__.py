"""Sessions, which run the groups of a job and own the blobs."""
