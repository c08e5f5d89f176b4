"""The version of jobrun: the package's metadata are made from here."""

__version__ = "0.1.0"
