"""Notices: once for each receiver, from any thread."""

from __future__ import annotations

from threading import Thread

import pytest

from jobrun.core.events import JobrunWarning
from jobrun.core.notices import notice, received_by


def test_a_receiver_gets_each_notice_once() -> None:
    first: list[str] = []
    second: list[str] = []
    with received_by(first.append):
        notice("slow")
        notice("slow")
        with received_by(second.append):
            threads = [Thread(target=notice, args=("slow",)) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        notice("other")
    assert first == ["slow", "other"]
    assert second == ["slow"]


def test_without_a_receiver_it_is_a_warning() -> None:
    with pytest.warns(JobrunWarning, match="nobody hears this"):
        notice("nobody hears this")
