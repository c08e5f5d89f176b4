"""Policies of checkpoints (when to save, which to keep) and of sessions.  Plain values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from jobrun.core.template import TemplateError, templated
from jobrun.errors import UsageError
from jobrun.model.codecs import CODECS, NO_CODEC, codec_names

__all__ = [
    "DEFAULT_POLICY",
    "KEEP_ALL",
    "Best",
    "CheckpointPolicy",
    "Compress",
    "Every",
    "Keep",
    "SessionSpec",
    "Upload",
]


def _at_least_one(name: str, number: int | None) -> None:
    if number is not None and number < 1:
        raise UsageError(f"checkpoint.{name} must be at least 1, not {number}")


@dataclass(frozen=True, slots=True)
class Every:
    """The schedule of saves: the epochs, batches or seconds since the last save.

    The first that is due applies.  ``batches`` and ``seconds`` save inside an epoch too; at least
    ``min_gap`` seconds lie between two saves.  After ``init``, at the end of the last epoch, and
    when a signal ends the run, it is always saved.  ``batches`` are those one behind another in the
    order of the tasks.  Raises UsageError for invalid values.
    """

    epochs: int | None = 1
    batches: int | None = None
    seconds: float | None = None
    min_gap: float = 0.0

    def __post_init__(self) -> None:
        _at_least_one("every.epochs", self.epochs)
        _at_least_one("every.batches", self.batches)
        for name, value in (("seconds", self.seconds), ("min_gap", self.min_gap)):
            if value is not None and value < 0:
                raise UsageError(f"checkpoint.every.{name} must not be negative, but is {value}")
        if self.epochs is None and self.batches is None and self.seconds is None:
            raise UsageError("checkpoint.every needs epochs, batches or seconds")


@dataclass(frozen=True, slots=True)
class Best:
    """The ``count`` best checkpoints by a metric; ``smaller`` values are better, or larger ones.

    In a job the direction of the metric overrides ``smaller``.
    """

    metric: str
    count: int = 1
    smaller: bool = True

    def __post_init__(self) -> None:
        _at_least_one("keep.best", self.count)


@dataclass(frozen=True, slots=True)
class Keep:
    """The checkpoints to keep: the ``last`` n, those of ``every`` n epochs, the ``best``.

    A checkpoint is kept if any of them keeps it; with none of them, all are kept.  Of a job with
    conditions under ``fail`` the newest from before one came true is always kept.  Raises
    UsageError for numbers below 1.
    """

    last: int | None = None
    every: int | None = None
    best: Best | None = None

    def __post_init__(self) -> None:
        _at_least_one("keep.last", self.last)
        _at_least_one("keep.every", self.every)

    @property
    def all(self) -> bool:
        """Whether nothing is ever removed."""
        return self.last is None and self.every is None and self.best is None


KEEP_ALL = Keep()


@dataclass(frozen=True, slots=True)
class Compress:
    """The compression of blobs: ``codec`` is one of ``model.codecs.CODECS``, or ``none``.

    ``blobs`` is a name or pattern (see ``core.patterns``); that of a tree applies to all in it.
    Level 0 is the default of the codec; higher ones are slower and smaller.  Raises UsageError for
    an unknown codec or level.
    """

    codec: str
    level: int = 0
    blobs: str = "*"

    def __post_init__(self) -> None:
        if self.codec not in codec_names():
            *names, last = codec_names()
            raise UsageError(
                f"checkpoint.compress knows {', '.join(names)} and {last}, not {self.codec!r}"
            )
        codec = CODECS.get(self.codec)
        if codec is None and self.level:
            raise UsageError(f"checkpoint.compress: {NO_CODEC} has no level")
        if codec is not None:
            if not 0 <= self.level <= codec.largest_level:
                raise UsageError(
                    f"checkpoint.compress: the level of {self.codec} is from 1 to "
                    f"{codec.largest_level}, not {self.level}"
                )
            object.__setattr__(self, "level", self.level or codec.default_level)


@dataclass(frozen=True, slots=True)
class CheckpointPolicy:
    """The ``checkpoint`` section of a spec.

    ``include`` are names and patterns (see ``jobrun.core.patterns``) of blobs that are saved beside
    those that persist by themselves.
    ``on_error`` is ``warn`` or ``fail``; ``on_success`` is ``keep`` or ``delete``.
    ``background`` (``async`` in a spec): a save is written while the next epoch runs.  ``link``
    says from which earlier checkpoint an unchanged blob is hard-linked: ``alternate``, the one
    before the parent, so that every lasting value is on disk twice; ``parent``; or ``never``.
    Of ``compress`` the first whose pattern matches a blob applies; else it is not compressed.
    ``catalogue`` is a site's own record of checkpoints: an object with the methods of
    ``jobrun.Catalogue``, a function that returns one, or the name of either, ``module:name``.
    """

    every: Every = Every()
    keep: Keep = KEEP_ALL
    include: tuple[str, ...] = ()
    on_error: str = "warn"
    on_success: str = "keep"
    background: bool = True
    link: str = "alternate"
    compress: tuple[Compress, ...] = ()
    catalogue: object = None


DEFAULT_POLICY = CheckpointPolicy()


@dataclass(frozen=True)
class Upload:
    """The target to which checkpoints are copied after the loop.

    ``to`` is a directory or a URL; or ``call`` a function, itself or as ``module:function``, that
    is called with the path of each checkpoint, and ``literals`` as keyword arguments.  Both may
    hold ``${run.dir}`` and others.  ``what`` is ``final``, the newest checkpoint, or ``kept``, all
    that are kept.  Raises UsageError for invalid values.
    """

    to: object = None
    call: Callable[..., object] | str | None = None
    literals: Mapping[str, object] = field(default_factory=dict)
    what: str = "final"

    def __post_init__(self) -> None:
        if (self.to is None) == (self.call is None):
            raise UsageError("an upload has either 'to' or 'call'")
        if self.what not in ("final", "kept"):
            raise UsageError(f"an upload is of what is 'final' or 'kept', not {self.what!r}")
        try:
            object.__setattr__(self, "to", templated(self.to))
            object.__setattr__(self, "literals", templated(dict(self.literals)))
        except TemplateError as error:
            raise UsageError(f"an upload: {error.message}", hint=error.hint) from None


@dataclass(frozen=True, slots=True)
class SessionSpec:
    """The ``session`` section of a spec: where a job runs, which does not change its results.

    ``kind`` is ``local`` (this process) or ``dask``; ``threads`` are those of the process, or of
    each node.  The rest is for ``dask``: ``workers`` processes are started on this machine, unless
    ``address`` is that of a scheduler.  ``max_restarts``, the seconds of ``timeout`` and ``wait``,
    and ``resources`` are as for DaskSession; ``versions`` is ``any`` or ``same``.
    """

    kind: str = "local"
    threads: int | None = None
    workers: int | None = None
    address: str | None = None
    max_restarts: int = 3
    timeout: float = 300.0
    wait: float = 60.0
    versions: str = "any"
    resources: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
