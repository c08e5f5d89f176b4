"""The code of pagerank.yaml: PageRank (Brin & Page 1998) by power iteration, in numpy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Nodes = NDArray[np.int64]


def load(file: str) -> tuple[Nodes, Nodes, int]:
    """Read links, ``from,to`` a line, of nodes 0, 1, ...: two ends [links], the count of nodes."""
    links = np.loadtxt(file, delimiter=",", skiprows=1, dtype=np.int64)
    return links[:, 0], links[:, 1], int(links.max()) + 1


def even(nodes: int) -> Floats:
    """The same rank for each node."""
    return np.full(nodes, 1 / nodes)


def follow(source: Nodes, target: Nodes, damping: float, rank: Floats) -> tuple[Floats, float]:
    """One step of a surfer who follows a link, or is bored and jumps anywhere.

    Returns the ranks after it [nodes], and the sum of their changes.  Who is at a node without
    links jumps.
    """
    nodes = len(rank)
    links = np.bincount(source, minlength=nodes)
    share = rank / np.maximum(links, 1)
    followed = np.bincount(target, weights=share[source], minlength=nodes)
    stuck = rank[links == 0].sum()
    moved = damping * (followed + stuck / nodes) + (1 - damping) / nodes
    return moved, float(np.abs(moved - rank).sum())


def report(rank: Floats, out: str) -> None:
    """Print the five nodes of the highest rank; write all of them to ``out``."""
    order = np.argsort(-rank, kind="stable")
    lines = [f"{node},{rank[node]:.9f}" for node in order]
    print("\n".join(f"{i}. node {node}: {rank[node]:.4f}" for i, node in enumerate(order[:5], 1)))
    Path(out).write_text("\n".join(["node,rank", *lines]) + "\n", encoding="utf-8")
