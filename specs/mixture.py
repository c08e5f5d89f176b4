"""The code of mixture.yaml: a mixture of Gaussians, fitted by expectation-maximization in numpy.

Dempster, Laird & Rubin 1977.  The shapes: x [n, d]; a mixture of k components has ``weights`` [k],
``means`` [k, d] and ``covariances`` [k, d, d].
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Mixture = dict[str, Floats]


def load(file: str) -> Floats:
    """Read the columns of a CSV file with a line of names: float64 [n, d]."""
    return np.loadtxt(file, delimiter=",", skiprows=1)


def start(x: Floats, components: int, rng: np.random.Generator) -> Mixture:
    """Equal weights, rows of ``x`` as means, and the covariance of all rows for each component."""
    means = x[rng.choice(len(x), components, replace=False)]
    covariances = np.repeat(np.cov(x.T, bias=True)[None], components, axis=0)
    return {
        "weights": np.full(components, 1 / components),
        "means": means,
        "covariances": covariances,
    }


def expect(x: Floats, mixture: Mixture, before: float) -> tuple[Floats, float, float]:
    """The probability that each row is of each component [n, k], the log-likelihood, and by how
    much it is above ``before``: never below it, but for rounding."""
    joint = np.log(mixture["weights"]) + np.stack(
        [
            log_density(x, mean, covariance)
            for mean, covariance in zip(mixture["means"], mixture["covariances"], strict=True)
        ],
        axis=1,
    )
    top = joint.max(axis=1, keepdims=True)
    log_p = top + np.log(np.exp(joint - top).sum(axis=1, keepdims=True))
    likelihood = float(log_p.sum())
    return np.exp(joint - log_p), likelihood, likelihood - before


def log_density(x: Floats, mean: Floats, covariance: Floats) -> Floats:
    """The logarithm of a Gaussian's density at each row of ``x`` [n]."""
    factor = np.linalg.cholesky(covariance)
    standard = np.linalg.solve(factor, (x - mean).T)
    log_volume = np.log(np.diag(factor)).sum() + 0.5 * len(mean) * np.log(2 * np.pi)
    density: Floats = -0.5 * (standard * standard).sum(axis=0) - log_volume
    return density


def maximize(x: Floats, share: Floats, mixture: Mixture) -> None:
    """Change the mixture, in place, to the likeliest one for these shares of the rows."""
    rows = share.sum(axis=0)
    mixture["weights"][:] = rows / len(x)
    mixture["means"][:] = share.T @ x / rows[:, None]
    for k, mean in enumerate(mixture["means"]):
        away = x - mean
        mixture["covariances"][k] = (share[:, k] * away.T) @ away / rows[k]


def report(mixture: Mixture, likelihood: float, out: str) -> None:
    """Print the mixture and its log-likelihood, and write them to ``out``."""
    lines = [f"log-likelihood {likelihood:.3f}"]
    for weight, mean in zip(mixture["weights"], mixture["means"], strict=True):
        place = ", ".join(f"{m:.3f}" for m in mean)
        lines.append(f"{100 * weight:5.1f} % of the rows around {place}")
    text = "\n".join(lines) + "\n"
    print(text, end="")
    Path(out).write_text(text, encoding="utf-8")
