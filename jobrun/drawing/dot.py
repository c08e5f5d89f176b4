"""A picture in the DOT language of Graphviz."""

from __future__ import annotations

from collections.abc import Iterator

from jobrun.drawing.picture import Picture, TaskBox

__all__ = ["dot"]

_FILLS = {"done": "#d9f2e3", "failed": "#fbdcdc", "running": "#fdf0cf", "interrupted": "#fdf0cf"}
_SHAPES = {"pipe": "box3d", "shell": "cds", "load": "cylinder"}


def dot(picture: Picture) -> str:
    """Return DOT, without a final line feed; blobs that persist are marked with a dot."""
    return "\n".join(_lines(picture))


def _lines(picture: Picture) -> Iterator[str]:
    yield f"digraph {_quoted(picture.job)} {{"
    yield '  node [shape=box style="rounded,filled" fillcolor=white fontname=monospace]'
    yield "  edge [fontname=monospace fontsize=10]"
    for number, group in enumerate(picture.groups):
        yield f"  subgraph cluster_{number} {{"
        yield f"    label={_quoted(f'{group.name}, {group.when}')} style=rounded color=gray60"
        for box in group.boxes:
            yield f"    t{box} [{_box(picture.boxes[box])}]"
        yield "  }"
    for arrow in picture.arrows:
        blobs = "\n".join(f"{b}{' ●' if b in arrow.kept else ''}" for b in arrow.blobs)
        look = f"label={_quoted(blobs)}" if blobs else "style=dashed color=gray60"
        yield f"  t{arrow.source} -> t{arrow.target} [{look}]"
    yield "}"


def _box(box: TaskBox) -> str:
    name = box.key + (f" x{box.copies}" if box.copies > 1 else "")
    lines = [name, box.description, *box.steps]
    if box.state is not None and box.state.seconds is not None:
        lines.append(box.state.took)
    text = f"label={_quoted(chr(10).join(lines))}"
    if box.kind in _SHAPES:
        text += f' shape={_SHAPES[box.kind]} style="filled"'
    if box.state is not None and box.state.status in _FILLS:
        text += f' fillcolor="{_FILLS[box.state.status]}"'
    return text


def _quoted(text: str) -> str:
    """Return a quoted string of DOT: backslashes and quotes escaped, lines centred."""
    clean = "".join(c if c.isprintable() or c == "\n" else "?" for c in text)
    escaped = clean.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
