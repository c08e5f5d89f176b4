"""The code of metropolis.yaml: random-walk Metropolis, and how many draws its draws are worth."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

MEAN = np.array([1.0, -2.0])
COVARIANCE = np.array([[1.0, 0.6], [0.6, 2.0]])
PRECISION = np.linalg.inv(COVARIANCE)


def log_density(x: Floats) -> float:
    """The logarithm of a Gaussian's density at ``x`` [2], up to a constant."""
    away = x - MEAN
    return float(-0.5 * away @ PRECISION @ away)


def walk(draws: int, width: float, rng: np.random.Generator, place: Floats) -> tuple[Floats, float]:
    """Walk ``draws`` steps from ``place`` [2], which is moved (Metropolis et al. 1953).

    Returns the places after each step [draws, 2], and the share of steps that were accepted.
    """
    path, accepted = np.empty((draws, 2)), 0
    for step in range(draws):
        proposal = place + rng.normal(0.0, width, 2)
        if np.log(rng.random()) < log_density(proposal) - log_density(place):
            place[:] = proposal
            accepted += 1
        path[step] = place
    return path, accepted / draws


def append(chain: Floats, path: Floats) -> Floats:
    """The chain with the places of another epoch [n, 2] at its end."""
    return np.concatenate([chain, path])


def effective_size(chain: Floats) -> float:
    """The number of independent draws with as much to say about the mean, of the worse coordinate.

    The sum of the autocorrelations ends where two neighbours add up to less than zero (Geyer 1992).
    """
    return min(len(chain) / correlation_time(column) for column in chain.T)


def correlation_time(values: Floats) -> float:
    """The number of draws that are worth one independent draw, for the mean of ``values`` [n]."""
    n = len(values)
    spectrum = np.fft.rfft(values - values.mean(), 2 * n)
    covariances = np.fft.irfft(spectrum * spectrum.conj())[:n]
    pairs = (covariances[: n // 2 * 2] / covariances[0]).reshape(-1, 2).sum(axis=1)
    below = np.flatnonzero(pairs < 0)
    end = below[0] if len(below) else len(pairs)
    return float(max(2 * pairs[:end].sum() - 1, 1 / n))


def report(chain: Floats, ess: float, out: str) -> None:
    """Print the moments of the chain beside the true ones, and write them to ``out``."""
    mean, deviation = chain.mean(axis=0), chain.std(axis=0)
    true = np.sqrt(np.diag(COVARIANCE))
    text = f"{len(chain)} draws, worth {ess:.0f} independent ones\n" + "".join(
        f"{name}: mean {mean[i]:.3f} (true {MEAN[i]:.3f}), "
        f"deviation {deviation[i]:.3f} (true {true[i]:.3f})\n"
        for i, name in enumerate("xy")
    )
    print(text, end="")
    Path(out).write_text(text, encoding="utf-8")
