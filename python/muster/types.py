"""The reports of a coordinator, as values without behaviour. Times are in UTC; None: not
reached, or unknown.
"""
import dataclasses
import datetime
import enum
from typing import Any, Mapping, Optional, Tuple

Time = Optional[datetime.datetime]


class JobState(str, enum.Enum):
    """The state of a job."""

    QUEUED = "QUEUED"  # waits for workers
    STARTING = "STARTING"  # placed; ranks are being started
    RUNNING = "RUNNING"  # every rank is up
    SUSPECT = "SUSPECT"  # alive and not progressing; being examined
    DUMPING = "DUMPING"  # stacks of all its ranks are being read
    RESTARTING = "RESTARTING"  # a fault ended the attempt; its ranks are being reaped
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    UNKNOWN = "UNKNOWN"  # a state of a later version

    def __str__(self) -> str:
        return self.value

    @property
    def has_ended(self) -> bool:
        """Whether the job has ended."""
        return self in (JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED)

    @property
    def runs(self) -> bool:
        """Whether every rank of the job is up."""
        return self in (JobState.RUNNING, JobState.SUSPECT, JobState.DUMPING)


@dataclasses.dataclass(frozen=True)
class JobSpec:
    """A job as it was submitted."""

    name: str
    user: str
    owner: str  # the person whose token submitted the job; "": the token names none
    team: str  # its members may do what the owner may; "": none
    priority: int
    nodes: int
    ranks_per_node: int
    gpus_per_rank: int  # -1: a share of the node's; 0: ranks share all GPUs of their node
    restarts_max: int  # for each cause of a fault
    output_directory: str
    steps: int  # 0: not given
    spares: int
    min_nodes: int  # 0: only `nodes`
    command: Tuple[str, ...]  # empty: Muster's trainer
    working_directory: str
    hang_after_seconds: int  # 0: never
    # The trainer's resolved config; empty for a program, and in lists of jobs.
    train_config: Mapping[str, Any] = dataclasses.field(repr=False)
    # The user's settings of the config; see train_config.
    settings: Mapping[str, Any] = dataclasses.field(repr=False)
    # Variables added to every rank; their values are often secrets.
    environment: Mapping[str, str] = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True)
class Placement:
    """The place of a rank."""

    rank: int
    worker: str
    local_rank: int


@dataclasses.dataclass(frozen=True)
class RankStatus:
    """A rank's figures in its worker's newest report."""

    rank: int
    worker: str
    pid: int
    phase: str
    step: int  # steps completed; -1 before the first
    loss: float
    grad_norm: float
    step_seconds: float
    tokens_per_second: float
    mfu: float  # 0: the device's peak is unknown
    last_progress_age_seconds: float
    checkpoint_step: int  # the newest complete checkpoint; below 1: none
    checkpoints_saved: int
    checkpoints_failed: int
    saves_on_request: bool


@dataclasses.dataclass(frozen=True)
class Fault:
    """Why an attempt ended without success."""

    rank: int  # -1: no single rank
    worker: str
    signal: int  # 0: none
    exit_code: int
    last_step: int
    message: str  # one sentence
    time: Time
    kind: str


@dataclasses.dataclass(frozen=True)
class IncidentNote:
    """A job's newest incident; Client.incident() returns the whole."""

    id: int
    sentence: str


@dataclasses.dataclass(frozen=True)
class Revision:
    """A change of a job by an update."""

    revision: int
    change: str
    time: Time
    pending: bool  # no attempt has it yet
    rollback_steps: int  # length of its trial; 0: it is over, or there is none
    undone: bool
    end: str  # its result in one sentence; empty: not known yet


@dataclasses.dataclass(frozen=True)
class Loss:
    """A part of a job's time without progress."""

    cause: str
    what: str
    seconds: float


