"""Reports of JAX programs.

    import muster.jax

    training = muster.jax.Training(total_steps=1000)       # after jax.distributed.initialize()
    for n in range(first, 1000):
        state, metrics = train_step(state, next(batches))
        save, leave = training.step(n + 1, loss=metrics["loss"])
        if save:
            with training.saving(n + 1):
                manager.save(n + 1, …)
                manager.wait_until_finished()
        if leave:
            break

In MaxText, the loop is that of `train_loop` in train.py.
"""
from typing import Any, Sequence, Tuple

import jax
import numpy

from muster import _training, progress


def _agree(flags: Sequence[bool]) -> Sequence[bool]:
    if jax.process_count() == 1:
        return flags
    from jax.experimental import multihost_utils
    return [bool(flag) for flag in numpy.asarray(multihost_utils.process_allgather(numpy.array(flags))).any(axis=0)]


class Training:
    """The reports of one process; without Muster they do nothing.

    `saves`: the loop saves a checkpoint when step() requests it, so `muster checkpoint` works.
    `leaves`: at SIGTERM, step() requests to save and leave; the program must then end with exit
    code 0. `request_steps`: the processes agree on requests at steps that are multiples of it, by a
    collective that waits for the devices. Create it on the main thread.

    step() waits for the loss: reports without it would run ahead of the devices by the steps that
    JAX has dispatched. Give the loss of the previous step to let one step run ahead.
    """

    def __init__(self, total_steps: int = -1, *, saves: bool = True, leaves: bool = True, request_steps: int = 1) -> None:
        if request_steps < 1:
            raise ValueError(f"request_steps={request_steps}: must be at least 1")
        self._training = _training.Training(saves, leaves)
        self._request_steps = request_steps
        if total_steps >= 0:
            progress.total_steps(total_steps)
        progress.phase("COMPILE")

    def step(self, completed: int, loss: Any = None, *, tokens: int = 0, learning_rate: float = 0.0, grad_norm: Any = None) -> Tuple[bool, bool]:
        """Reports the number of completed steps. Returns whether all processes save now, and
        whether they leave after that.
        """
        self._training.step(completed, loss, tokens, learning_rate, grad_norm)
        if completed % self._request_steps != 0:
            return False, False
        return self._training.requests(_agree)

    def phase(self, name: str) -> Any:
        """A phase in a `with` statement, such as "EVAL"; see muster.progress.phase()."""
        return self._training.phase(name)

    def saving(self, completed: int) -> Any:
        """The save of a checkpoint in a `with` statement, which ends when it is complete."""
        return self._training.saving(completed)
