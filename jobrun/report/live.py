"""Progress on a terminal: a few lines that are kept up to date, warnings and prints above them.

What the user named is never read as markup.  When the run ends the last state stays in the
scroll-back, and nothing that moves.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import singledispatchmethod
from typing import Any, TextIO, cast

from rich.console import Console, Group, RenderableType
from rich.file_proxy import FileProxy
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from jobrun.events import (
    BatchesDone,
    CheckpointFailed,
    CheckpointLoaded,
    CheckpointSaved,
    CheckpointSkipped,
    CheckpointsMoved,
    EpochFinished,
    Event,
    GroupStarted,
    LeftoversCleaned,
    RunEnded,
    RunStarted,
    SaveAsked,
    Stopping,
    TaskProgress,
    Warned,
)
from jobrun.report.lines import Describer
from jobrun.report.log_file import Prints
from jobrun.report.words import duration, number, plain
from jobrun.size import size

__all__ = ["LiveView"]

_ABOVE = (
    RunStarted,
    CheckpointFailed,
    CheckpointLoaded,
    CheckpointSkipped,
    CheckpointsMoved,
    LeftoversCleaned,
    SaveAsked,
    Stopping,
    Warned,
)


@dataclass
class Screen:
    """What the live lines show."""

    job: str = ""
    epochs: int | None = None
    first: int = 0
    epoch: int = 0
    group: str = ""
    metrics: dict[str, Any] = field(default_factory=dict)
    best: dict[str, tuple[Any, int]] = field(default_factory=dict)
    gauges: tuple[str, ...] = ()
    batches: dict[str, tuple[int, int | None]] = field(default_factory=dict)
    fractions: dict[str, float] = field(default_factory=dict)
    saved: str = ""
    loop_started: float = 0.0
    last_epoch_at: float = 0.0
    over: bool = False

    def left(self, now: float) -> float | None:
        """The seconds left until the limit of epochs, from the mean of this attempt's epochs."""
        done = self.epoch - self.first
        if self.epochs is None or done < 1 or self.over:
            return None
        per_epoch = (self.last_epoch_at - self.loop_started) / done
        return max(0.0, (self.epochs - self.epoch) * per_epoch - (now - self.last_epoch_at))


class LiveView:
    """Shows the run on ``console`` while it lasts; what ``prints`` gets appears above it."""

    def __init__(self, console: Console, prints: Prints | None = None) -> None:
        self._console = console
        self._tees = [t for t in (prints.out, prints.err) if t.stream.isatty()] if prints else []
        self._streams: list[TextIO] = []
        self._screen = Screen()
        self._describe = Describer()
        self._live: Live | None = None

    def __call__(self, event: Event) -> None:
        """Bring the view up to date."""
        if isinstance(event, _ABOVE):
            for line in self._describe(event):
                style = "yellow" if line.startswith("warning") else ""
                self._console.print(Text(line, style), soft_wrap=True)
        self._take(event)
        if isinstance(event, RunEnded):
            self.close()

    def close(self) -> None:
        """Leave the last state on the screen and stop."""
        if self._live is not None:
            for tee, stream in zip(self._tees, self._streams, strict=True):
                tee.flush()  # a line that was begun
                tee.stream = stream
            self._screen.over = True
            self._live.stop()
            self._live = None

    @singledispatchmethod
    def _take(self, event: Event) -> None:
        """Remember what ``event`` says."""

    @_take.register
    def _(self, event: RunStarted) -> None:
        self._screen = Screen(
            job=plain(event.job), epochs=event.epochs, first=event.epoch, epoch=event.epoch
        )
        self._live = Live(
            console=self._console,
            get_renderable=self._render,
            refresh_per_second=8,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._live.start()
        self._streams = [tee.stream for tee in self._tees]
        for tee in self._tees:
            tee.stream = cast("TextIO", FileProxy(self._console, tee.stream))

    @_take.register
    def _(self, event: GroupStarted) -> None:
        self._screen.group = event.group
        if event.group == "epoch" and not self._screen.loop_started:
            self._screen.loop_started = time.monotonic()

    @_take.register
    def _(self, event: BatchesDone) -> None:
        self._screen.batches[event.task] = (event.done, event.total)

    @_take.register
    def _(self, event: TaskProgress) -> None:
        self._screen.fractions[event.task] = event.fraction

    @_take.register
    def _(self, event: EpochFinished) -> None:
        screen = self._screen
        screen.fractions.clear()
        screen.epoch, screen.metrics = event.epoch, dict(event.metrics)
        screen.best |= {m: (event.metrics.get(m), event.epoch) for m in event.best}
        screen.gauges = tuple(g for g in event.gauges if g)
        screen.last_epoch_at = time.monotonic()

    @_take.register
    def _(self, event: CheckpointSaved) -> None:
        place = plain(event.place) or f"epoch {event.epoch}"
        what = f"{place}, {size(event.bytes)}, {duration(event.seconds)}"
        self._screen.saved = f"saved checkpoint_{event.id} ({what})"

    def _render(self) -> RenderableType:
        screen = self._screen
        lines: list[RenderableType] = [self._headline()]
        inside = [*map(_batches, screen.batches.items()), *map(_part, screen.fractions.items())]
        if inside and not screen.over:
            lines.append(_text("  " + "   ".join(inside), "dim"))
        if screen.metrics:
            lines.append(self._metrics())
        if screen.gauges:
            lines.append(_text("  " + "   ".join(map(plain, screen.gauges)), "dim"))
        if screen.saved:
            lines.append(_text("  " + screen.saved, "dim"))
        return Group(*lines)

    def _headline(self) -> RenderableType:
        screen = self._screen
        where = "" if screen.group in ("", "epoch") or screen.over else f"  {screen.group}"
        if screen.epochs is None:
            return _text(f"{screen.job}  epoch {screen.epoch}{where}", "bold")
        left = screen.left(time.monotonic())
        table = Table.grid(padding=(0, 1))
        table.add_column(no_wrap=True)
        table.add_column(no_wrap=True)
        table.add_column(no_wrap=True, overflow="ellipsis")
        width = max(5, min(40, self._console.width - len(screen.job) - 34))
        table.add_row(
            _text(f"{screen.job}  epoch {screen.epoch}/{screen.epochs}{where}", "bold"),
            ProgressBar(total=screen.epochs, completed=screen.epoch, width=width),
            _text("" if left is None else f"{duration(left)} left"),
        )
        return table

    def _metrics(self) -> Text:
        text = _text("  ")
        for name, value in self._screen.metrics.items():
            best, epoch = self._screen.best.get(name, (None, None))
            text.append(f"{plain(name)} {number(value)}")
            if epoch == self._screen.epoch:
                text.append("*", "green bold")
            elif epoch is not None:
                text.append(f" (best {number(best)}, epoch {epoch})", "dim")
            text.append("   ")
        return text


def _text(line: str, style: str = "") -> Text:
    """One line that is cut, never wrapped."""
    return Text(line, style, no_wrap=True, overflow="ellipsis")


def _part(pair: tuple[str, float]) -> str:
    task, fraction = pair
    return f"{plain(task)} {fraction:.0%}"


def _batches(pair: tuple[str, tuple[int, int | None]]) -> str:
    task, (done, total) = pair
    return f"{plain(task)} batch {done}" + (f"/{total}" if total else "")