@dataclasses.dataclass(frozen=True)
class Job:
    """A job of a coordinator."""

    id: int
    spec: JobSpec
    state: JobState
    reason: str  # for the state, in one sentence
    attempt: int
    exit_code: int  # that of `muster run`, once the job has ended
    is_futile: bool  # its faults repeat without progress
    nodes: int  # that of the current attempt; 0: not placed
    rank_count: int  # that of the current attempt
    placement: Tuple[Placement, ...]
    ranks: Tuple[RankStatus, ...]
    faults: Tuple[Fault, ...]  # oldest first, at most 32
    incident: Optional[IncidentNote]
    tokens_per_second: float
    newest_step: int  # -1: none is known
    revision: int
    revisions: Tuple[Revision, ...]
    submitted: Time
    started: Time  # that of the current attempt
    finished: Time
    queued_seconds: float  # before the first start
    wall_seconds: float  # since the first start
    productive_seconds: float
    losses: Tuple[Loss, ...]  # largest first


@dataclasses.dataclass(frozen=True)
class LogLine:
    """A line that a rank wrote, without its end."""

    text: str
    rank: int
    attempt: int
    time: Time  # that of its arrival; only if the output of all ranks was requested


@dataclasses.dataclass(frozen=True)
class Suspect:
    """A rank that evidence blames."""

    rank: int  # -1: no single rank
    worker: str
    axis: str
    collective: str
    source: str
    why: str
    confidence: float  # 0 to 1


@dataclasses.dataclass(frozen=True)
class Evidence:
    """Evidence about a rank, collected without its cooperation."""

    rank: int
    pid: int
    phase: str
    step: int
    progress_age_seconds: float
    process_state: str  # as in /proc/PID/stat; empty: no such process
    wait_channel: str
    last_lines: Tuple[str, ...]
    memory_used: int  # bytes of its control group
    memory_limit: int  # 0: none


@dataclasses.dataclass(frozen=True)
class Moment:
    """An event of an incident."""

    time: Time
    text: str


@dataclasses.dataclass(frozen=True)
class Recovery:
    """The times of a job's recovery from an incident."""

    last_progress: Time
    detected: Time
    decided: Time
    stopped: Time
    started: Time
    loaded: Time
    first_step: Time
    caught_up: Time
    over: bool
    best_step: int  # steps completed at the fault; -1: unknown
    restored_step: int  # -1: unknown


@dataclasses.dataclass(frozen=True)
class Incident:
    """A fault of a job, the ranks to blame, and the action taken."""

    id: int
    job_id: int
    job_name: str
    attempt: int
    kind: str
    is_open: bool
    sentence: str
    diagnosis: str  # the known error in the output and its meaning; empty: none
    action: str
    suspects: Tuple[Suspect, ...]  # likeliest first
    evidence: Tuple[Evidence, ...]  # not in lists
    kernel_messages: Tuple[str, ...]
    moments: Tuple[Moment, ...]  # oldest first
    recovery: Optional[Recovery]


@dataclasses.dataclass(frozen=True)
class Attempt:
    """One start of all ranks of a job."""

    job_id: int
    attempt: int
    started: Time
    up: Time  # every rank was up
    ended: Time
    nodes: int
    ranks: int
    workers: str  # "node[1-3], spare1"
    first_step: int  # from which it resumed; -1: unknown
    last_step: int  # -1: none
    end: str  # why it ended
    incident_id: int  # 0: none
    revision: int


@dataclasses.dataclass(frozen=True)
class Gpu:
    """A GPU of a worker."""

    index: int
    uuid: str
    name: str
    memory_bytes: int


@dataclasses.dataclass(frozen=True)
class Exclusion:
    """Why a node gets no ranks."""

    cause: str
    reason: str
    since: Time
    until: Time  # None: until it is admitted


@dataclasses.dataclass(frozen=True)
class Worker:
    """A worker of the fleet."""

    name: str
    host: str
    version: str
    slots: int
    slots_used: int
    connected: bool
    leaving: bool
    heartbeat_age_seconds: float
    gpus: Tuple[Gpu, ...]
    gpus_used: int
    exclusion: Optional[Exclusion]


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that was requested."""

    job_id: int
    step: int  # -1: it was not waited for
    after_step: int  # the checkpoint has more steps than this
    folder: str  # empty: unknown, as for programs


@dataclasses.dataclass(frozen=True)
class Sample:
    """A value of one series of the coordinator's metrics."""

    name: str
    labels: Mapping[str, str]
    value: float
