"""How objects of other libraries become blobs: one small module a library, named like it."""
