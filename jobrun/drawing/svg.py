"""A picture as an SVG image that needs nothing else: no script, no font, no other file.

Groups are panels from top to bottom, nodes are lanes from left to right, blobs stand on the arrows.
It follows the reader's light or dark setting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape, quoteattr

from jobrun.drawing.layout import LayoutItem, Link, place
from jobrun.drawing.picture import Arrow, GroupPicture, Picture, TaskBox

__all__ = ["svg"]

PER_ROW = 8
"""The most boxes of one rank side by side in a lane; more take further rows."""

_PAD = 18.0
_TITLE = 30.0
_HEAD = 64.0
_LINE = 15.0
_SIZES = {"name": 7.85, "line": 6.65, "blob": 6.65}  # a character of each class, in pixels
_WIDEST = 72
_STYLE = """\
text { font-family: ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace; font-size: 11px; \
fill: #243142 }
.page { fill: #ffffff } .panel { fill: #f4f6f9; stroke: #d5dbe3 }
.lane { stroke: #c3ccd7; stroke-dasharray: 2 5 }
.head { font-size: 17px; font-weight: 700 } .title { font-size: 13px; font-weight: 700 }
.soft { fill: #64748b } .name { font-size: 13px; font-weight: 600 }
.box { fill: #ffffff; stroke: #8a97a8 } .pipe { stroke: #3b6fb6; stroke-width: 1.6 }
.shell { stroke: #7a5ea8; stroke-width: 1.6 } .load { stroke: #2d8078; stroke-width: 1.6 }
.done { fill: #e3f5ea } .failed { fill: #fbdfdf; stroke: #c0392b } .running { fill: #fdf2d5 }
.interrupted { fill: #fdf2d5 } .share { fill: #2b8a57 } .failed-share { fill: #c0392b }
.flow { fill: none; stroke: #7688a0; stroke-width: 1.3 } .order { stroke-dasharray: 4 4; \
opacity: .75 }
.tip { fill: #7688a0 } .kept { fill: #b45309; font-weight: 600 }
@media (prefers-color-scheme: dark) {
text { fill: #e2e8f0 } .page { fill: #10161f }
.panel { fill: #18212d; stroke: #2c3a4b }
.lane { stroke: #3a4a5e } .soft { fill: #93a3b8 } .box { fill: #202c3b; stroke: #5d6f86 }
.pipe { stroke: #6ea3ea } .shell { stroke: #b79ae6 } .load { stroke: #5cc4b8 }
.done { fill: #17382a } .failed { fill: #4a2023; stroke: #ef6b5e } .running { fill: #463a17 }
.interrupted { fill: #463a17 } .share { fill: #4cc38a } .kept { fill: #f5a94b } }
"""


def svg(picture: Picture) -> str:
    """Return the image, without a final line feed."""
    return _Sheet(picture).image()


@dataclass(frozen=True)
class _Line:
    """A line of text in a box: its class and its words, each with a class of its own."""

    style: str
    text: str

    @property
    def width(self) -> float:
        return len(self.text) * _SIZES[self.style]


class _Sheet:
    """Lays a picture out and writes it."""

    def __init__(self, picture: Picture) -> None:
        self.picture = picture
        self.lane_of = {node: n for n, node in enumerate(picture.nodes)}
        if any(box.copies > 1 for box in picture.boxes):
            self.lane_of = {}
        self.row_of, self.bands = _rows(picture, self._lane)
        self.labels = [_label(arrow) for arrow in picture.arrows]
        self.gone: dict[int, set[str]] = {}
        for arrow in picture.arrows:
            self.gone.setdefault(arrow.source, set()).update(
                b.rpartition(":")[2] for b in arrow.blobs
            )
        self.lines = [self._box_lines(number) for number in range(len(picture.boxes))]
        self.items = [self._item(number) for number in range(len(picture.boxes))]
        links = [
            Link(a.source, a.target, _width(label), _LINE * len(label) + (6 if label else 0))
            for a, label in zip(picture.arrows, self.labels, strict=True)
        ]
        self.placed = place(self.items, links, self._gaps())
        self._say_what_was_left_out()

    def _lane(self, box: TaskBox) -> int:
        return self.lane_of.get(box.node, 0)

    def _item(self, number: int) -> LayoutItem:
        box = self.picture.boxes[number]
        lines = self.lines[number]
        width = max(_width(lines) + 28, 96.0)
        height = _LINE * len(lines) + 18 + (6 if box.state and box.state.seconds is not None else 0)
        return LayoutItem(self.row_of[number], self._lane(box), width, height)

    def _box_lines(self, number: int) -> list[_Line]:
        box = self.picture.boxes[number]
        gone = self.gone.get(number, ())
        unread = [w for w in box.writes if not any(_same(w, b) for b in gone)]
        name = box.name + (f" x{box.copies}" if box.copies > 1 else "")
        lines = [_Line("name", _cut(name)), _Line("line", _cut(box.description))]
        lines += [_Line("line", _cut(step)) for step in box.steps]
        if unread and box.kind != "pipe":  # the steps of a pipe name theirs
            lines.append(_Line("blob", _cut("→ " + ", ".join(unread))))
        if box.state and box.state.seconds is not None:
            lines.append(_Line("line", box.state.took))
        return lines

    def _say_what_was_left_out(self) -> None:
        """Turn arrows that were left out into lines in the box of their end."""
        for arrow, bends in zip(self.picture.arrows, self.placed.bends, strict=True):
            if not bends and arrow.blobs:
                self.lines[arrow.target].append(_Line("blob", _cut("← " + ", ".join(arrow.blobs))))
                item = self.items[arrow.target]
                item.height += _LINE

    def _gaps(self) -> list[float]:
        """Return the room for the panels of groups, above their first row and below their last."""
        gaps = [0.0] * (self.bands[-1][1] + 2 if self.bands else 1)
        for first, last in self.bands:
            gaps[first] += _TITLE + _PAD / 2
            gaps[last + 1] += _PAD
        return gaps

    # Writing.

    def image(self) -> str:
        lanes = self.placed.lanes
        left, right = lanes[0][0], max(lanes[-1][1], 380.0)
        gutter = self._gutter()
        width = right - left + 4 * _PAD + gutter
        head = _HEAD + (18 if self.lane_of else 0)
        height = self.placed.bottoms[-1] + head + _PAD + 26
        shift = f"translate({2 * _PAD - left + gutter:.1f} {head:.1f})"
        edge = left - _PAD - gutter
        body = [*self._panels(edge, right + _PAD), *self._lanes(), *self._arrows()]
        body += self._titles(edge)
        body += [line for number in range(len(self.items)) for line in self._box(number)]
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" '
                f'height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}" role="img">',
                f"<title>{_text(self.picture.job)}</title>",
                f"<style>{_STYLE}</style>",
                '<rect class="page" width="100%" height="100%"/>',
                *self._heading(),
                f'<g transform="{shift}">',
                *body,
                "</g>",
                *self._legend(height),
                "</svg>",
            ]
        )

    def _heading(self) -> Iterator[str]:
        yield _words(_PAD, 30, "head", self.picture.job)
        tasks = len({(box.group, box.name) for box in self.picture.boxes})
        nodes = f", {len(self.picture.nodes)} nodes" if self.picture.nodes else ""
        yield _words(_PAD, 49, "soft", f"{tasks} task{'s' * (tasks != 1)}{nodes}")

    def _panels(self, left: float, right: float) -> Iterator[str]:
        for first, last in self.bands:
            top = self.placed.tops[first] - _TITLE
            height = self.placed.bottoms[last] + _PAD * 0.8 - top
            yield (
                f'<rect class="panel" x="{left:.1f}" y="{top:.1f}" width="{right - left:.1f}" '
                f'height="{height:.1f}" rx="10"/>'
            )

    def _gutter(self) -> float:
        """Return the room for the captions of groups, beside the boxes: no arrow crosses one."""
        return max((_width(_caption(group)) for group in self.picture.groups), default=0.0) + 12

    def _titles(self, left: float) -> Iterator[str]:
        for group, (first, _) in zip(self.picture.groups, self.bands, strict=True):
            y = self.placed.tops[first] - _TITLE + 19
            for number, line in enumerate(_caption(group)):
                style = "soft" if number else "title"
                yield _words(left + 12, y + _LINE * number, style, line.text)

    def _lanes(self) -> Iterator[str]:
        if not self.lane_of:
            return
        bottom = self.placed.bottoms[-1]
        for node, number in self.lane_of.items():
            left, right = self.placed.lanes[number]
            yield _words((left + right) / 2, -2, "title", node, "middle")
            if number:
                x = (left + self.placed.lanes[number - 1][1]) / 2
                yield f'<path class="lane" d="M{x:.1f} 4V{bottom:.1f}"/>'

    def _arrows(self) -> Iterator[str]:
        chains = self.placed.bends
        starts = _ports([chain[:2] for chain in chains])
        ends = _ports([chain[:-3:-1] for chain in chains])
        for number, (arrow, chain) in enumerate(zip(self.picture.arrows, chains, strict=True)):
            if chain:
                yield from self._arrow(arrow, chain, starts[number], ends[number])

    def _arrow(
        self, arrow: Arrow, chain: Sequence[LayoutItem], start: float, end: float
    ) -> Iterator[str]:
        x, y = start, chain[0].y + chain[0].height
        path = []
        for item in chain[1:-1]:
            path.append(_curve(x, y, item.x, item.y))
            x, y = item.x, item.y + item.height
            if item.width == 0:  # no label, but a bend
                path.append(f"V{y:.1f}")
        tip = chain[-1].y
        path.append(_curve(x, y, end, tip - 6))
        style = "flow" if arrow.blobs else "flow order"
        yield f'<path class="{style}" d="{"".join(path)}"/>'
        yield f'<path class="tip" d="M{end:.1f} {tip:.1f}l-4 -8h8z"/>'
        yield from self._label(arrow, chain[-2])

    def _label(self, arrow: Arrow, item: LayoutItem) -> Iterator[str]:
        for number, line in enumerate(_label(arrow)):
            spans = []
            for word in line.text.split(" "):
                kept = word.removesuffix(",") in arrow.kept
                spans.append(f'<tspan class="kept">{_text(word)}</tspan>' if kept else _text(word))
            y = item.y + _LINE * (number + 1) - 1
            yield (
                f'<text class="blob" x="{item.x:.1f}" y="{y:.1f}" text-anchor="middle">'
                f"{' '.join(spans)}</text>"
            )

    def _box(self, number: int) -> Iterator[str]:
        box, item = self.picture.boxes[number], self.items[number]
        x, y = item.x - item.width / 2, item.y
        status = f" {box.state.status}" if box.state else ""
        yield f"<g><title>{_text(self._hint(box))}</title>"
        if box.copies > 1:
            yield _rect(f"box {box.kind}", x + 5, y + 5, item.width, item.height)
        yield _rect(f"box {box.kind}{status}", x, y, item.width, item.height)
        for row, line in enumerate(self.lines[number]):
            style = line.style if line.style == "name" else "soft"
            yield _words(x + 14, y + 20 + _LINE * row, style, line.text)
        if box.state and box.state.share:
            bar = "failed-share" if box.state.status == "failed" else "share"
            wide = max((item.width - 28) * box.state.share, 1.0)
            yield _rect(bar, x + 14, y + item.height - 9, wide, 3, 1.5)
        yield "</g>"

    def _hint(self, box: TaskBox) -> str:
        """Return the tooltip of a box: everything, uncut."""
        lines = [f"{box.group}: {box.key}", box.description, *box.steps]
        for what, names in (
            ("reads", box.reads),
            ("updates", box.updates),
            ("returns", box.writes),
        ):
            if names:
                lines.append(f"{what} {', '.join(names)}")
        return "\n".join(lines)

    def _legend(self, height: float) -> Iterator[str]:
        y = height - 16
        if any(self.picture.kept.values()):
            yield (
                f'<text class="soft" x="{_PAD:.1f}" y="{y:.1f}"><tspan class="kept">blob</tspan>'
                " persists: it is in the checkpoints</text>"
            )
        if any(not arrow.blobs for arrow in self.picture.arrows):
            yield f'<path class="flow order" d="M{_PAD + 290:.1f} {y - 4:.1f}h30"/>'
            yield _words(_PAD + 328, y, "soft", "order alone")


def _rows(
    picture: Picture, lane: Callable[[TaskBox], int]
) -> tuple[list[int], list[tuple[int, int]]]:
    """Return the row of every box, and the first and last row of every group."""
    row_of = [0] * len(picture.boxes)
    bands = []
    start = 0
    for group in picture.groups:
        by_rank: dict[int, list[int]] = {}
        for number in group.boxes:
            by_rank.setdefault(picture.boxes[number].rank, []).append(number)
        row = start
        for rank in sorted(by_rank):
            counts: dict[int, int] = {}
            for number in by_rank[rank]:
                own = lane(picture.boxes[number])
                row_of[number] = row + 2 * (counts.get(own, 0) // PER_ROW)
                counts[own] = counts.get(own, 0) + 1
            row += 2 * (1 + (max(counts.values()) - 1) // PER_ROW)
        bands.append((start, row - 2))
        start = row
    return row_of, bands


def _label(arrow: Arrow) -> list[_Line]:
    """Return the blobs of an arrow in lines of a few words, at most four."""
    lines: list[str] = []
    for number, blob in enumerate(arrow.blobs):
        word = blob + ("," if number < len(arrow.blobs) - 1 else "")
        if lines and len(lines[-1]) + len(word) < 24:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    if len(lines) > 4:
        shown = sum(len(line.split(" ")) for line in lines[:3])
        lines = [*lines[:3], f"and {len(arrow.blobs) - shown} more"]
    return [_Line("blob", line) for line in lines]


def _ports(ends: Sequence[Sequence[LayoutItem]]) -> list[float]:
    """Return the ``x`` at which each arrow leaves (or meets) its box, in their order."""
    by_box: dict[int, list[int]] = {}
    for number, pair in enumerate(ends):
        if pair:
            by_box.setdefault(id(pair[0]), []).append(number)
    found = [0.0] * len(ends)
    for numbers in by_box.values():
        numbers.sort(key=lambda n: ends[n][1].x)
        box = ends[numbers[0]][0]
        step = min(22.0, (box.width - 20) / len(numbers))
        for place_, number in enumerate(numbers):
            found[number] = box.x + (place_ - (len(numbers) - 1) / 2) * step
    return found


def _same(name: str, other: str) -> bool:
    return name == other or name.startswith(other + "/") or other.startswith(name + "/")


def _curve(x: float, y: float, to_x: float, to_y: float) -> str:
    middle = (y + to_y) / 2
    return f"M{x:.1f} {y:.1f}C{x:.1f} {middle:.1f} {to_x:.1f} {middle:.1f} {to_x:.1f} {to_y:.1f}"


def _rect(style: str, x: float, y: float, width: float, height: float, round_: float = 7) -> str:
    return (
        f'<rect class={quoteattr(style)} x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" '
        f'height="{height:.1f}" rx="{round_:g}"/>'
    )


def _words(x: float, y: float, style: str, text: str, anchor: str = "start") -> str:
    where = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text class="{style}" x="{x:.1f}" y="{y:.1f}"{where}>{_text(text)}</text>'


def _text(text: str) -> str:
    return escape("".join(c if c.isprintable() or c == "\n" else "\ufffd" for c in text))


def _width(lines: Sequence[_Line]) -> float:
    return max((line.width for line in lines), default=0.0)


def _caption(group: GroupPicture) -> list[_Line]:
    """Return the lines that name a group."""
    texts = (group.when, group.note)
    return [_Line("name", group.name), *(_Line("line", _cut(text)) for text in texts if text)]


def _cut(text: str) -> str:
    return text if len(text) <= _WIDEST else text[: _WIDEST - 1] + "…"
