"""The compiled function is that of the package."""

from __future__ import annotations

import crc32c as package
import pytest

from jobrun.core import crc32c as own


def test_it_is_the_checksum_of_the_package() -> None:
    assert own.crc32c(b"123456789") == 0xE3069283
    assert own.crc32c(b"", 5) == package.crc32c(b"", 5)
    assert own.crc32c(b"56789", own.crc32c(b"1234")) == 0xE3069283
    assert own.crc32c(memoryview(bytes(1000))) == package.crc32c(bytes(1000))


def test_a_package_of_another_layout_is_imported_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own.PathFinder, "find_spec", lambda *_: None)
    assert own._compiled() is package.crc32c
