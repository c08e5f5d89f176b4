"""Programs as tasks, as plain values: a command's words or a script, and the files it exchanges.

The blobs that a program reads and writes are files in a new folder, written and read by their
ending (``session.shell.files``).  A command is split into words, without a shell: only
quotes are special in it.  ``${…}`` in a word is replaced after the split, so that no value can
become two words; a script is never touched.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from jobrun.core.suggestions import did_you_mean, did_you_mean_or_all
from jobrun.core.template import Template, TemplateError, template

__all__ = ["ENDINGS", "FileForm", "Shell", "dtype_fault", "file_fault", "split"]

ENDINGS = (".npy", ".txt", ".csv", ".json", ".raw")
_WITH_FORM = (".txt", ".csv", ".raw")
_OF_SHELLS = frozenset({"|", "||", "&", "&&", ";", ">", ">>", "<", "<<", "2>", "2>&1", "&>"})
_DTYPE = re.compile(
    r"bool|u?int(8|16|32|64)|float(16|32|64)|complex(64|128)|[<>]?([bu]1|[iu][1248]|f[248]|c(8|16))"
)


@dataclass(frozen=True, slots=True)
class FileForm:
    """The form of a file beyond its ending: the dtype of numbers (``str``: a string), the shape.

    One length of ``shape`` may be -1: the remaining elements.
    """

    dtype: str | None = None
    shape: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Shell:
    """A program: either ``command``, whose first word it is, or ``script`` for bash.

    ``files`` defines what the ending of a file leaves open.
    """

    command: str = ""
    script: str = ""
    files: Mapping[str, FileForm] = field(default_factory=dict)

    @property
    def words(self) -> tuple[str | Template, ...]:
        """The words of the command; raises ValueError as ``split`` does."""
        return split(self.command)

    @property
    def name(self) -> str:
        """The name for the task: the program's, without its folder and ending."""
        try:
            first = str(self.words[0]) if self.command else "script"
        except ValueError:
            first = "shell"
        stem = re.sub(r"[^A-Za-z0-9_.-]+", "-", PurePosixPath(first).stem).strip("-.")
        return stem or "shell"

    def faults(self, given: tuple[str, ...], wanted: tuple[str, ...]) -> Iterator[tuple[str, str]]:
        """Yield the errors as (message, mark), if the program reads and writes these files."""
        if bool(self.command) == bool(self.script):
            yield "a shell task has either a command or a script", "shell"
        try:
            _ = self.words if self.command else ()
        except ValueError as error:
            yield f"the command is wrong: {error}", "shell"
        for role, names in (("in", given), ("out", wanted)):
            for name in names:
                fault = file_fault(name)
                if fault:
                    yield fault, f"{role}:{name}"
        for name, form in self.files.items():
            fault = _form_fault(name, form, (*given, *wanted))
            if fault:
                yield fault, "shell"
        for name in wanted:
            if name.endswith(".raw") and self.files.get(name, FileForm()).dtype is None:
                yield (
                    f"{name!r} needs a dtype: shell: {{files: {{{name}: float64}}}}",
                    f"out:{name}",
                )


def split(command: str) -> tuple[str | Template, ...]:
    """Return the words of a command; raises ValueError for syntax that needs a shell."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise ValueError(str(error).lower()) from None
    if not words:
        raise ValueError("it has no words")
    for word in words:
        if word in _OF_SHELLS:
            text = f"{word!r} is for a shell, and there is none; use 'shell: {{script: …}}'"
            raise ValueError(text)
    try:
        return tuple(template(w) if "${" in w else w for w in words)
    except TemplateError as error:
        raise ValueError("; ".join(filter(None, (error.message, error.hint)))) from None


def file_fault(name: str) -> str | None:
    """Return the error in the name of a file that a program reads or writes, or None."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or name != str(path) or not path.name:
        return f"{name!r} is not in the task's folder: write it without '/' in front and '..'"
    if path.suffix not in ENDINGS:
        hint = did_you_mean_or_all(path.suffix, ENDINGS)
        return f"{name!r} has no ending that is known; {hint}"
    return None


def dtype_fault(name: str) -> str | None:
    """Return the error in a dtype, or None."""
    if name == "str" or _DTYPE.fullmatch(name):
        return None
    hint = did_you_mean(name, ("float64", "float32", "int64", "int32", "uint8", "bool", "str"))
    return f"{name!r} is not a dtype that a file can hold" + (f"; {hint}" if hint else "")


def _form_fault(name: str, form: FileForm, known: tuple[str, ...]) -> str | None:
    if name not in known:
        hint = did_you_mean(name, known) or "they are named under 'in' and 'out'"
        return f"'files' names {name!r}, which the program neither gets nor leaves; {hint}"
    if not name.endswith(_WITH_FORM):
        return f"{name!r} already tells what it holds: 'files' is for {', '.join(_WITH_FORM)}"
    if form.dtype == "str" and (form.shape is not None or not name.endswith(".txt")):
        return f"{name!r}: 'str' is for a .txt that is one text"
    if form.dtype is not None and (fault := dtype_fault(form.dtype)):
        return fault
    lengths = form.shape or ()
    if any(n < -1 for n in lengths) or sum(n == -1 for n in lengths) > 1:
        return f"{name!r}: a shape holds lengths from 0 up, and -1 once at most"
    return None
