"""The results of the specs: those of a plain script, bit for bit, and known numbers."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import warm

from jobrun import load_blobs
from jobrun.core.rng import make_rng

SPECS = Path(__file__).parents[2] / "specs"


def code(name: str) -> ModuleType:
    """The code of a spec, under a name that no test of other code with its name sees."""
    found = spec_from_file_location(f"specs_{name}", SPECS / f"{name}.py")
    assert found is not None
    assert found.loader is not None
    module = module_from_spec(found)
    found.loader.exec_module(module)
    return module


def trained(name: str, runs: Path, *options: str) -> dict[str, Any]:
    """The blobs at the end of a run in a process of its own."""
    words = ["train", str(SPECS / f"{name}.yaml"), "--runs-dir", str(runs), *options]
    code, _, err = warm.jobrun(words, runs, warm.environment())
    assert code == 0, err
    return load_blobs(runs / name)


def assert_same(blobs: dict[str, Any], **plain: Any) -> None:
    """Each of ``plain`` is the blob of its name, bit for bit; a dict is a tree."""
    for name, value in plain.items():
        parts = (
            {f"{name}/{k}": v for k, v in value.items()}
            if isinstance(value, dict)
            else {name: value}
        )
        for path, part in parts.items():
            assert np.asarray(blobs[path]).tobytes() == np.asarray(part).tobytes(), path


def test_mixture(tmp_path: Path) -> None:
    blobs = trained("mixture", tmp_path)
    em = code("mixture")
    x = em.load(SPECS / "geyser.csv")
    mixture = em.start(x, 2, make_rng(4, "init", "start", "main", 0, None))
    share, likelihood, gain = em.expect(x, mixture, -np.inf)
    while gain >= 1e-9:
        em.maximize(x, share, mixture)
        share, likelihood, gain = em.expect(x, mixture, likelihood)
    assert_same(blobs, mixture=mixture, likelihood=likelihood)
    # mclust (Scrucca et al. 2016) for R: Mclust(faithful, G = 2, modelNames = "VVV")
    assert likelihood == pytest.approx(-1130.264, abs=5e-4)
    assert sorted(mixture["weights"]) == pytest.approx([0.3559, 0.6441], abs=1e-4)


def test_metropolis(tmp_path: Path) -> None:
    blobs = trained("metropolis", tmp_path)
    mcmc = code("metropolis")
    place, chain, ess, epoch = np.zeros(2), np.empty((0, 2)), 0.0, 0
    while ess < 2000:
        epoch += 1
        path, _ = mcmc.walk(1000, 2.5, make_rng(5, "epoch", "walk", "main", epoch, None), place)
        chain = mcmc.append(chain, path)
        ess = mcmc.effective_size(chain)
    assert_same(blobs, place=place, chain=chain)
    errors = np.sqrt(np.diag(mcmc.COVARIANCE) / ess)
    assert (np.abs(chain.mean(axis=0) - mcmc.MEAN) < 4 * errors).all()
    assert np.cov(chain.T) == pytest.approx(mcmc.COVARIANCE, rel=0.2)


def test_the_effective_size_of_an_autoregression_is_the_known_one() -> None:
    """x[t] = r x[t-1] + e has the correlation time (1 + r) / (1 - r)."""
    mcmc = code("metropolis")
    noise = np.random.default_rng(1).normal(size=200_000)
    for r in (0.0, 0.5, 0.9):
        x = np.zeros_like(noise)
        for t in range(1, len(noise)):
            x[t] = r * x[t - 1] + noise[t]
        assert mcmc.correlation_time(x) == pytest.approx((1 + r) / (1 - r), rel=0.1)


def test_heat(tmp_path: Path) -> None:
    blobs = trained("heat", tmp_path)
    heat = code("heat")
    rod = heat.start(100)
    error, warmest = 0.0, 1.0
    while warmest >= 0.01:
        heat.advance(100, 0.4, 50, rod)
        error, warmest = heat.compare(100, rod)
    assert_same(blobs, rod=rod)
    assert error < 1e-5, "of the exact solution"


def test_the_error_of_heat_is_of_second_order() -> None:
    heat = code("heat")
    errors = []
    for points in (25, 50, 100):
        rod = heat.start(points)
        heat.advance(points, 0.4, points**2 // 8, rod)  # to the same time
        errors.append(heat.compare(points, rod)[0])
    assert errors[0] / errors[1] == pytest.approx(4, rel=0.1)
    assert errors[1] / errors[2] == pytest.approx(4, rel=0.1)


def test_pagerank(tmp_path: Path) -> None:
    blobs = trained("pagerank", tmp_path)
    pagerank = code("pagerank")
    source, target, nodes = pagerank.load(SPECS / "karate.csv")
    rank, change = pagerank.even(nodes), 1.0
    while change >= 1e-12:
        rank, change = pagerank.follow(source, target, 0.85, rank)
    assert_same(blobs, rank=rank)
    # networkx 3.6.1: pagerank(karate_club_graph(), weight=None, tol=1e-14)
    first = [0.0969972854, 0.0528769241, 0.0570785095, 0.0358598578, 0.0219779524, 0.0291111547]
    assert rank[:6] == pytest.approx(first, abs=1e-10)
    assert rank[[32, 33]] == pytest.approx([0.0716932260, 0.1009191823], abs=1e-10)
    assert rank.sum() == pytest.approx(1, abs=1e-14)


def test_pagerank_of_links_one_way_with_dead_ends() -> None:
    """Node 2 has no links.  The solution of the three equations by hand, at a damping of 1/2."""
    pagerank = code("pagerank")
    source, target = np.array([0, 0, 1]), np.array([1, 2, 2])
    rank = pagerank.even(3)
    for _ in range(100):
        rank, _ = pagerank.follow(source, target, 0.5, rank)
    base = np.array(
        [1.0, 1.25, 1.875]
    )  # each relative to that of node 0: 1, 1 + 1/4, 1 + 1/4 + 5/8
    assert rank == pytest.approx(base / base.sum(), abs=1e-14)


def test_gridworld(tmp_path: Path) -> None:
    blobs = trained("gridworld", tmp_path)
    cliff = code("gridworld")
    world = cliff.make(make_rng(2, "setup", "make", "main", 0, None))
    values, epoch = cliff.no_values(), 0
    while cliff.try_out(values) < -13:
        epoch += 1
        rng = make_rng(2, "epoch", "learn", "main", epoch, None)
        cliff.learn(250, 0.5, 0.1, rng, world, values)
    assert_same(blobs, values=values)
    assert (tmp_path / "gridworld/policy.txt").read_text().endswith("^##########G\n")
    assert cliff.try_out(values) == -13, "the shortest way: one up, eleven right, one down"


def test_life(tmp_path: Path) -> None:
    """At rest after 1103 generations, with 116 cells (Gardner 1983, chapter 21)."""
    cells = {tuple(cell) for cell in trained("life", tmp_path)["cells"].astype(int)}
    plain = {(1, 0), (2, 0), (0, 1), (1, 1), (1, 2)}
    sizes = []
    for _ in range(1150):
        near: dict[tuple[int, int], int] = {}
        for x, y in plain:
            for dx, dy in ((i, j) for i in (-1, 0, 1) for j in (-1, 0, 1) if i or j):
                near[x + dx, y + dy] = near.get((x + dx, y + dy), 0) + 1
        plain = {c for c, n in near.items() if n == 3 or (n == 2 and c in plain)}
        sizes.append(len(plain))
    assert cells == plain
    assert sizes[1101] != 116
    assert set(sizes[1102:]) == {116}
