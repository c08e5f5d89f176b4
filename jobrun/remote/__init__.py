"""Checkpoints in other places: copied to a directory or an object store, and read there.

A place is a path or a URL.  URLs are opened by fsspec, which is an extra, as are the packages that
each kind of store needs (``jobrun[s3]``, ``jobrun[gcs]``, …).
"""
