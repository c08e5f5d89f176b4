"""A picture as a Mermaid flowchart, which Markdown viewers draw."""

from __future__ import annotations

from collections.abc import Iterator

from jobrun.drawing.picture import Picture, TaskBox

__all__ = ["mermaid"]

_SHAPES = {"pipe": ('[["', '"]]'), "shell": ('>"', '"]'), "load": ('[("', '")]')}
_CLASSES = {
    "done": "fill:#d9f2e3,stroke:#2b8a57,color:#123",
    "failed": "fill:#fbdcdc,stroke:#c0392b,color:#123",
    "running": "fill:#fdf0cf,stroke:#b8860b,color:#123",
    "interrupted": "fill:#fdf0cf,stroke:#b8860b,color:#123",
}


def mermaid(picture: Picture) -> str:
    """Return the flowchart, without a final line feed; a dot marks blobs that persist."""
    return "\n".join(_lines(picture))


def _lines(picture: Picture) -> Iterator[str]:
    yield "flowchart TD"
    for group in picture.groups:
        yield f'  subgraph {group.name}_group["{_text(f"{group.name}, {group.when}")}"]'
        for number in group.boxes:
            yield f"    {_box(picture.boxes[number], number)}"
        yield "  end"
    for arrow in picture.arrows:
        blobs = ", ".join(f"{b}{' ●' if b in arrow.kept else ''}" for b in arrow.blobs)
        link = f'-->|"{_text(blobs)}"|' if blobs else "-.->"
        yield f"  t{arrow.source} {link} t{arrow.target}"
    used = {box.state.status for box in picture.boxes if box.state}
    for status in sorted(used & set(_CLASSES)):
        yield f"  classDef {status} {_CLASSES[status]}"


def _box(box: TaskBox, number: int) -> str:
    start, end = _SHAPES.get(box.kind, ('["', '"]'))
    name = box.key + (f" x{box.copies}" if box.copies > 1 else "")
    lines = [f"<b>{_text(name)}</b>", _text(box.description), *map(_text, box.steps)]
    if box.state is not None and box.state.seconds is not None:
        lines.append(_text(box.state.took))
    known = box.state is not None and box.state.status in _CLASSES
    style = f":::{box.state.status}" if known and box.state else ""
    return f"t{number}{start}{'<br/>'.join(lines)}{end}{style}"


_ENTITIES = {c: f"#{ord(c)};" for c in '"<>#&|[]{}()`\\'}


def _text(text: str) -> str:
    """Return text that Mermaid shows literally: its own signs as entities, no line feeds."""
    return "".join(_ENTITIES.get(c, c if c.isprintable() else "?") for c in text)
