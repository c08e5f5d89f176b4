"""Checkpoints in other places: copied to a directory or an object store, read there, fetched back.

A place is a path or a URL.  Paths need nothing; URLs are opened by fsspec, which is an extra, as
is what each kind of store needs (``jobrun[s3]``, ``jobrun[gcs]``, …).
"""
