"""Faults of a job that must recover, and the expected result: the matrix of detection, and faults
during recovery.
"""
import dataclasses
import os
import signal
import threading
import time

from faults.cases import CASES, freeze_rank
from faults.fleet import ENDED, NotHere
from faults.orders import wait_until

CHECKPOINT_PERIOD = 5
WARM_STEPS = 12
NODES = 4  # nodes of the job; the fleet has one more
DISK_FULL_SECONDS = 6  # then the filling file is removed, as files of other jobs are
LONG = 100  # steps of cases that are detected after seconds and continue
IN_MEMORY = ("enable_emergency_checkpoint=true", "local_checkpoint_period=2")
WITH_A_SPARE = ("spares=1",)
# The parameters are sharded over all nodes: of each node's shard only the next node has a copy.
# Otherwise the first node would have all parameters.
OVER_ALL_NODES = ("dcn_fsdp_parallelism=4", "dcn_data_parallelism=1")


@dataclasses.dataclass
class Disturbance:
    """The fault of a recovery case, and the expected result of the job."""
    at: float
    undo: object = None
    must_fail: str = ""  # expected in the job's last reason, if no attempt can succeed
    must_print: str = ""   # expected line of rank 0 in a later attempt: its starting point


@dataclasses.dataclass
class Recovery:
    name: str
    disturb: object  # disturb(fleet, job, pick) → Expected
    # "rank", "node", "hang", "other": which target counts. "unharmed": the job continues and is not
    # stopped
    group: str
    settings: tuple = ()
    steps: int = 0  # if they differ from the usual ones
    # the job may continue with fewer nodes: the curve is then close, not equal
    smaller: bool = False
    mesh: tuple = ()  # settings in addition to the usual ones


def kill_rank(fleet, job, rank):
    at = time.time()
    os.kill(fleet.pid_of(job, rank), signal.SIGKILL)
    return at


def coordinator_killed_while(state):
    """Kills or stops a rank, and the coordinator as soon as the job is in that state."""
    def disturb(fleet, job, pick):
        rank, undo, at = pick.rank(), None, None
        if state in ("SUSPECT", "DUMPING"):
            pid = fleet.pid_of(job, rank)
            at = time.time()
            os.kill(pid, signal.SIGSTOP)
            undo = lambda: send(pid, signal.SIGCONT)  # noqa: E731
        elif state == "RESTARTING":
            at, undo = held_up_end(fleet, job, pick)
        elif state != "RUNNING":
            at = kill_rank(fleet, job, rank)
        if state == "QUEUED":
            kill_before_its_first_step(fleet, job, pick)  # the second restart has a back-off
        try:
            if not poll_state(fleet, job, state):
                raise NotHere(f"{state} was over too soon to be met")
            victim = fleet.pid_of(job, rank) if state == "RUNNING" else None
            port = fleet.port
            fleet.coordinator.kill()
            fleet.coordinator.wait()
            if victim:  # the worker reports what it has missed
                at = time.time()
                send(victim, signal.SIGKILL)
                time.sleep(0.3)
            fleet.start_coordinator(port)
        except BaseException:
            if undo:
                undo()
            raise
        if state == "RESTARTING":
            undo()
            undo = None
        return Disturbance(at, undo)
    return disturb


def held_up_end(fleet, job, pick):
    """Makes one rank unkillable for a while and kills another one; returns (time, undo)."""
    stuck, killed = pick.two_ranks()
    frozen = freeze_rank(fleet, stuck)
    try:
        time.sleep(0.3)  # until its step has begun
        return kill_rank(fleet, job, killed), frozen.undo
    except BaseException:
        frozen.undo()
        raise


