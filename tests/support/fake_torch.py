"""The random generators of torch, without torch: the functions that jobrun calls."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np


class State:
    """A tensor of bytes."""

    def __init__(self, array: Any) -> None:
        self.array = np.array(array)

    def numpy(self) -> Any:
        return self.array


class Generator:
    """A generator of the processor or of a device."""

    def __init__(self) -> None:
        self.random = np.random.Generator(np.random.PCG64(0))

    def manual_seed(self, seed: int) -> Generator:
        self.random = np.random.Generator(np.random.PCG64(seed))
        return self

    def get_state(self) -> State:
        state: Any = self.random.bit_generator.state["state"]
        text = b"".join(state[key].to_bytes(16, "little") for key in ("state", "inc"))
        return State(np.frombuffer(text, np.uint8))

    def set_state(self, state: State) -> None:
        text = state.array.tobytes()
        parts = [int.from_bytes(text[i : i + 16], "little") for i in (0, 16)]
        inner = dict(zip(("state", "inc"), parts, strict=True))
        bits: Any = self.random.bit_generator
        bits.state = {**bits.state, "state": inner}


class Cuda:
    """One device, which starts when it is first used."""

    def __init__(self) -> None:
        self.device: Generator | None = None
        self.seed = 0

    def start(self) -> None:
        self.device = Generator().manual_seed(self.seed)

    def is_initialized(self) -> bool:
        return self.device is not None

    def get_rng_state_all(self) -> list[State]:
        assert self.device is not None
        return [self.device.get_state()]

    def set_rng_state_all(self, states: list[State]) -> None:
        if self.device is None:
            self.start()
        assert self.device is not None
        self.device.set_state(states[0])

    def manual_seed_all(self, seed: int) -> None:
        self.seed = seed
        if self.device is not None:
            self.device.manual_seed(seed)

    def draw(self) -> float:
        assert self.device is not None
        return float(self.device.random.random())


class FakeTorch(ModuleType):
    """The module."""

    def __init__(self) -> None:
        super().__init__("torch")
        self.Generator = Generator
        self.cuda = Cuda()
        self.default = Generator()
        self.is_drawn = True

    def draw(self) -> float:
        return float(self.default.random.random()) if self.is_drawn else 0.0

    def get_rng_state(self) -> State:
        return self.default.get_state()

    def set_rng_state(self, state: State) -> None:
        self.default.set_state(state)

    def from_numpy(self, array: Any) -> State:
        return State(array)
