"""The identity of a process, so that others can find out whether it is gone.

A process id alone does not say that: it is used again after a restart of the machine, by a later
process, in another container and on another machine.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from functools import cache

__all__ = ["ProcessIdentity"]


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """A process: ``started`` is its start in ticks of the kernel, empty where that is unknown.

    ``machine`` and ``boot`` are ids of the machine and of its running kernel, ``space`` that of the
    process ids (each container has its own), all empty where the system has none.  ``time`` is when
    the identity was made.
    """

    pid: int
    host: str
    machine: str = ""
    boot: str = ""
    space: str = ""
    started: str = ""
    time: str = "?"

    @classmethod
    def own(cls) -> ProcessIdentity:
        """Return the identity of this process."""
        machine, boot, space = _system()
        pid, now = os.getpid(), datetime.now(UTC).isoformat(timespec="seconds")
        return cls(pid, os.uname().nodename, machine, boot, space, _started(pid), now)

    @classmethod
    def from_json(cls, data: Mapping[str, object]) -> ProcessIdentity:
        """Return the identity that ``to_json`` wrote; raises ValueError, KeyError or TypeError."""
        known = {f.name: str(data[f.name]) for f in fields(cls) if f.name in data}
        return cls(**{**known, "pid": int(str(data["pid"])), "host": str(data["host"])})  # type: ignore[arg-type]

    def to_json(self) -> dict[str, object]:
        """Return a mapping for JSON."""
        return asdict(self)

    def is_gone(self) -> bool | None:
        """Return whether the process has ended; None if that cannot be seen from here."""
        if not self._is_here() or (self.boot, self.space) != _system()[1:]:
            return None
        try:
            os.kill(self.pid, 0)
        except (ProcessLookupError, OverflowError):
            return True
        except OSError:  # it is another user's
            pass
        return bool(self.started) and _started(self.pid) not in (self.started, "")

    def was_before_restart(self) -> bool:
        """Return whether this machine seems to have restarted since: its name and id are equal.

        Machines that were copied have equal ids too.
        """
        return self._is_here() and self.machine != "" and self.boot != _system()[1]

    def _is_here(self) -> bool:
        return (self.host, self.machine) == (os.uname().nodename, _system()[0])

    def __str__(self) -> str:
        if (self.pid, self.host) == (os.getpid(), os.uname().nodename):
            return f"this process already (pid {self.pid})"
        return f"process {self.pid} on {self.host} since {self.time}"


@cache
def _system() -> tuple[str, str, str]:
    """Return the ids of machine, running kernel and space of process ids."""
    try:
        space = os.readlink("/proc/self/ns/pid")
    except OSError:
        space = ""
    return _line("/etc/machine-id"), _line("/proc/sys/kernel/random/boot_id"), space


def _started(pid: int) -> str:
    """Return when a process started, in ticks since the kernel did."""
    fields_after_name = _line(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return fields_after_name[19] if len(fields_after_name) > 19 else ""


def _line(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.readline().strip()
    except OSError:
        return ""