def poll_state(fleet, job, state):
    """Returns whether the job was observed in that state; states of milliseconds may be missed."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        now = fleet.job(job)
        if now["state"] == state:
            return True
        if state != "QUEUED" and now["attempt"] > 1 and now["state"] == "RUNNING":
            return False
    return False


def send(pid, signo):
    try:
        os.kill(pid, signo)
    except ProcessLookupError:
        pass


def torn_checkpoint(fleet, job, pick):
    """Removes a piece of a file of the newest checkpoint, as a crashed file server does: the
    previous checkpoint must be used.
    """
    saved = fleet.out / fleet.job(job)["spec"]["name"] / "checkpoints"
    folders = sorted((path for path in saved.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))
    victim = pick.random.choice(sorted(folders[-1].glob("*.safetensors")))
    os.truncate(victim, victim.stat().st_size // 2)
    return Disturbance(kill_rank(fleet, job, pick.rank()))


def kill_before_its_first_step(fleet, job, pick):
    wait_until(lambda: fleet.job(job)["attempt"] == 2, 30, "attempt 2")
    pids = wait_until(lambda: [r["pid"] for r in fleet.job(job).get("ranks", []) if r.get("pid", 0) > 0], 30, "its processes")
    send(pids[pick.random.randrange(len(pids))], signal.SIGKILL)


def fault_during_recovery(fleet, job, pick):
    """The next attempt loses a rank before its first step."""
    at = kill_rank(fleet, job, pick.rank())
    kill_before_its_first_step(fleet, job, pick)
    return Disturbance(at)


def bad_spare(fleet, job, pick):
    """The node is lost, and so is the node that replaces it."""
    at = time.time()
    fleet.workers[pick.random.randrange(NODES)].kill()
    wait_until(lambda: fleet.job(job)["attempt"] >= 2, 30, "the next attempt")
    fleet.workers[NODES].kill()
    threading.Timer(3, fleet.ensure_workers).start()
    return Disturbance(at)


def node_lost(copies):
    """Kills a node's worker and removes the files in its memory, and those of `copies` other nodes,
    which have copies.
    """
    def disturb(fleet, job, pick):
        node = pick.random.randrange(NODES)
        at = time.time()
        fleet.workers[node].kill()
        for other in range(node, node + 1 + copies):
            fleet.forget_memory_of(other % NODES)
        return Disturbance(at, must_print="restored checkpoint " if copies else "restored local checkpoint ")
    return disturb


def node_lost_without_another(fleet, job, pick):
    """No node is free: the job continues on the remaining ones."""
    fleet.workers[NODES].kill()
    fleet.workers[NODES].wait()
    wait_until(lambda: not fleet.is_registered(NODES), 30, "the end of the free node")
    at = time.time()
    fleet.workers[pick.random.randrange(NODES)].kill()
    return Disturbance(at)


def everything_killed(fleet, job, pick):
    at = time.time()
    port = fleet.port
    fleet.kill_everything()
    fleet.start_coordinator(port)
    fleet.ensure_workers()
    return Disturbance(at)


def repeats_at_one_step(fleet, job, pick):
    """A rank that ends with the same code at the same step in each attempt: unreadable data, a bug.
    """
    step, attempts = CHECKPOINT_PERIOD * 4 + 2, {}
    rank = pick.rank()
    at = None
    while (now := fleet.job(job))["state"] not in ENDED:
        newest = max((r["step"] for r in now.get("ranks", [])), default=-1)
        if now["state"] == "RUNNING" and newest >= step - 1 and now["attempt"] not in attempts:
            attempts[now["attempt"]] = fleet.orders.give({"rank": rank, "kind": "exit_1"})
            at = at or attempts[now["attempt"]]
        time.sleep(0.02)
    return Disturbance(at or time.time(), must_fail="the same fault at step")


ADDED = [Recovery(f"coordinator killed while {state}", coordinator_killed_while(state), "other")
         for state in ("STARTING", "RUNNING", "SUSPECT", "DUMPING", "RESTARTING", "QUEUED")] + [
    Recovery("torn checkpoint", torn_checkpoint, "other"),
    Recovery("fault during recovery", fault_during_recovery, "other"),
    Recovery("spare that is bad, too", bad_spare, "other", WITH_A_SPARE),
    Recovery("node lost, copies in memory", node_lost(copies=0), "node", IN_MEMORY + WITH_A_SPARE, mesh=OVER_ALL_NODES),
    Recovery("node lost with its peer's copy", node_lost(copies=1), "node", IN_MEMORY + WITH_A_SPARE, mesh=OVER_ALL_NODES),
    Recovery("node lost, and no other is free", node_lost_without_another, "other", ("min_nodes=2",), smaller=True),
    Recovery("kill -9 of everything", everything_killed, "other"),
    Recovery("kill -9 of everything, copies in memory", everything_killed, "other", IN_MEMORY),
    Recovery("a fault that repeats at one step", repeats_at_one_step, "must fail"),
]
OF_NODES = ("worker killed", "node cut off", "node stopped")
UNHARMED_GROUPS = ("slow", "harmless")


def of_matrix(case):
    """Runs a case of the detection matrix to the end of the job."""
    def disturb(fleet, job, pick):
        truth = case.inject(fleet, job, pick)
        if case.group == "disk":
            threading.Timer(DISK_FULL_SECONDS, truth.undo).start()
            return Disturbance(truth.at)
        return Disturbance(truth.at, truth.undo)
    if case.group in UNHARMED_GROUPS:
        return Recovery(case.name, disturb, "unharmed", case.settings, steps=LONG)
    if case.group == "disk":
        return Recovery(case.name, disturb, "other", case.settings, steps=LONG)
    if case.name in OF_NODES:
        return Recovery(case.name, disturb, "node", case.settings + WITH_A_SPARE)
    group = "rank" if case.group == "dead" else case.group
    return Recovery(case.name, disturb, group, case.settings)


MATRIX = [of_matrix(case) for case in CASES if not case.breaks_itself]
RECOVERIES = MATRIX + ADDED
