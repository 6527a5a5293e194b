"""The common parts of the hooks of all frameworks: reports of steps and phases, and requests to
save or to leave on which all ranks agree.
"""
import contextlib
import os
import signal
import threading
from typing import Any, Callable, ContextManager, Iterator, Sequence, Tuple

from muster import progress

# Takes this rank's flags and returns those that are set on any rank.
Agree = Callable[[Sequence[bool]], Sequence[bool]]


class Training:
    """The reports of one rank. Without Muster, or in a process that does not own the rank's page,
    every call does nothing.

    `saves`: the framework can save after any step, so `muster checkpoint` works. `leaves`: at
    SIGTERM (`muster cancel`, `muster update`, a node that leaves) the training saves and ends after
    the step in progress. The program must then end with exit code 0.
    """

    def __init__(self, saves: bool = True, leaves: bool = True) -> None:
        self.is_reported = progress.begin()
        self._must_leave = False
        self._handles_sigterm = False
        # Agreement takes a message per step, so it needs a reason that is the same on all ranks.
        self.takes_requests = bool(os.environ.get("MUSTER_PROGRESS_PAGE")) and (saves or leaves)
        if not self.is_reported or threading.current_thread() is not threading.main_thread():
            return
        if saves:
            progress.offer_checkpoints()
        if leaves:
            progress.receive_signal(signal.SIGTERM, self._leave)
            self._handles_sigterm = True

    def handle_sigterm_again(self) -> None:
        """Replaces the handler of SIGTERM that a framework has installed since."""
        if self._handles_sigterm:
            signal.signal(signal.SIGTERM, lambda *_: self._leave())

    def _leave(self) -> None:
        self._must_leave = True

    def requests(self, agree: Agree) -> Tuple[bool, bool]:
        """Returns whether all ranks save after this step, and whether they then leave. Every rank
        calls it after every step.
        """
        if not self.takes_requests:
            return False, False
        save, leave = agree((progress.save_requested(), self._must_leave))
        return bool(save or leave), bool(leave)

    @staticmethod
    def step(completed: int, loss: Any = None, tokens: int = 0, learning_rate: float = 0.0, grad_norm: Any = None) -> None:
        """Reports the number of completed steps, and the loss if it is known."""
        progress.step(completed, loss=_number(loss), tokens=tokens, learning_rate=_number(learning_rate), grad_norm=_number(grad_norm))

    @staticmethod
    def phase(name: str) -> ContextManager[object]:
        """A phase in a `with` statement; see progress.phase()."""
        return progress.phase(name)

    @staticmethod
    @contextlib.contextmanager
    def saving(completed: int) -> Iterator[None]:
        """The save of a checkpoint in a `with` statement, which ends when it is complete."""
        with progress.phase("CHECKPOINT_SAVE"):
            yield
        progress.checkpoint(completed)


def _number(value: Any) -> float:
    return 0.0 if value is None else float(value)
