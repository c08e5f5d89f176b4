"""Programs as tasks: blobs in as files, files out as blobs."""
