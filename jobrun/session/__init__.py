"""Sessions: what runs the groups of a job and owns the blobs."""
