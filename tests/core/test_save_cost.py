"""What is proposed to a run that saves too often."""

from __future__ import annotations

import re

import pytest

from jobrun.core.save_cost import less_often
from jobrun.core.text import seconds_of


@pytest.mark.parametrize(
    ("saves", "waited", "epochs", "seconds", "every"),
    [
        (4, 3.0, 3, 10.0, "10"),  # an epoch of 2.3 s, a save of 0.75 s
        (11, 50.0, 10, 51.0, "1000"),
        (20, 100.0, 200, 200.0, "200"),  # they are saved every tenth epoch already
        (100, 50.0, 1, 200.0, "{seconds: 10s}"),  # saved inside of a long epoch
        (5, 60.0, 0, 100.0, "{seconds: 5m}"),
        (2, 1.5, 0, 3.0, "{seconds: 20s}"),
        (2, 2000.0, 0, 3000.0, "{seconds: 6h}"),
        (2, 0.01, 0, 0.02, "{seconds: 1s}"),
        (3, 2.0, 5, 2.0, "{seconds: 20s}"),  # all of the time
    ],
)
def test_an_interval_after_which_a_save_takes_a_twentieth(
    saves: int, waited: float, epochs: int, seconds: float, every: str
) -> None:
    text = less_often(saves, waited, epochs, seconds)
    assert text == f"'checkpoint: {{every: {every}}}' makes it about 5%"
    between = (
        int(every) * (seconds - waited) / epochs
        if every.isdigit()
        else seconds_of(re.sub(r"\{seconds: |\}", "", every))
    )
    assert between is not None
    assert waited / saves / (between + waited / saves) <= 0.05
