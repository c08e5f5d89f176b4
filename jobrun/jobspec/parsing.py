"""From the text of a spec to its tree.

The tree is composed here from the parser's events, one after the other and without recursion, so
that depth, size and what aliases expand to are bounded, and all that YAML allows and a spec does
not (tags, merge keys, duplicate keys, several documents) is refused with its place.  The events
come from libyaml where PyYAML has it.
"""

from __future__ import annotations

import re
from typing import Any, NoReturn

import yaml

from jobrun.core.gc_tuning import paused
from jobrun.errors import Problem, SpecError, Where
from jobrun.jobspec.scalars import ScalarError, scalar
from jobrun.jobspec.source import SpecNode, SpecSource
from jobrun.jobspec.syntax import explain

__all__ = ["MAX_BYTES", "MAX_DEPTH", "parse", "parse_all"]

MAX_BYTES = 16 * 2**20
MAX_DEPTH = 50
MAX_ALIASED = 100_000
"""The most values that aliases may add to those that are written out."""

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_LARGE = 100_000
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_BOMS = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16", b"\x00\x00\xfe\xff": "UTF-32"}


def parse(data: bytes, file: str) -> SpecSource:
    """Return the tree of a spec; raises SpecError with all that is wrong with its YAML."""
    source, problems = parse_all(data, file)
    if problems:
        raise SpecError(problems)
    return source


def parse_all(data: bytes, file: str) -> tuple[SpecSource, list[Problem]]:
    """Return the tree of a spec, and what is wrong with its YAML but leaves a tree.

    Raises SpecError where nothing is left.
    """
    source = SpecSource(file, _text(data, file))
    composer = _Composer(source)
    with paused(len(data) > _LARGE):
        composer.compose()
    return source, composer.problems


def _text(data: bytes, file: str) -> str:
    """Return the text of the file; report what is not text."""
    if len(data) > MAX_BYTES:
        raise SpecError([Problem(f"a spec of more than {MAX_BYTES >> 20} MiB", Where(file))])
    for bom, encoding in _BOMS.items():
        if data.startswith(bom):
            message = f"this file is {encoding}; a spec is UTF-8"
            raise SpecError([Problem(message, Where(file), "save it as UTF-8")])
    data = data.removeprefix(b"\xef\xbb\xbf")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        before = data[: error.start].decode()
        message = f"byte 0x{data[error.start]:02x} is not UTF-8"
        raise SpecError([Problem(message, _end_of(before, file), "save it as UTF-8")]) from None
    bad = _UNPRINTABLE.search(text)
    if bad:
        message = f"the character U+{ord(bad.group()):04X} is not allowed in YAML"
        hint = 'in a string, write an escape such as "\\0" in double quotes'
        raise SpecError([Problem(message, _end_of(text[: bad.start()], file), hint)])
    return text


def _end_of(before: str, file: str) -> Where:
    lines = (before + "|").splitlines()
    return Where(file, len(lines), len(lines[-1]))


class _Open:
    """A collection that is being composed, and the key whose value comes next."""

    __slots__ = ("key", "node")

    def __init__(self, node: SpecNode) -> None:
        self.node = node
        self.key: SpecNode | None = None


