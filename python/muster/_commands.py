"""The command `muster`, which alone resolves configs: `submit` and `update` call it.

A job's config is the result of presets, inherited files, dialects of other projects, and checks of
data, checkpoints and memory. A second implementation in Python would sooner or later resolve a key
differently; so the client passes keys to the command and reads its JSON.
"""
import dataclasses
import json
import os
import re
import shutil
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from muster import errors
from muster._calls import LOG
from muster._programs import bundled_program
from muster._steps import Execute, Executed, Flow
from muster._target import VARIABLES, Target

BAD_INPUT = 2
# The command reads these itself, so they reach the ranks by its command line. The others are passed
# in its environment, where other users of the machine do not see them.
_OWN_VARIABLE = re.compile(r"PATH|HOME|TMPDIR|TERM|NO_COLOR|LANG|(LC_|LD_|MUSTER_|XDG_|SLURM_|GRPC_|OMP_|MALLOC_).*")


def muster_program() -> str:
    """Returns the path of the command `muster`: the wheel's, else that of the PATH."""
    found = bundled_program("muster") or shutil.which("muster")
    if found is None:
        raise errors.CommandFailed("there is no program muster: this wheel is the Python package alone, so put the folder of muster into PATH")
    return found


def setting(key: str, value: Any) -> str:
    """Returns `key=value` as the command reads it: JSON for values that are not texts."""
    return f"{key}={value if isinstance(value, str) else json.dumps(value)}"


@dataclasses.dataclass(frozen=True)
class JobWords:
    """The arguments of a job, as `muster run` and `muster submit` have them. None: the command's
    default.
    """

    config: Optional[str] = None
    keys: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    command: Sequence[str] = ()
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    env: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def words(self) -> List[str]:
        words = [self.config] if self.config is not None else []
        words += [setting(key, value) for key, value in self.keys.items()]
        for name, value in self.options.items():
            flag = "--" + name.replace("_", "-")
            if value is True:
                words.append(flag)
            elif value is not None and value is not False:
                words += [flag, os.fspath(value) if isinstance(value, os.PathLike) else str(value)]
        words += rank_variables(self.env)[0]
        if self.command:
            words += ["--", *map(os.fspath, self.command)]
        return words


def rank_variables(env: Mapping[str, str]) -> Tuple[List[str], Dict[str, str]]:
    """Returns the flags for variables of ranks, and the variables that the command must have."""
    flags: List[str] = []
    own: Dict[str, str] = {}
    for name, value in env.items():
        if _OWN_VARIABLE.fullmatch(name):
            flags += ["--env", f"{name}={value}"]
        else:
            flags += ["--env", name]
            own[name] = value
    return flags, own


def environment(env: Mapping[str, str]) -> Dict[str, str]:
    """Returns the environment of the command: this program's, without the coordinator's address,
    which is on the command line, and with the ranks' variables.
    """
    kept = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    return {**kept, "NO_COLOR": "1", **rank_variables(env)[1]}


def result_of(executed: Executed) -> Any:
    """Returns the command's JSON. Raises its error; reports its warnings to the log."""
    messages = re.split(r"^muster: ", executed.errors, flags=re.M)
    for message in messages:
        if message.startswith("warning: "):
            LOG.warning("%s", message[len("warning: "):].rstrip())
    if executed.exit_code == 0:
        return json.loads(executed.output)
    failed = [message[len("error: "):] for message in messages if message.startswith("error: ")]
    text = (failed[-1] if failed else executed.errors or f"muster ended with exit code {executed.exit_code}").rstrip()
    if executed.exit_code == BAD_INPUT:
        raise errors.InvalidArgument(text)
    if text.startswith("no coordinator answers at "):
        raise errors.Unavailable(text)
    raise errors.CommandFailed(text)


def on_target(target: Target, words: Sequence[str], job: JobWords) -> Flow[Any]:
    """Runs a command for a coordinator and returns its JSON."""
    flags = [*target.flags(), "--json"]
    executed = yield Execute([muster_program(), *words, *flags, *job.words()], environment(job.env))
    return result_of(executed)
