"""Reports of PyTorch programs.

    import muster.torch

    training = muster.torch.Training(total_steps=1000)       # after init_process_group()
    model = training.watch(DistributedDataParallel(model))   # reports its all-reduces
    for n in range(first, 1000):
        ...
        save, leave = training.step(n + 1, loss=loss.item())
        if save:
            with training.saving(n + 1):
                torch.save(…)
        if leave:
            break
"""
from typing import Any, Sequence, Tuple

import torch
import torch.distributed as dist

from muster import _training, progress


def _is_distributed() -> bool:
    return bool(dist.is_available() and dist.is_initialized())


class Agreement:
    """Agreement of the ranks of torch.distributed, on a Gloo group of its own, so that it does not
    wait for a GPU. Its time counts as waiting for other ranks, by which slow ranks are found.
    """

    def __init__(self) -> None:
        self._group: Any = None
        self._reported = progress.Group(None)

    def __call__(self, flags: Sequence[bool]) -> Sequence[bool]:
        if not _is_distributed() or dist.get_world_size() == 1:
            return flags
        if self._group is None:
            self._group = dist.new_group(backend="gloo")
            self._reported = progress.group("requests", dist.get_world_size())
        values = torch.tensor(flags, dtype=torch.uint8)
        with self._reported.collective("all-reduce", "requests", len(flags)):
            dist.all_reduce(values, op=dist.ReduceOp.MAX, group=self._group)
        return [bool(value) for value in values.tolist()]


class Training:
    """The reports of one rank; without Muster they do nothing.

    `saves`: the loop saves a checkpoint when step() requests it, so `muster checkpoint` works.
    `leaves`: at SIGTERM, step() requests to save and leave; the program must then end with exit
    code 0. For both, step() exchanges a message with the other ranks. Create it on the main thread.
    """

    def __init__(self, total_steps: int = -1, *, saves: bool = True, leaves: bool = True) -> None:
        self._training = _training.Training(saves, leaves)
        self._agree = Agreement()
        if total_steps >= 0:
            progress.total_steps(total_steps)
        progress.phase("LOAD")

    def watch(self, model: Any, name: str = "ddp") -> Any:
        """Reports the all-reduces of a DistributedDataParallel, and returns it. Incidents then name
        the collective in which the others wait. Replaces the model's communication hook.
        """
        if self._training.is_reported:
            model.register_comm_hook(_Buckets(name, model.process_group), _reduce)
        return model

    def step(self, completed: int, loss: float = 0.0, *, tokens: int = 0, learning_rate: float = 0.0, grad_norm: float = 0.0) -> Tuple[bool, bool]:
        """Reports the number of completed steps. Returns whether all ranks save now, and whether
        they leave after that.
        """
        self._training.step(completed, loss, tokens, learning_rate, grad_norm)
        return self._training.requests(self._agree)

    def phase(self, name: str) -> Any:
        """A phase in a `with` statement, such as "EVAL"; see muster.progress.phase()."""
        return self._training.phase(name)

    def saving(self, completed: int) -> Any:
        """The save of a checkpoint in a `with` statement, which ends when it is complete."""
        return self._training.saving(completed)


class _Buckets:
    """The state of the communication hook of one model."""

    def __init__(self, name: str, group: Any) -> None:
        self.process_group = group
        self.size = dist.get_world_size(group)
        self.reported = progress.group(name, self.size)


def _reduce(state: _Buckets, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Averages a bucket over the ranks, as DistributedDataParallel does without a hook."""
    values = bucket.buffer().div_(state.size)
    size = values.numel() * values.element_size()
    number = state.reported.enqueued("all-reduce", f"bucket {bucket.index()}", size)
    state.reported.started(number)

    def end(future: Any) -> Any:
        state.reported.done(number)
        return future.value()[0]

    return dist.all_reduce(values, group=state.process_group, async_op=True).get_future().then(end)
