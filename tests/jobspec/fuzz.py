"""``python -m tests.jobspec.fuzz [COUNT]``: mutated specs, each a job or errors with places.

Every spec of the project is mutated, as bytes and as a tree.  Whatever comes out must be read or
refused within a second of processor time and in little memory, and never end in a traceback.  What
is accepted must be accepted by the JSON Schema too, and be the same job when it is rendered.

A case is made from the seed and its number alone: ``--only N`` makes it again and shows it.
"""

from __future__ import annotations

import argparse
import random
import re
import resource
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft202012Validator

from jobrun.analysis.facts import job_facts
from jobrun.errors import JobrunError, SpecError, UsageError
from jobrun.jobspec.render import render, resolved
from jobrun.jobspec.resolve import load
from jobrun.jobspec.schema import spec_schema
from jobrun.jobspec.validate import job_of

ROOT = Path(__file__).parents[2]
SECONDS = 1.0
MEBIBYTES = 200

_BITS = [
    *(b"", b" ", b"\t", b":", b": ", b"{", b"}", b"[", b"]", b"- ", b"*", b"*a", b"&a ", b"!"),
    *(b"'", b'"', b"0", b"\n", b"\n  ", b"\n\n", b"${", b"${spec.dir}", b"{{", b"|", b"|\n ", b">"),
    *(
        b"#",
        b" #",
        b"\xff",
        b"\x00",
        b"\xc3",
        b"\xe2\x80\xa8",
        b"\r",
        b"\xef\xbb\xbf",
        b"null",
        b"~",
    ),
    *(b"-1", b"1e9", b"1e999", b"<<", b"---\n", b"...\n", b"%YAML 1.1\n", b"? ", b"@", b"`", b"\\"),
    *(b"!!x ", b"!!str "),
]
_VALUES: list[Any] = [
    *(None, True, False, 0, -1, 1, 2**63, 10**400, 0.5, float("inf"), float("nan"), "", " ", "x"),
    *("a:b", "m:f", "best:x", "*:x", "a/b", "../x", ".", "${spec.dir}", "${", "epoch", "rng"),
    *(
        "never",
        "all",
        "loss < 1",
        "(" * 200,
        "1" * 5000,
        "x" * 300,
        "é\u2028",
        "15m",
        "n/0",
        "node",
    ),
    *([], {}, [[]], [None], {"": None}, {"a": {"a": {"a": []}}}, ["a"] * 50),
    [{"call": "m:f"}] * 30,
]


class Slow(BaseException):
    """A case took more than its time."""


@cache
def seeds() -> list[bytes]:
    """The specs that are mutated: all of the project, the good ones as often as the malformed."""
    good = _specs("specs", "jobrun/templates", "tests/jobspec/valid")
    malformed = _specs("tests/jobspec/malformed")
    return good * (len(malformed) // len(good)) + malformed


def _specs(*folders: str) -> list[bytes]:
    paths = sorted(path for folder in folders for path in (ROOT / folder).rglob("*.yaml"))
    return [path.read_bytes() for path in paths]


def case(seed: int, number: int) -> tuple[bytes, list[str]]:
    """A spec, and what is set on the command line."""
    rng = random.Random(f"{seed}:{number}")
    data = rng.choice(seeds())
    for _ in range(rng.choice((1, 1, 1, 1, 2, 8))):
        data = rng.choice((_by_bytes, _by_structure, _by_structure))(data, rng)
    return data, [_setting(data, rng)] if rng.random() < 0.1 else []


def _by_bytes(data: bytes, rng: random.Random) -> bytes:
    start = rng.randint(0, len(data))
    end = start + rng.choice((0, 0, 1, 2, 5, 40))
    kind = rng.randrange(5)
    if kind == 0:  # a piece of another spec
        other = rng.choice(seeds())
        at = rng.randint(0, len(other))
        return data[:start] + other[at : at + rng.choice((5, 50, 500))] + data[end:]
    if kind == 1 and data:  # one bit
        at = rng.randrange(len(data))
        return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]
    if kind == 2:  # lines in another order
        lines = data.split(b"\n")
        a, b = rng.randrange(len(lines)), rng.randrange(len(lines))
        lines[a], lines[b] = lines[b], lines[a]
        return b"\n".join(lines)
    if kind == 3 and rng.random() < 0.2:  # very many of something
        return data[:start] + rng.choice(_BITS) * rng.choice((60, 2000)) + data[end:]
    return data[:start] + rng.choice(_BITS) + data[end:]


def _by_structure(data: bytes, rng: random.Random) -> bytes:
    try:
        tree = yaml.safe_load(data)
    except Exception:  # it is no YAML any more
        return _by_bytes(data, rng)
    places = list(islice(_places(tree), 5000))  # aliases may stand for very many
    if not places:
        return _by_bytes(data, rng)
    holder, key = rng.choice(places)
    _change(holder, key, places, rng)
    try:
        return yaml.safe_dump(tree, sort_keys=False, allow_unicode=True).encode("utf-8", "replace")
    except (ValueError, TypeError, RecursionError):
        return _by_bytes(data, rng)


