"""Reports of Lightning's Trainer.

    from muster.lightning import MusterCallback

    Trainer(callbacks=[MusterCallback(), ModelCheckpoint(dirpath="checkpoints")]).fit(model)
"""
from typing import Any, Sequence

try:
    from lightning.pytorch.callbacks import Callback, Checkpoint
except ImportError:
    from pytorch_lightning.callbacks import Callback, Checkpoint

from muster import _training, progress


class MusterCallback(Callback):  # type: ignore[misc,unused-ignore]
    """Reports step, phase and loss, saves when `muster checkpoint` requests it (`saves`), and saves
    and ends the training at SIGTERM (`leaves`). Without Muster it does nothing.

    `path`: where a requested checkpoint is stored; "{step}" is replaced. By default it is beside
    those of the Trainer's ModelCheckpoint, else in `default_root_dir`.
    """

    def __init__(self, path: str = "", *, saves: bool = True, leaves: bool = True) -> None:
        super().__init__()
        self._path = path
        self._reported = -1
        self._saving = -1
        self._leaves = False
        # Before Lightning starts the processes of data loaders, which inherit blocked signals.
        self._training = _training.Training(saves, leaves)
        progress.phase("LOAD")

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self._training.handle_sigterm_again()  # Lightning's own handler does not save
        if trainer.max_steps > 0:
            progress.total_steps(trainer.max_steps)
        if trainer.global_step > 0:
            progress.checkpoint(trainer.global_step)
        progress.phase("DATA")

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        self._report_saved()
        progress.phase("STEP")

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        # Several batches are one step if gradients are accumulated.
        if trainer.global_step == self._reported:
            return
        self._reported = trainer.global_step
        loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
        if loss is not None and trainer.lightning_module.automatic_optimization:
            loss = loss * trainer.accumulate_grad_batches  # Lightning has divided it
        self._training.step(trainer.global_step, loss)

        def agree(flags: Sequence[bool]) -> Sequence[bool]:
            return [trainer.strategy.reduce_boolean_decision(flag, all=False) for flag in flags]

        save, leave = self._training.requests(agree)
        if save and not self._leaves:
            with self._training.saving(trainer.global_step):
                trainer.save_checkpoint(self._path_of(trainer))
        if leave:
            self._leaves = True
            trainer.should_stop = True
            # Lightning would first train for these minimums, and validate.
            trainer.fit_loop.min_epochs = trainer.fit_loop.epoch_loop.min_steps = None
            trainer.limit_val_batches = 0

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        progress.phase("EVAL")

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        progress.phase("DATA")

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: Any) -> None:
        self._saving = trainer.global_step
        progress.phase("CHECKPOINT_SAVE")

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._report_saved()
        progress.phase("SHUTDOWN")

    def _report_saved(self) -> None:
        """Reports the checkpoint that has begun since the last batch: by now it is complete."""
        if self._saving >= 0:
            progress.checkpoint(self._saving)
            self._saving = -1

    def _path_of(self, trainer: Any) -> str:
        if self._path:
            return self._path.replace("{step}", str(trainer.global_step))
        folders = [callback.dirpath for callback in trainer.callbacks if isinstance(callback, Checkpoint) and getattr(callback, "dirpath", None)]
        return f"{folders[0] if folders else trainer.default_root_dir}/muster-step={trainer.global_step}.ckpt"
