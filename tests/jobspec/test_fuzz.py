"""Two hundred mutated specs; ``make fuzz`` takes many more."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from .fuzz import ROOT, Slow, case, check, limited


def test_mutated_specs_are_jobs_or_errors_with_places() -> None:
    """In a process of its own, whose memory is that of the specs; time is for hangs alone."""
    words = [sys.executable, "-m", "tests.jobspec.fuzz", "500", "--seed", "20", "--seconds", "10"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    found = re.search(r"(\d+) job, (\d+) spec, (\d+) refused, 0 failed; at most", done.stdout)
    assert found, done.stdout
    assert all(int(count) > 5 for count in found.groups()), "each of them happens"


def test_a_case_is_made_again_from_its_number() -> None:
    assert case(7, 11) == case(7, 11)
    assert len({case(7, number)[0] for number in range(40)}) > 35


def test_what_is_wrong_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    good = b"epoch: [{call: m:f}]\nstop: {epochs: 1}\n"
    assert check(good) == "job"
    assert check(good, ["seed=x=y"]) == "spec"
    assert check(b"epoch: [{call: m:f, in: x}]\nstop: {epochs: 1}\n") == "spec"
    with pytest.raises(Slow), limited(0.1):
        _forever()
    monkeypatch.setattr("tests.jobspec.fuzz.render", lambda root: "epoch: []\nstop: never\n")
    with pytest.raises(AssertionError, match="another job"):
        check(good)


def _forever() -> None:
    while True:
        pass
