"""What is printed: the machine, a table per case, and the wanted numbers beside the measured."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.bench.harness import Measured, Wanted

__all__ = ["facts", "seconds", "table", "to_json", "verdict"]


def facts(directory: Path) -> dict[str, str]:
    """What a reader of the numbers has to know about the machine."""
    load = ", ".join(f"{n:.1f}" for n in os.getloadavg())
    return {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "numpy": np.__version__,
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "processor": _processor(),
        "cores": f"{len(os.sched_getaffinity(0))} of {os.cpu_count()}"
        if hasattr(os, "sched_getaffinity")
        else str(os.cpu_count()),
        "load": f"{load} (1, 5, 15 minutes) at the start",
        "file system": _file_system(directory),
    }


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"


def _file_system(directory: Path) -> str:
    """Type and options of the mount that holds ``directory``."""
    status = os.stat(directory)
    wanted = f"{os.major(status.st_dev)}:{os.minor(status.st_dev)}"
    try:
        for line in Path("/proc/self/mountinfo").read_text().splitlines():
            left, _, right = line.partition(" - ")
            if left.split()[2] == wanted:
                kind, _, options = right.split()[:3]
                return f"{kind} ({options})"
    except OSError:
        pass
    return "unknown"


def table(found: Measured) -> str:
    """A case as text: a line per contestant, fastest first."""
    case = found.case
    what = f"{case.items:,} x {case.item}" if case.items > 1 else case.item
    size = f", {case.bytes / 1e6:,.1f} MB" if case.bytes else ""
    rows = [_row(found, name) for name in sorted(found.seconds, key=found.median)]
    lines = [f"{case.name}: {what}{size}", *_aligned([_head(found), *rows])]
    lines += [f"  ({name}: not installed: {', '.join(m)})" for name, m in found.missing.items()]
    return "\n".join(lines)


def _bases(found: Measured) -> list[str]:
    """Who the ratios are to."""
    return list(dict.fromkeys([found.case.reference, found.case.floor]))


def _head(found: Measured) -> tuple[str, ...]:
    rate = "rate" if found.case.bytes else "each"
    return ("", "median", "min .. max", rate, *(f"x {b}" for b in _bases(found)), "rounds")


def _row(found: Measured, name: str) -> tuple[str, ...]:
    case, own = found.case, found.seconds[name]
    median = found.median(name)
    show = seconds if case.unit == "s" else megabytes
    rate = f"{case.bytes / median / 1e6:.0f} MB/s" if case.bytes else show(median / case.items)
    return (
        name,
        show(median),
        f"{show(min(own))} .. {show(max(own))}",
        rate,
        *(f"{found.ratio(name, base):.2f}" for base in _bases(found)),
        str(len(own)),
    )


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  "
        + "   ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def seconds(value: float) -> str:
    """Seconds for people: ``1.23 s``, ``45.6 ms``, ``7.8 µs``."""
    if value >= 1:
        return f"{value:.2f} s"
    return f"{value * 1e3:.2f} ms" if value >= 1e-3 else f"{value * 1e6:.2f} µs"


def megabytes(value: float) -> str:
    """Megabytes for people: ``1,075 MB``."""
    return f"{value:,.0f} MB"


def verdict(found: Iterable[Measured]) -> str:
    """The wanted numbers of all cases, beside what was measured."""
    rows = [("wanted", "", "measured", "")]
    for measured in found:
        for wanted in measured.case.wanted:
            value = _value(wanted, measured)
            sign = ">=" if wanted.at_least else "<="
            said = "not measured" if value is None else f"{value:.2f}"
            yes = "" if value is None else "yes" if wanted.reached(value) else "NO"
            rows.append((wanted.what, f"{sign} {wanted.limit:g}", said, yes))
    return "\n".join(_aligned(rows)) if len(rows) > 1 else ""


def _value(wanted: Wanted, measured: Measured) -> float | None:
    """None where somebody it compares with took no part."""
    try:
        return wanted.value(measured)
    except KeyError:
        return None


def to_json(found: Measured) -> dict[str, Any]:
    """All that was measured of a case."""
    case = found.case
    return {
        "case": case.name,
        "items": case.items,
        "item": case.item,
        "bytes": case.bytes,
        "reference": case.reference,
        "floor": case.floor,
        "seconds": found.seconds,
        "missing": found.missing,
        "wanted": [
            {
                "what": wanted.what,
                "limit": wanted.limit,
                "at_least": wanted.at_least,
                "value": _value(wanted, found),
            }
            for wanted in case.wanted
        ],
    }
