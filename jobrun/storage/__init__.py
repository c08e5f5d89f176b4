"""Files and locks: every sync, rename, link and removal in jobrun happens here."""