def _places(tree: Any, depth: int = 0) -> Iterator[tuple[Any, Any]]:
    """Every place of a tree: a collection, and a key or number in it."""
    if depth > 20 or not isinstance(tree, dict | list):
        return
    for key, below in list(tree.items() if isinstance(tree, dict) else enumerate(tree)):
        yield tree, key
        yield from _places(below, depth + 1)


def _change(holder: Any, key: Any, places: Sequence[tuple[Any, Any]], rng: random.Random) -> None:
    """Change one place: its value, its key, its level, or whether it is there."""
    value = holder[key]
    other_holder, other_key = rng.choice(places)
    other = other_holder[other_key]
    kind = rng.randrange(8)
    if kind == 0:
        del holder[key]
    elif kind == 1 and isinstance(holder, dict):
        del holder[key]
        holder[_misspelt(str(key), rng)] = value
    elif kind == 2 and isinstance(holder, dict):
        holder[rng.choice((str(other_key), rng.choice(("x-a", "vars", "every", "map"))))] = value
    elif kind == 3:
        holder[key] = [value] * rng.choice((1, 2, 20))
    elif kind == 4:
        holder[key] = {str(other_key): value}
    elif kind == 5:
        holder[key] = other
    elif kind == 6 and isinstance(value, str):
        holder[key] = _misspelt(value, rng)
    else:
        holder[key] = rng.choice(_VALUES)


def _misspelt(text: str, rng: random.Random) -> str:
    at = rng.randint(0, len(text))
    return text[:at] + rng.choice(("", "x", ":", " ", "/", "*", ".", "é")) + text[at + 1 :]


def _setting(data: bytes, rng: random.Random) -> str:
    """A ``--set`` of words that are somewhere in the spec."""
    words = data.decode("utf-8", "replace").split() or ["x"]
    path = ".".join(rng.choice(words).strip("-:,{}[]") for _ in range(rng.choice((1, 1, 2, 3))))
    return f"{path}={rng.choice([*words, '1', '', '[', '1e-3', '012'])}"


# What must hold.


def check(data: bytes, sets: Sequence[str] = ()) -> str:
    """Look at a spec; what became of it: ``job``, ``spec`` or ``refused``.

    Raises AssertionError where an error is none that a user can follow, and whatever escapes.
    """
    try:
        spec = load("fuzz.yaml", sets, data=data)
    except UsageError:
        assert sets
        return "refused"
    except SpecError as error:
        _check_problems(error)
        return "refused"
    try:
        job = job_of(spec)
    except SpecError as error:
        _check_problems(error)
        return "spec"
    faults = [error.message for error in _validator().iter_errors(spec.tree)]
    assert not faults, f"the JSON Schema refuses what is a job: {faults[:3]}"
    again = job_of(load("again.yaml", data=render(resolved(spec)).encode()))
    assert repr(job_facts(again)) == repr(job_facts(job)), "rendered, it is another job"
    return "job"


@cache
def _validator() -> Draft202012Validator:
    return Draft202012Validator(spec_schema())


def _check_problems(error: SpecError) -> None:
    assert error.problems
    for problem in error.problems:
        assert problem.message
        assert problem.where is not None, problem
    assert str(error)


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise ``Slow`` after so much time of the processor."""

    def stop(*_: object) -> None:
        raise Slow(f"more than {seconds} s")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def run(seed: int, numbers: Sequence[int], seconds: float, say: Callable[[str], None]) -> int:
    """Check cases; how many failed."""
    counts = {"job": 0, "spec": 0, "refused": 0, "failed": 0}
    check(seeds()[0])  # what is imported at first is no part of a case
    for number in numbers:
        data, sets = case(seed, number)
        try:
            with limited(seconds):
                counts[check(data, sets)] += 1
        except (Exception, Slow) as error:
            counts["failed"] += 1
            shown = "".join(traceback.format_exception_only(error)).strip()
            again = f"python -m tests.jobspec.fuzz --seed {seed} --only {number}"
            say(f"case {number}: {shown[:500]}\n  {again}")
    peak = _peak()
    if peak > MEBIBYTES:
        counts["failed"] += 1
        say(f"{peak} MiB of memory, more than {MEBIBYTES}")
    words = ", ".join(f"{count} {name}" for name, count in counts.items())
    say(f"{len(numbers)} mutated specs (seed {seed}): {words}; at most {peak} MiB")
    return counts["failed"]


def _show(seed: int, number: int) -> None:
    data, sets = case(seed, number)
    print(data.decode("utf-8", "backslashreplace"), *(f"--set {text}" for text in sets), sep="\n")
    try:
        print(check(data, sets))
    except JobrunError as error:
        print(error)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.jobspec.fuzz", description=__doc__)
    parser.add_argument("count", nargs="?", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--seconds", type=float, default=SECONDS, help="processor time of a case")
    parser.add_argument("--only", type=int, metavar="N", help="show one case")
    given = parser.parse_args()
    if given.only is not None:
        _show(given.seed, given.only)
        return 0
    return min(
        1, run(given.seed, range(given.count), given.seconds, lambda text: print(text, flush=True))
    )


def _peak() -> int:
    """MiB of memory that this process had at most; what it was forked from does not count."""
    status = Path("/proc/self/status")
    if status.exists():
        found = re.search(r"^VmHWM:\s+(\d+) kB", status.read_text(), re.M)
        if found:
            return int(found[1]) // 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


if __name__ == "__main__":
    sys.exit(main())
