"""The pages of the documentation: Markdown files in this folder, shown by ``jobrun docs``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files

__all__ = ["Section", "matching", "mentions", "page", "pages", "search", "sections"]


@dataclass(frozen=True, slots=True)
class Section:
    """A section of a page: its heading as plain text, its level (1: the title), and its Markdown.

    ``text`` begins with the heading and holds the subsections; ``own`` is what comes before them.
    """

    heading: str
    level: int
    text: str
    own: str


def pages() -> dict[str, str]:
    """Return every page: its name and its title, in the order of the names."""
    names = sorted(f.name[:-3] for f in files(__name__).iterdir() if f.name.endswith(".md"))
    return {name: page(name).split("\n", 1)[0].removeprefix("# ") for name in names}


def page(name: str) -> str:
    """Return the Markdown of a page.  Raises FileNotFoundError."""
    return (files(__name__) / f"{name}.md").read_text(encoding="utf-8")


def sections(text: str) -> list[Section]:
    """Return the sections of a page in their order, the title first."""
    lines = text.splitlines(keepends=True)
    heads = list(_headings(lines))
    found = []
    for number, (start, level, heading) in enumerate(heads):
        later = heads[number + 1 :]
        end = next((line for line, other, _ in later if other <= level), len(lines))
        own_end = later[0][0] if later else len(lines)
        own = "".join(lines[start:own_end])
        found.append(Section(heading, level, "".join(lines[start:end]).rstrip() + "\n", own))
    return found


def _headings(lines: list[str]) -> Iterator[tuple[int, int, str]]:
    """Yield the line, level and plain text of each heading; ``#`` in a code block is none."""
    in_code = False
    for number, line in enumerate(lines):
        if line.lstrip().startswith("```"):
            in_code = not in_code
        elif not in_code and (match := re.match(r"(#+) (.+)", line)):
            yield number, len(match[1]), match[2].replace("`", "").strip()


def matching(found: list[Section], words: str) -> list[Section]:
    """Return the sections that ``words`` name: by the whole heading, its end, beginning or a part.

    The end is whole words: ``batch`` is ``task.pipe.batch``.
    """
    wanted = _folded(words)
    headings = [(_folded(section.heading), section) for section in found]
    for fits in (str.__eq__, _ends_with, str.startswith, str.__contains__):
        if hits := [section for heading, section in headings if fits(heading, wanted)]:
            return hits
    return []


def mentions(text: str, words: str) -> int:
    """Return how often a text holds ``words``, as whole ones."""
    return f" {_folded(text)} ".count(f" {_folded(words)} ") if _folded(words) else 0


def _ends_with(heading: str, words: str) -> bool:
    return heading.endswith(f" {words}")


def _folded(text: str) -> str:
    """Return the words of ``text`` in lower case, without punctuation."""
    return " ".join(re.findall(r"\w+", text.casefold()))


def search(words: str, texts: Mapping[str, str]) -> Iterator[tuple[str, Section, str]]:
    """Yield the page, the section and the line of each line that holds each of ``words``.

    ``texts`` are the pages by name.  Upper and lower case are the same.
    """
    wanted = words.casefold().split()
    for name, text in texts.items():
        for section in sections(text):
            for line in section.own.splitlines():
                folded = line.casefold()
                if all(word in folded for word in wanted):
                    yield name, section, line.strip()