class _Composer:
    """Events to nodes.  What can be passed over is collected; the rest ends the parse."""

    def __init__(self, source: SpecSource) -> None:
        self.source = source
        self.problems: list[Problem] = []
        self.stack: list[_Open] = []
        self.anchors: dict[str, SpecNode] = {}
        self.aliased = 0
        self.documents = 0

    def compose(self) -> None:
        """Fill ``source.root``, a mapping; raises SpecError if it cannot be one."""
        loader = _Loader(self.source.text)
        try:
            self._events(loader)
        except yaml.YAMLError as error:
            self._fatal(explain(error, self.source))
        finally:
            loader.dispose()
        self._check_root()

    def _events(self, loader: Any) -> None:
        handlers = {
            yaml.ScalarEvent: self._scalar,
            yaml.AliasEvent: self._alias,
            yaml.MappingStartEvent: self._mapping,
            yaml.SequenceStartEvent: self._sequence,
            yaml.MappingEndEvent: self._end,
            yaml.SequenceEndEvent: self._end,
            yaml.DocumentStartEvent: self._document,
        }
        while True:
            event = loader.get_event()
            handler = handlers.get(type(event))
            if handler is not None:
                handler(event)
            elif isinstance(event, yaml.StreamEndEvent):
                return

    def _document(self, event: Any) -> None:
        self.documents += 1
        mark = event.start_mark
        if self.documents > 1:
            place = self.source.at(mark.line, mark.column, 3)
            self._fatal(Problem("a second document; a spec is one", place, "remove this '---'"))
        if event.version is not None and tuple(event.version) != (1, 2):
            place = self.source.at(mark.line, mark.column)
            version = ".".join(map(str, event.version))
            message = f"this says YAML {version}; specs are YAML 1.2"
            self.problems.append(Problem(message, place, "remove the '%YAML' line"))

    def _scalar(self, event: Any) -> None:
        start, end = event.start_mark, event.end_mark
        one_line = end.line == start.line
        width = end.column - start.column if one_line else 1
        node = SpecNode(event.value, start.line, start.column, width)
        if event.style:
            node.indent = 1 if event.style in "'\"" else -1
            if not one_line or width != len(event.value) + 2:
                node.indent = -1
        else:
            node.indent = 0 if width == len(event.value) else -1
            try:
                node.value = scalar(event.value)
            except ScalarError as error:
                self._problem(error.message, node, error.hint)
        self._named(event, node)
        self._attach(node)

    def _named(self, event: Any, node: SpecNode) -> None:
        """Return the tag and the anchor of a new node."""
        if event.tag is not None:
            node_text = event.tag.replace("tag:yaml.org,2002:", "!!")
            quote = "; quote what is a string" if node_text == "!!str" else ""
            self._problem(f"the tag {node_text!r}; specs have no tags", node, "remove it" + quote)
        if event.anchor:
            self.anchors[event.anchor] = node

    def _mapping(self, event: Any) -> None:
        self._start(event, {})

    def _sequence(self, event: Any) -> None:
        self._start(event, [])

    def _start(self, event: Any, value: Any) -> None:
        start, end = event.start_mark, event.end_mark
        node = SpecNode(value, start.line, start.column, max(1, end.column - start.column))
        self._named(event, node)
        self._check_depth(1, node)
        self.stack.append(_Open(node))

    def _check_depth(self, height: int, node: SpecNode) -> None:
        if len(self.stack) + height > MAX_DEPTH:
            place = self.source.where(node)
            self._fatal(Problem(f"nested more than {MAX_DEPTH} levels deep", place))

    def _end(self, event: Any) -> None:
        self._attach(self.stack.pop().node)

    def _alias(self, event: Any) -> None:
        start, end = event.start_mark, event.end_mark
        here = SpecNode(None, start.line, start.column, end.column - start.column)
        node = self.anchors.get(event.anchor)
        if node is None:
            hint = f"quote a string that begins with '*': \"*{event.anchor}\""
            self._problem(f"there is no anchor '&{event.anchor}' before this", here, hint)
            self._attach(here)
            return
        if any(o.node is node for o in self.stack):
            place = self.source.where(here)
            self._fatal(Problem(f"'*{event.anchor}' lies within what it stands for", place))
        self.aliased += node.count
        if self.aliased > MAX_ALIASED:
            message = f"aliases that expand to more than {MAX_ALIASED:,} values"
            self._fatal(Problem(message, self.source.where(here), "write out what is meant"))
        self._check_depth(node.height, here)
        self._attach(node)

    def _attach(self, node: SpecNode) -> None:
        """Put a finished node where it belongs."""
        if not self.stack:
            self.source.root = node
            return
        top = self.stack[-1]
        parent = top.node
        parent.count += node.count
        if node.height >= parent.height:
            parent.height = node.height + 1
        if isinstance(parent.value, list):
            parent.value.append(node)
        elif top.key is None:
            top.key = node
            self._check_key(node)
        else:
            self._put(parent, top.key, node)
            top.key = None

    def _check_key(self, key: SpecNode) -> None:
        if isinstance(key.value, dict | list):
            line = self.source.lines[key.line]
            hint = "specs have no '{{…}}': vars are read by their name" if "{{" in line else ""
            hint = hint or "quote a string that begins with '[' or '{'"
            self._problem("a key that is a list or mapping", key, hint)
        elif key.value is None:
            self._problem("a key that is empty", key, "write its name before the ':'")
        elif key.value == "<<" and key.indent == 0:
            self._problem("'<<': YAML 1.2 has no merge keys", key, "write the keys out")

    def _put(self, parent: SpecNode, key: SpecNode, node: SpecNode) -> None:
        if isinstance(key.value, dict | list):
            return
        first = parent.keys.get(key.value)
        if first is None:
            parent.value[key.value] = node
            parent.keys[key.value] = key
        else:
            hint = f"it is in line {first.line + 1} already"
            self._problem(f"duplicate key '{key.value}'", key, hint)

    def _check_root(self) -> None:
        if not self.documents:
            message = "an empty spec"
            hint = "the smallest spec that runs has 'epoch:' with a task, and 'stop:'"
            self._fatal(Problem(message, Where(self.source.file), hint))
        elif not isinstance(self.source.root.value, dict):
            place = self.source.where(self.source.root)
            message = "a spec is a mapping of keys such as 'epoch:' and 'stop:'"
            self._fatal(Problem(message, place))

    def _problem(self, message: str, node: SpecNode, hint: str = "") -> None:
        self.problems.append(Problem(message, self.source.where(node), hint))

    def _fatal(self, problem: Problem) -> NoReturn:
        raise SpecError([*self.problems, problem]) from None
