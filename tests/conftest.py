"""Makes the helpers of ``tests/support`` importable."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "support"))
pytest.register_assert_rewrite("engine", "examples", "oracle")
