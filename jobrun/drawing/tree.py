"""A picture as a tree of text: groups, tasks by rank, blobs; for terminals and logs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TextIO

from jobrun.drawing.picture import GroupPicture, Picture, TaskBox

__all__ = ["ASCII", "LINES", "TreeGlyphs", "glyphs_for", "tree"]


@dataclass(frozen=True, slots=True)
class TreeGlyphs:
    """The characters of a tree: a branch, the last branch, a line downwards, and signs."""

    branch: str
    last: str
    down: str
    arrow: str
    kept: str


LINES = TreeGlyphs("├─ ", "└─ ", "│  ", "→", "●")
ASCII = TreeGlyphs("|- ", "`- ", "|  ", "->", "*")


def glyphs_for(stream: TextIO | None) -> TreeGlyphs:
    """Return the characters that a stream can show; a file (None) is UTF-8."""
    try:
        "├└│→●".encode((stream and stream.encoding) or "utf-8")
    except UnicodeEncodeError:
        return ASCII
    return LINES


_STATUS = {"done": "done", "failed": "FAILED", "running": "running", "interrupted": "interrupted"}


def tree(picture: Picture, glyphs: TreeGlyphs = LINES) -> str:
    """Return the tree as text, without a final line feed.

    The number in front of a task is its rank: tasks of one number can run at the same time.
    """
    lines = [picture.job + (f" on {len(picture.nodes)} nodes" if picture.nodes else "")]
    for number, group in enumerate(picture.groups):
        last = number == len(picture.groups) - 1
        note = f"  {group.note}" if group.note else ""
        lines.append(f"{glyphs.last if last else glyphs.branch}{group.name}, {group.when}{note}")
        indent = "   " if last else glyphs.down
        lines += [indent + line for line in _group(picture, group, glyphs)]
    if any(picture.kept.values()):
        lines.append(f"{glyphs.kept} persists: it is in the checkpoints")
    return "\n".join(lines)


def _group(picture: Picture, group: GroupPicture, glyphs: TreeGlyphs) -> Iterator[str]:
    boxes = sorted((picture.boxes[b] for b in group.boxes), key=lambda box: box.rank)
    width = len(str(boxes[-1].rank + 1))
    for number, box in enumerate(boxes):
        last = number == len(boxes) - 1
        text = f"{box.rank + 1:{width}} {_task(picture, box, glyphs)}"
        yield (glyphs.last if last else glyphs.branch) + text
        indent = ("   " if last else glyphs.down) + " " * (width + 1)
        yield from (indent + step.replace("→", glyphs.arrow) for step in box.steps)


def _task(picture: Picture, box: TaskBox, glyphs: TreeGlyphs) -> str:
    parts = [box.key + (f" x{box.copies} nodes" if box.copies > 1 else "")]
    if box.kind != "call":
        parts.append(f"[{box.kind}: {box.description}]")
    elif box.every:
        parts.append(f"[{box.every}]")
    taken = [_blobs(picture, box, box.reads, glyphs)] if box.reads else []
    if box.updates:
        taken.append("updates " + _blobs(picture, box, box.updates, glyphs))
    flow = "; ".join(taken)
    if box.writes:
        flow += f" {glyphs.arrow} " + _blobs(picture, box, box.writes, glyphs)
    parts.append(flow.strip())
    if box.state is not None:
        parts.append(_state(box))
    return "  ".join(part for part in parts if part)


def _blobs(picture: Picture, box: TaskBox, names: Sequence[str], glyphs: TreeGlyphs) -> str:
    def mark(name: str) -> str:
        return glyphs.kept if picture.persists(box.node, name) else ""

    return ", ".join(f"{name}{mark(name)}" for name in names)


def _state(box: TaskBox) -> str:
    assert box.state is not None
    text = _STATUS.get(box.state.status, box.state.status)
    return f"({text}, {box.state.took})" if box.state.took else f"({text})"
