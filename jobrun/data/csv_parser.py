"""Python's CSV parser with a limit of its own for the length of a cell.

``csv.field_size_limit`` is one variable for all threads: raising it for one file would change what
the user's own readers accept, and so would setting it back.  ``_csv`` keeps that variable, as all
its state, in the module object (PEP 489), so a second object of the same extension has a limit of
its own, at the speed of C.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from importlib.util import find_spec, module_from_spec
from typing import Any

__all__ = ["CELL_LIMIT", "records"]

CELL_LIMIT = 131_072
"""The most characters of a cell unless ``cell_limit`` is given: that of Python's csv."""


@cache
def _parser(cell_limit: int) -> Any:
    """Return a module object of ``_csv`` with this limit."""
    spec = find_spec("_csv")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    module.field_size_limit(cell_limit)
    return module


def records(lines: Iterable[str], delimiter: str, cell_limit: int) -> Iterator[list[str]]:
    """Yield the records of CSV lines, without blank lines.

    Raises ValueError for text that is not CSV (unclosed quotes, say) and for a cell of more than
    ``cell_limit`` characters.
    """
    parser = _parser(cell_limit)
    try:
        yield from filter(None, parser.reader(lines, delimiter=delimiter, strict=True))
    except parser.Error as error:
        if "field limit" not in str(error):
            raise ValueError(str(error)) from None
        raise ValueError(
            f"a cell has more than {cell_limit} characters: close a quote that is open, "
            "or raise 'cell_limit'"
        ) from None
