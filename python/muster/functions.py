"""Functions on several ranks: muster.run() on this machine, Client.run() on a fleet."""
import json
import os
import pathlib
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
from typing import IO, Any, Callable, Generic, List, Mapping, Optional, Sequence, Tuple, TypeVar

from muster import _commands, errors
from muster._steps import Executed
from muster._target import Path

T = TypeVar("T")


def run(function: Callable[..., T], args: Sequence[Any] = (), kwargs: Optional[Mapping[str, Any]] = None, *, ranks: int = 1,
        gpus_per_rank: Optional[int] = None, env: Optional[Mapping[str, str]] = None, name: Optional[str] = None, restarts: int = 0,
        hang_after: Optional[int] = None, quiet: bool = False) -> List[T]:
    """Calls a function on `ranks` processes of this machine, as `muster run` starts them, and
    returns their results in the order of ranks.

        def train(steps):
            import torch.distributed as dist
            dist.init_process_group("gloo")                  # RANK, WORLD_SIZE, … are set
            return dist.get_rank()

        assert muster.run(train, (100,), ranks=8) == list(range(8))

    The function, its arguments and results are pickled, with cloudpickle if it is installed: only
    then can a function be a lambda, local, or of the main module, as in a notebook. `restarts`: how
    often all ranks start again after a fault; the function then finds its own checkpoint. `quiet`:
    the ranks' output is not written to standard error. Raises RunFailed with the sentence of the
    incident, and the function's own exception as its cause.
    """
    calls: Calls[T] = Calls(function, args, kwargs or {}, tempfile.gettempdir())
    options = dict(ranks=ranks, gpus_per_rank=gpus_per_rank, name=name or calls.name, output=calls.folder / "job", restarts=restarts,
                   hang_after=hang_after, stdin="none", json=True)
    job = _commands.JobWords(command=calls.command(None), options=options, env=env or {})
    try:
        exit_code, output, messages = _follow([_commands.muster_program(), "run", *job.words()], _commands.environment(job.env), quiet)
    except BaseException:
        calls.remove()
        raise
    ended = json.loads(output) if output else {}
    if not ended:
        calls.remove()
        _commands.result_of(Executed(exit_code or 1, "", messages))
    incident = ended["incident"]
    return calls.results(exit_code, incident["sentence"] if incident else ended["reason"], ranks)


def _follow(words: Sequence[str], env: Mapping[str, str], quiet: bool) -> Tuple[int, str, str]:
    """Runs a command whose standard error is shown while it runs. Returns its exit code, its
    standard output and the end of its standard error. An interrupt ends the command first.
    """
    messages: List[str] = []
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
        # In its own session, so that a terminal's Ctrl-C reaches it once, from here.
        process = subprocess.Popen(words, env=dict(env), stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.PIPE, text=True,
                                   encoding="utf-8", errors="replace", start_new_session=True)
        assert process.stderr is not None
        try:
            _show(process.stderr, messages, quiet)
        except BaseException:
            process.send_signal(signal.SIGINT)
            _show(process.stderr, messages, quiet)
            process.wait()
            raise
        exit_code = process.wait()
        output.seek(0)
        return exit_code, output.read(), "".join(messages)


def _show(lines: IO[str], messages: List[str], quiet: bool) -> None:
    for line in lines:
        messages.append(line)
        del messages[:-200]
        if not quiet:
            sys.stderr.write(line)


def _pickler() -> Any:
    try:
        import cloudpickle  # type: ignore[import-untyped,unused-ignore]
    except ImportError:
        return pickle
    return cloudpickle


class Calls(Generic[T]):
    """A function in a new folder that ranks share, and their results there.

    `rank.py` is the ranks' program, `call.pickle` has the function, and `RANK.pickle` what the rank
    has returned or raised.
    """

    def __init__(self, function: Callable[..., T], args: Sequence[Any], kwargs: Mapping[str, Any], parent: Path) -> None:
        pickler = _pickler()
        self.name = getattr(function, "__name__", "function").strip("<>")
        if pickler is pickle and getattr(function, "__module__", None) == "__main__":
            raise errors.InvalidArgument(f"function {self.name} is of the main module, which ranks cannot import: install cloudpickle, or move "
                                         "it into a module")
        try:
            data = pickler.dumps((function, tuple(args), dict(kwargs)))
        except Exception as error:
            raise errors.InvalidArgument(f"function {self.name} or its arguments cannot be pickled: {error}") from error
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix=f"muster-{self.name}-", dir=parent)).resolve()
        (self.folder / "call.pickle").write_bytes(data)
        shutil.copyfile(pathlib.Path(__file__).with_name("_rank.py"), self.folder / "rank.py")

    def command(self, python: Optional[Path]) -> List[str]:
        """Returns the program of a rank. Modules are found where this program finds them; another
        interpreter's own modules come first.
        """
        path = {"is_first": python is None, "folders": [os.path.abspath(folder) for folder in sys.path]}
        (self.folder / "path.json").write_text(json.dumps(path))
        return [os.fspath(python) if python else sys.executable, str(self.folder / "rank.py")]

    def remove(self) -> None:
        """Removes the folder."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def results(self, exit_code: int, sentence: str, ranks: int) -> List[T]:
        """Returns the results of all ranks and removes the folder. Raises RunFailed, and leaves the
        logs, if the job has failed.
        """
        found = [self._result(rank) for rank in range(ranks)]
        if exit_code == 0 and all(result is not None and result[0] for result in found):
            self.remove()
            return [result[1] for result in found if result is not None]
        missing = [rank for rank, result in enumerate(found) if result is None]
        if exit_code == 0:
            sentence = f"rank {missing[0]} ended without a result" if missing else sentence
        for rank, result in enumerate(found):
            if result is not None and not result[0]:
                raise errors.RunFailed(f"{sentence}\nrank {rank}:\n{result[2]}", exit_code, rank, str(self.folder)) from result[1]
        raise errors.RunFailed(sentence, exit_code, None, str(self.folder))

    def _result(self, rank: int) -> Any:
        try:
            with open(self.folder / f"{rank}.pickle", "rb") as file:
                return _pickler().load(file)
        except FileNotFoundError:
            return None
        except Exception as error:
            raise errors.RunFailed(f"the result of rank {rank} cannot be unpickled here: {error}", 0, rank, str(self.folder)) from error
