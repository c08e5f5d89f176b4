"""The data that pipes read: sources of columns, and readers with exact positions."""
