"""The code of gridworld.yaml: an agent learns to walk along a cliff (Sutton & Barto, example 6.6).

The world is an object with a state of its own, as the environments of other libraries are: where
the agent is, how long its episode has taken, and the generator of its random numbers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

ROWS, COLUMNS = 4, 12
START, GOAL = (3, 0), (3, 11)
MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))
ARROWS = "^>v<"


class Cliff:
    """A world of 4 rows and 12 columns; the cliff is in the last row, between start and goal.

    A step costs 1.  A fall costs 100 and ends an episode, as the goal does; the next one begins
    somewhere above the cliff.
    """

    def __init__(self, seed: int) -> None:
        self.rng = np.random.Generator(np.random.PCG64(seed))
        self.place, self.steps = START, 0

    def step(self, action: int) -> tuple[float, bool]:
        """Move the agent; return the reward, and whether the episode has ended."""
        row, column = (
            min(max(at + by, 0), size - 1)
            for at, by, size in zip(self.place, MOVES[action], (ROWS, COLUMNS), strict=True)
        )
        self.place, self.steps = (row, column), self.steps + 1
        fallen = row == ROWS - 1 and 0 < column < COLUMNS - 1
        ended = fallen or self.place == GOAL
        if ended:
            self.place = (int(self.rng.integers(ROWS - 1)), int(self.rng.integers(COLUMNS)))
            self.steps = 0
        return -100.0 if fallen else -1.0, ended


class CliffState:
    """How a checkpoint keeps a ``Cliff``: named under ``state`` in the spec."""

    name = "gridworld.Cliff"
    version = 1

    def state(self, world: Cliff) -> dict[str, Any]:
        """What changes in the world, as numbers, strings, lists and dicts."""
        generator = world.rng.bit_generator.state  # its numbers of 128 bits are kept as strings
        large = {key: str(value) for key, value in generator["state"].items()}
        return {
            "place": list(world.place),
            "steps": world.steps,
            "rng": {**generator, "state": large},
        }

    def restore(self, world: Cliff, state: dict[str, Any]) -> Cliff:
        """Put what ``state`` returned into a world that ``make`` has just made."""
        row, column = state["place"]
        world.place, world.steps = (row, column), state["steps"]
        large = {key: int(value) for key, value in state["rng"]["state"].items()}
        world.rng.bit_generator.state = {**state["rng"], "state": large}
        return world

    def copy(self, world: Cliff) -> Cliff:
        """A world in the same state that shares nothing with this one."""
        return self.restore(Cliff(0), self.state(world))


def make(rng: np.random.Generator) -> Cliff:
    """Make the world, at every start of a run."""
    return Cliff(int(rng.integers(1 << 32)))


def no_values() -> Floats:
    """The value of each action at each place, before anything is known: [4, 12, 4]."""
    return np.zeros((ROWS, COLUMNS, len(MOVES)))


def learn(
    steps: int, rate: float, explore: float, rng: np.random.Generator, world: Cliff, values: Floats
) -> tuple[int, float]:
    """Walk ``steps`` steps and change the values in place (Q-learning: Watkins 1989).

    An episode goes on over the end of this call.  Returns how many have ended, and the mean reward
    of a step.
    """
    ended, total = 0, 0.0
    for _ in range(steps):
        place = world.place
        greedy = int(values[place].argmax())
        action = int(rng.integers(len(MOVES))) if rng.random() < explore else greedy
        reward, done = world.step(action)
        ahead = 0.0 if done else values[world.place].max()
        values[place][action] += rate * (reward + ahead - values[place][action])
        ended, total = ended + done, total + reward
    return ended, total / steps


def try_out(values: Floats) -> float:
    """The sum of rewards on the best-known way from start to goal, of at most 100 steps.

    The shortest way is worth -13.
    """
    world, total = Cliff(0), 0.0
    for _ in range(100):
        reward, done = world.step(int(values[world.place].argmax()))
        total += reward
        if done:
            break
    return total


def draw(values: Floats, out: str) -> None:
    """Show the best-known action at each place, and write it to ``out``."""
    best = values.argmax(axis=2)
    rows = ["".join(ARROWS[action] for action in row) for row in best]
    rows[-1] = ARROWS[best[START]] + "#" * (COLUMNS - 2) + "G"
    text = "\n".join(rows) + "\n"
    print(text, end="")
    Path(out).write_text(text, encoding="utf-8")
