"""``python -m jobrun``."""

from __future__ import annotations

from jobrun.cli import main

main()
