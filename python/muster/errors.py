"""Errors of the client. Their texts are those of the command `muster`."""
from typing import TYPE_CHECKING, Optional

if TYPE_CHECKING:
    from muster.types import Job


class MusterError(Exception):
    """An error of a call; `str(error)` is a sentence for people."""


class BadInput(MusterError):
    """The request cannot succeed as it is; the command's exit code is 2."""


class InvalidArgument(BadInput):
    """A field has a value that is not allowed; the text names both and the allowed form."""


class NotFound(BadInput):
    """There is no such job, incident or worker at the coordinator, or no such file."""


class AlreadyExists(BadInput):
    """There is already such an object."""


class FailedPrecondition(BadInput):
    """The job's state does not permit the request."""


class PermissionDenied(BadInput):
    """The role of the client's token does not permit the request."""


class ResourceExhausted(BadInput):
    """A queue of the coordinator is full, or a message is larger than its limit."""


class Unauthenticated(MusterError):
    """The coordinator does not accept the client's token."""


class Unavailable(MusterError):
    """No coordinator answers at the address, after the repetitions that a call makes."""


class DeadlineExceeded(MusterError):
    """The coordinator did not answer in time."""


class Aborted(MusterError):
    """The request was valid, and something else has overtaken it; repeat it."""


class CommandFailed(MusterError):
    """The command `muster` failed with another exit code than 2, or is not there."""


class JobFailed(MusterError):
    """A job did not succeed. The text is the sentence of its newest incident, or the reason of its
    state.

    `job`: the job at its end.
    """

    def __init__(self, text: str, job: "Job") -> None:
        super().__init__(text)
        self.job = job


class RunFailed(MusterError):
    """A function did not succeed on all ranks. `__cause__` is the exception of the first rank that
    raised one, if there is one.

    `exit_code`: of the job. `rank`: the rank that raised `__cause__`; None: none did.
    `folder`: the job's logs and incidents, if they were kept.
    """

    def __init__(self, text: str, exit_code: int, rank: Optional[int] = None, folder: Optional[str] = None) -> None:
        super().__init__(text)
        self.exit_code, self.rank, self.folder = exit_code, rank, folder
