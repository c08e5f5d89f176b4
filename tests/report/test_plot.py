"""Pictures of metrics."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest

from jobrun.errors import UsageError
from jobrun.report.chart import Series
from jobrun.report.plot import Panel, draw, formats

LOSS = Panel(
    "loss $x$_[val]",
    [Series("pi", [(1, 0.5), (2, math.nan), (3, 0.25)]), Series("pi-2", [(1, 1.0), (2, 0.0)])],
    {"pi": (3, 0.25)},
    "best 0.25 (pi, epoch 3)",
)
EMPTY = Panel("size", [Series("pi", []), Series("pi-2", [(1, math.inf)])], {})
SIGNATURES = {".png": b"\x89PNG\r\n", ".svg": b"<?xml", ".pdf": b"%PDF"}


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("ending", formats())
def test_every_form(ending: str, log: bool, tmp_path: Path) -> None:
    path = tmp_path / "half"
    draw([LOSS, EMPTY], path, ending, log=log)
    assert path.read_bytes().startswith(SIGNATURES[ending])


def test_names_are_shown_as_they_are_and_pictures_are_reproducible(tmp_path: Path) -> None:
    texts = []
    for name in ("a.svg", "b.svg"):
        draw([LOSS], tmp_path / name, ".svg")
        texts.append((tmp_path / name).read_text())
    assert texts[0] == texts[1]
    for text in (">loss $x$_[val]<", ">pi-2<", ">best 0.25 (pi, epoch 3)<", ">epoch<"):
        assert text in texts[0]


def test_without_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UsageError, match="pictures need the library matplotlib") as caught:
        draw([LOSS], tmp_path / "a.png", ".png")
    assert "pip install 'jobrun[plot]'" in caught.value.hint
