"""Muster from Python: a client of its coordinator, functions on many ranks, and progress reports.

    import muster

    client = muster.Client()                      # MUSTER_COORDINATOR, as the command `muster`
    keys = {"model_name": "llama2-tiny", "run_name": "first", "steps": 100}
    job = client.submit("base.yml", keys, ranks=4)
    for job in client.watch(job.id):
        print(job.state, job.reason)

- `Client` and `AsyncClient`: jobs, logs and incidents of a coordinator.
- `run`: calls a function on several ranks of this machine and returns their results.
- `muster.progress`: a program's own steps, phases and collectives.
- `muster.hugging_face`, `muster.lightning`, `muster.torch`, `muster.jax`: the same for programs of
  these frameworks, in a few lines.

gRPC is loaded with the first use of a client, so that ranks which only report their progress start
quickly.
"""
import importlib
from typing import TYPE_CHECKING, Any

from muster.errors import (Aborted, AlreadyExists, BadInput, CommandFailed, DeadlineExceeded, FailedPrecondition, InvalidArgument, JobFailed,
                           MusterError, NotFound, PermissionDenied, ResourceExhausted, RunFailed, Unauthenticated, Unavailable)
from muster.types import (Attempt, Checkpoint, Evidence, Exclusion, Fault, Gpu, Incident, IncidentNote, Job, JobSpec, JobState, LogLine,
                          Loss, Moment, Placement, RankStatus, Recovery, Revision, Sample, Suspect, Worker)

if TYPE_CHECKING:
    from muster.aio import AsyncClient
    from muster.client import Client
    from muster.functions import run

__all__ = [
    "Aborted", "AlreadyExists", "AsyncClient", "Attempt", "BadInput", "Checkpoint", "Client", "CommandFailed", "DeadlineExceeded",
    "Evidence", "Exclusion", "FailedPrecondition", "Fault", "Gpu", "Incident", "IncidentNote", "InvalidArgument", "Job", "JobFailed",
    "JobSpec", "JobState", "LogLine", "Loss", "Moment", "MusterError", "NotFound", "PermissionDenied", "Placement", "RankStatus",
    "Recovery", "ResourceExhausted", "Revision", "RunFailed", "Sample", "Suspect", "Unauthenticated", "Unavailable", "Worker", "run",
]

_MODULE_OF = {"AsyncClient": "muster.aio", "Client": "muster.client", "run": "muster.functions"}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'muster' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULE_OF[name]), name)
