"""Reports of Hugging Face's Trainer.

    from muster.hugging_face import MusterCallback

    trainer = Trainer(model, args, train_dataset=data, callbacks=[MusterCallback()])
    trainer.train(resume_from_checkpoint=newest)
"""
from typing import Any

from transformers import TrainerCallback

from muster import _training, progress
from muster.torch import Agreement


class MusterCallback(TrainerCallback):  # type: ignore[misc,unused-ignore]
    """Reports step, phase and loss, saves when `muster checkpoint` requests it (`saves`), and saves
    and ends the training at SIGTERM (`leaves`). Without Muster it does nothing.

    The loss is that of the newest log record, so `logging_steps` determines how often it changes.
    """

    def __init__(self, *, saves: bool = True, leaves: bool = True) -> None:
        self._training = _training.Training(saves, leaves)
        self._agree = Agreement()
        self._loss = 0.0
        self._learning_rate = 0.0
        progress.phase("LOAD")

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        progress.total_steps(state.max_steps)
        if state.global_step > 0:
            progress.checkpoint(state.global_step)
        progress.phase("DATA")

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        progress.phase("STEP")

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        self._training.step(state.global_step, self._loss, learning_rate=self._learning_rate)
        save, leave = self._training.requests(self._agree)
        if save:
            control.should_save = True
        if leave:
            control.should_training_stop = True
        self._enter_pause(control)
        return control

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._enter_pause(control)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        self._loss = float((logs or {}).get("loss", self._loss))
        self._learning_rate = float((logs or {}).get("learning_rate", self._learning_rate))

    def on_prediction_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        progress.phase("EVAL")

    def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        progress.phase("CHECKPOINT_SAVE" if control.should_save else "DATA")

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        progress.checkpoint(state.global_step)
        progress.phase("DATA")

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        progress.phase("SHUTDOWN")

    @staticmethod
    def _enter_pause(control: Any) -> None:
        """Enters the phase of what the Trainer does after a step: it evaluates before it saves."""
        if control.should_evaluate:
            progress.phase("EVAL")
        elif control.should_save:
            progress.phase("CHECKPOINT_SAVE")
