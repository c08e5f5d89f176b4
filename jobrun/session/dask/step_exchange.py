"""The messages of a pipe in lock step between its copies on this worker and those on others.

Each exchange sends one message to every other worker and waits for theirs; its number is the same
on all.  Large arrays pass through memory where the other worker sees it (see ``shared_content``):
the first message names the sender's memory, the second says whether the receiver sees it.  There
are two memories, for even and odd numbers: whoever has sent message n+1 has done with all messages
n, so what lies in a memory is not needed any more when the message after the next is written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from jobrun.errors import WorkerLostError
from jobrun.session.current import TaskStoppedError
from jobrun.session.dask.messages import Post, StepMessage, arrived_content
from jobrun.session.dask.shared_content import ContentReader, SharedContent, SharedMemory
from jobrun.session.dask.step_board import StepBoard
from jobrun.session.pipe.lock_step import Exchange

__all__ = ["StepExchange"]


@dataclass(frozen=True, slots=True)
class StepExchange:
    """The exchanges of pipe ``task`` between worker ``me`` and the ``others``, all known by keys.

    ``unreached`` reports a worker whose messages cannot be read.
    """

    task: str
    me: str
    others: Sequence[str]
    post: Post
    board: StepBoard
    unreached: Callable[[WorkerLostError], None]
    memories: tuple[SharedMemory, SharedMemory]
    readers: dict[tuple[str, int], ContentReader]

    def begin(self, turn: int, stopped: Callable[[], bool]) -> Exchange:
        """Return the function that exchanges a content in a turn; see ``lock_step.Exchange``."""
        numbers = count()
        seen_here: set[str] = set()
        seen_there: set[str] = set()

        def exchange(content: Any) -> list[Any]:
            number = next(numbers)
            self._send(turn, number, content, seen_here, seen_there)
            found = self.board.take((turn, self.task, number), self.others, stopped)
            for sender, message in found.items():
                if message.memory is not None and self._reader(sender, 0).sees(message.memory):
                    seen_here.add(sender)
                if message.sees:
                    seen_there.add(sender)
            return [self._content(found[sender]) for sender in self.others]

        return exchange

    def cancel(self, turn: int) -> None:
        """Report to the other workers that the pipe was cut here before it began."""
        for peer in self.others:
            self.post(peer, StepMessage(turn, self.task, 0, self.me, None))

    def _send(
        self,
        turn: int,
        number: int,
        content: Any,
        seen_here: set[str],
        seen_there: set[str],
    ) -> None:
        memory = self.memories[number % 2]
        shared = memory.hold(content) if seen_there else None
        named = memory.open() if number == 0 else None
        for peer in self.others:
            sent = shared if shared is not None and peer in seen_there else content
            sees = number == 1 and peer in seen_here
            self.post(peer, StepMessage(turn, self.task, number, self.me, sent, named, sees))

    def _reader(self, sender: str, number: int) -> ContentReader:
        return self.readers.setdefault((sender, number % 2), ContentReader())

    def _content(self, message: StepMessage) -> Any:
        """Return the content of a message; its arrays are valid until the exchange after next."""
        content = message.content
        if isinstance(content, SharedContent):
            try:
                content = self._reader(message.sender, message.number).read(content)
            except OSError as error:  # the process has ended: the run goes back to a checkpoint
                lost = WorkerLostError(f"a message of pipe {self.task!r} cannot be read: {error}")
                self.unreached(lost)
                raise TaskStoppedError from error
        return arrived_content(content)

    def close(self) -> None:
        """Release the memory."""
        for memory in self.memories:
            memory.close()
