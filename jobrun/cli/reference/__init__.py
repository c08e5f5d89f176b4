"""Pages of the documentation that are made from the code: commands, keys of a spec, Python API."""
