"""Adapters make blobs of objects of other libraries: one small module a library, named like it."""
