"""The code of minimal.yaml: plain functions, which take and return numbers and arrays."""


def start() -> dict[str, float]:
    """The state before the first epoch."""
    return {"x": 1.0, "steps": 0}


def step(target: float, state: dict[str, float]) -> float:
    """Change the state in place (Newton's method for a square root); return the error."""
    state["x"] = (state["x"] + target / state["x"]) / 2
    state["steps"] += 1
    return abs(state["x"] ** 2 - target)
