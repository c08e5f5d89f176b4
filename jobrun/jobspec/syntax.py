"""YAML syntax errors in the words of someone who writes a spec."""

from __future__ import annotations

import re

from yaml import YAMLError

from jobrun.errors import Problem, Where
from jobrun.jobspec.source import SpecSource

__all__ = ["explain"]

_LOOKED_AT = 1000
"""Characters of a line in which habits are looked for: people write no longer ones."""

_QUOTED = re.compile(r"\"(\\.|[^\"\\])*\"|'[^']*'")
_STAR = re.compile(r"(?:^|[\s\[,{:])(\*[^\s,\]}]*)")
_NO_SPACE = re.compile(r"\s*(?:- +)?(call|pipe|shell|name|in|out|update):([^\s/:][^#]*?)\s*(?:#|$)")
_SAID: tuple[tuple[str, str, str], ...] = (
    # (what the parser says, what it means, what to do)
    (
        "mapping values are not allowed",
        "a ':' where no key can be",
        "quote a string that holds ': ', and check the indentation",
    ),
    ("could not find expected ':'", "a line without ':' among keys", "write 'key: value'"),
    (
        "did not find expected key",
        "the indentation fits nothing above",
        "the keys of one mapping begin in one column",
    ),
    (
        "did not find expected '-' indicator",
        "the indentation fits nothing above",
        "the entries of a list begin with '- ' in one column",
    ),
    (
        "expected <document start>",
        "this begins left of the first key",
        "the keys of one mapping begin in one column",
    ),
    ("did not find expected ',' or ']'", "a '[' that is not closed by ']'", ""),
    ("did not find expected ',' or '}'", "a '{' that is not closed by '}'", ""),
    ("did not find expected node content", "a value was expected here", ""),
    (
        "unknown escape character",
        "an escape that YAML does not know",
        "in '…' a backslash is itself",
    ),
    ("nesting depth", "nested too deep", ""),
    ("block sequence entries are not allowed", "a '- ' where no list can begin", ""),
)


def explain(error: YAMLError, source: SpecSource) -> Problem:
    """Return a syntax error as a problem with its place."""
    mark = getattr(error, "problem_mark", None)
    context = getattr(error, "context_mark", None)
    said = str(getattr(error, "problem", None) or error)
    if mark is None:
        return Problem(f"this is not YAML: {said}", Where(source.file))
    if "unexpected end of stream" in said and context is not None:
        place = source.at(context.line, context.column)
        return Problem("a quote that is not closed", place)
    first = context.line if context is not None else mark.line
    place = source.at(mark.line, mark.column)
    habit = _habit(source, first, mark.line, mark.column)
    if "did not find expected ','" in said and context is not None and not habit:
        place = source.at(context.line, context.column)
    for part, meaning, hint in _SAID:
        if part in said:
            return Problem(meaning, place, habit or hint)
    character = _at(source, mark.line, mark.column)
    if "cannot start any token" in said and character == "\t":
        return Problem("a tab; YAML is indented with spaces", place)
    if "cannot start any token" in said:
        return Problem(f"a string cannot begin with {character!r}", place, "quote it")
    if "alphabetic or numeric" in said or "scanning an alias" in str(error):
        return Problem("this is not YAML", place, habit or "quote a string that begins with '*'")
    return Problem(f"this is not YAML: {said}", place, habit)


def _habit(source: SpecSource, first: int, last: int, column: int) -> str:
    """Return a frequent cause of such an error.

    An unquoted ``${…}`` or ``{{…}}`` in braces, a key without a space after it, or a leading ``*``.
    """
    for number in range(max(first, last - 20), min(last + 1, len(source.lines))):
        bare = _QUOTED.sub("", source.lines[number][:_LOOKED_AT])
        if re.search(r"[{\[,].*\$\{", bare) or bare.lstrip().startswith("${"):
            return "in braces, quote a string with '${…}': \"${spec.dir}/file\""
        if "{{" in bare:
            return "specs have no '{{…}}': vars are read by their name"
    for number in range(max(0, last - 1), min(last + 1, len(source.lines))):
        near = _NO_SPACE.match(source.lines[number][:_LOOKED_AT])
        if near:
            return f"write '{near[1]}: {near[2]}', with a space"
    before = _at(source, last, column - 1)
    star = _STAR.search(source.lines[last]) if before else None
    if star and star.start(1) <= column <= star.end(1):
        return f"quote a string that begins with '*': \"{star.group(1)}\""
    return ""


def _at(source: SpecSource, line: int, column: int) -> str:
    """Return the character at a place, or an empty string."""
    text = source.lines[line] if line < len(source.lines) else ""
    return text[column : column + 1]
