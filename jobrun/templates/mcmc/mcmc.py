"""The code of mcmc.yaml: Metropolis chains side by side, and when they agree.

Functions are plain: they take arrays and numbers, and return arrays and numbers.  What an
``in:`` hands them is read-only; what an ``update:`` hands them is changed in place.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Moments = dict[str, Floats]
"""Of each chain: {count [1], mean [chains, 2], m2 [chains, 2]: sums of squared differences}."""


def log_density(place: Floats) -> Floats:
    """A banana (after Haario et al. 1999), up to a constant: [chains] of [chains, 2].

    The true means are 0 and 0, the true standard deviations 1 and about 1.22.
    """
    a, b = place[:, 0], place[:, 1]
    bent = b - 0.5 * (a * a - 1.0)
    density: Floats = -0.5 * (a * a + bent * bent)
    return density


def start(chains: int, rng: np.random.Generator) -> Floats:
    """Places far apart, so that chains which have come to agree have really walked."""
    return rng.uniform(-4.0, 4.0, (chains, 2))


def no_moments(chains: int) -> Moments:
    """The moments of no draw."""
    return {"count": np.zeros(1), "mean": np.zeros((chains, 2)), "m2": np.zeros((chains, 2))}


def walk(
    draws: int, width: float, rng: np.random.Generator, place: Floats, moments: Moments
) -> float:
    """Walk ``draws`` steps with every chain, in place; the share of steps that were accepted."""
    accepted = 0
    here = log_density(place)
    for _ in range(draws):
        proposal = place + rng.normal(0.0, width, place.shape)
        there = log_density(proposal)
        taken = np.log(rng.random(len(place))) < there - here
        place[taken], here[taken] = proposal[taken], there[taken]
        accepted += int(taken.sum())
        note(place, moments)
    return accepted / (draws * len(place))


def note(place: Floats, moments: Moments) -> None:
    """Add a draw of every chain to its moments (Welford 1962)."""
    moments["count"] += 1
    away = place - moments["mean"]
    moments["mean"] += away / moments["count"]
    moments["m2"] += away * (place - moments["mean"])


def disagreement(moments: Moments) -> float:
    """R-hat (Gelman & Rubin 1992) of the worse coordinate: 1 where all chains say the same."""
    count = moments["count"][0]
    within = (moments["m2"] / (count - 1)).mean(axis=0)
    between = moments["mean"].var(axis=0, ddof=1)
    return float(np.sqrt((count - 1) / count + between / within).max())


def report(moments: Moments, rhat: float, out: str) -> None:
    """Print the mean and deviation of both coordinates, and write them to ``out``."""
    mean = moments["mean"].mean(axis=0)
    deviation = np.sqrt((moments["m2"] / moments["count"]).mean(axis=0))
    draws = int(moments["count"][0]) * len(moments["mean"])
    text = f"{draws} draws, R-hat {rhat:.4f}\n" + "".join(
        f"{name}: mean {m:+.3f}, standard deviation {d:.3f}\n"
        for name, m, d in zip("ab", mean, deviation, strict=True)
    )
    print(text, end="")
    Path(out).write_text(text, encoding="utf-8")
