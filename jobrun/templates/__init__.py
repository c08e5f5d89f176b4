"""Small example jobs, one folder each: a spec and its code, which run as they are."""

from __future__ import annotations

from importlib.resources import files

__all__ = ["TEMPLATES", "template_files"]

TEMPLATES = {
    "minimal": "The square root of a number: a state, a step, and when to stop.",
    "mlp": "A neural network learns to tell the arms of a spiral apart: pipes, batches, metrics.",
    "kmeans": "k-means finds the centres of clouds of points: setup, init, epoch, exit.",
    "mcmc": "Metropolis chains walk until they agree: randomness, saving by time.",
    "heat": "Heat spreads over a plate until it is at rest: a simulation, and when it fails.",
    "torch": "The spiral with PyTorch: objects under 'state', tensors, weights for others.",
    "jax": "The spiral with JAX and optax: values that are replaced.",
    "sklearn": "The spiral with scikit-learn: an estimator, partial_fit.",
    "xgboost": "The spiral with XGBoost: a booster, a round of trees in each epoch.",
    "shell": "Rabbits and foxes, by an awk script: a program instead of functions.",
}
"""The templates, each with a one-line description."""


def template_files(name: str) -> dict[str, bytes]:
    """Return the files of a template by name; the spec is ``<name>.yaml``."""
    folder = files(__name__) / name
    return {
        entry.name: entry.read_bytes()
        for entry in sorted(folder.iterdir(), key=lambda entry: entry.name)
        if entry.is_file() and not entry.name.endswith(".pyc")
    }
