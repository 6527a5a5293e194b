"""The fault matrix: the faults of a running job, and the expected verdict of each.

A case's `inject(fleet, job, pick)` causes the fault and returns a Truth. `pick`, which is seeded,
chooses rank and node.
"""
import contextlib
import dataclasses
import os
import pathlib
import signal
import subprocess
import threading
import time

from faults.fleet import NotHere
from faults.orders import wait_until


@dataclasses.dataclass
class Truth:
    at: float                          # seconds since the epoch when it happened
    ranks: tuple = ()                  # each of them is a correct suspect
    node: str = ""                     # or a correct suspect node
    kinds: tuple = ()                  # accepted kinds of the incident
    alarm: bool = True                 # False: harmless, so that any incident is a false alarm
    continues: bool = False                # the job continues and is not stopped
    undo: object = None                # called afterwards


@dataclasses.dataclass
class Case:
    name: str
    inject: object
    group: str  # "dead", "hang", "slow", "disk", "harmless": which target counts
    settings: tuple = ()               # settings of the job besides the usual ones
    breaks_itself: bool = False        # the job ends before its step time is known


HANG, DIED, LOST, SLOW, MEMORY, DISK = "hang", "rank died", "worker lost", "slow rank", "out of memory", "disk full"
NOT_FINITE = "not finite"
JUMP_SECONDS = 3600


def node_of(fleet, rank):
    return rank // fleet.slots


def ordered(kind, kinds=(HANG,), continues=False, **more):
    """A fault that a rank causes itself, on order."""
    def inject(fleet, job, pick):
        rank = pick.rank()
        return Truth(fleet.orders.give({"rank": rank, "kind": kind, **more}), (rank,), kinds=kinds, continues=continues)
    return inject


def signalled(signo, kinds):
    def inject(fleet, job, pick):
        rank = pick.rank()
        pid = fleet.pid_of(job, rank)
        at = time.time()
        os.kill(pid, signo)
        return Truth(at, (rank,), kinds=kinds, undo=lambda: continue_process(pid))
    return inject


def continue_process(pid):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


def node_stopped(fleet, job, pick):
    """Affects all ranks of a node, and its worker."""
    node = pick.node()
    pids = [fleet.workers[node].pid] + [fleet.pid_of(job, node * fleet.slots + i) for i in range(fleet.slots)]
    at = time.time()
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    ranks = tuple(node * fleet.slots + i for i in range(fleet.slots))
    return Truth(at, ranks, f"node{node}", (LOST, HANG), undo=lambda: [continue_process(pid) for pid in pids])


def worker_killed(fleet, job, pick):
    node = pick.node()
    at = time.time()
    fleet.workers[node].kill()
    fleet.workers[node].wait()
    return Truth(at, tuple(node * fleet.slots + i for i in range(fleet.slots)), f"node{node}", (LOST, DIED))


def worker_paused(seconds):
    """Affects only the worker: its ranks continue."""
    def inject(fleet, job, pick):
        worker = fleet.workers[pick.node()]
        at = time.time()
        worker.send_signal(signal.SIGSTOP)
        threading.Timer(seconds, worker.send_signal, [signal.SIGCONT]).start()
        return Truth(at, alarm=False, undo=lambda: worker.send_signal(signal.SIGCONT))
    return inject


def partitioned(fleet, job, pick):
    node = pick.node()
    at = time.time()
    fleet.network.connect(node, False)
    return Truth(at, tuple(node * fleet.slots + i for i in range(fleet.slots)), f"node{node}", (LOST, HANG),
                 undo=lambda: fleet.network.connect(node, True))


def network_blip(fleet, job, pick):
    node = pick.node()
    at = time.time()
    fleet.network.connect(node, False)
    time.sleep(0.2)
    fleet.network.connect(node, True)
    return Truth(at, alarm=False)


def paused_briefly(fleet, job, pick):
    """A short pause, as by an attached debugger or a swapping machine: below any threshold."""
    pid = fleet.pid_of(job, pick.rank())
    at = time.time()
    os.kill(pid, signal.SIGSTOP)
    time.sleep(0.5)
    os.kill(pid, signal.SIGCONT)
    return Truth(at, alarm=False)


def coordinator_restarted(fleet, job, pick):
    at = time.time()
    port = fleet.port
    fleet.coordinator.kill()
    fleet.coordinator.wait()
    fleet.start_coordinator(port)
    return Truth(at, alarm=False)


def two_stopped(fleet, job, pick):
    first, second = pick.two_ranks()
    pids = [fleet.pid_of(job, rank) for rank in (first, second)]
    at = time.time()
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    return Truth(at, (first, second), kinds=(HANG,), undo=lambda: [continue_process(pid) for pid in pids])


def two_kinds(fleet, job, pick):
    """One rank skips a collective and another one waits for a lock."""
    first, second = pick.two_ranks()
    at = fleet.orders.give({"rank": first, "kind": "skip_collective"}, {"rank": second, "kind": "lock"})
    return Truth(at, (first, second), kinds=(HANG,))


def stopped_and_killed(fleet, job, pick):
    first, second = pick.two_ranks()
    stopped, killed = fleet.pid_of(job, first), fleet.pid_of(job, second)
    at = time.time()
    os.kill(stopped, signal.SIGSTOP)
    os.kill(killed, signal.SIGKILL)
    return Truth(at, (first, second), kinds=(HANG, DIED), undo=lambda: continue_process(stopped))


def freeze_rank(fleet, rank):
    """fsync on a frozen file system: it lasts until the undo."""
    if fleet.disk_problem:
        raise NotHere(fleet.disk_problem)
    subprocess.run(["fsfreeze", "--freeze", fleet.disk], check=True)

    def undo():
        subprocess.run(["fsfreeze", "--unfreeze", fleet.disk], check=False)
    try:
        at = fleet.orders.give({"rank": rank, "kind": "fsync", "path": str(fleet.disk / "file")})
    except BaseException:
        undo()
        raise
    return Truth(at, (rank,), kinds=(HANG,), undo=undo)


def frozen_file_system(fleet, job, pick):
    return freeze_rank(fleet, pick.rank())


def memory_limit(fleet, job, pick):
    """A rank uses up its node's memory, and the kernel kills it."""
    rank = pick.rank()
    memory = fleet.memory[node_of(fleet, rank)]
    memory.allow(256 << 20)
    at = fleet.orders.give({"rank": rank, "kind": "out_of_memory"})
    return Truth(at, (rank,), kinds=(MEMORY,), undo=lambda: memory.allow(None))


def full_disk(fleet, job, pick):
    """A checkpoint's file system fills up: rank 0's node is not more to blame than the others."""
    mount = fleet.out
    if fleet.out_problem:
        raise NotHere(fleet.out_problem)
    at = time.time()
    filler = mount / "filler"
    subprocess.run(["fallocate", "-l", str(free_bytes(mount)), filler], check=True)
    return Truth(at, tuple(range(fleet.slots * len(fleet.workers))), kinds=(DISK,), undo=filler.unlink)


def clock_jumps(seconds, of_node):
    """Moves the wall clock of a node, or of the coordinator: no deadline depends on it."""
    def inject(fleet, job, pick):
        name = f"node{pick.node()}" if of_node else "coordinator"
        at = time.time()
        fleet.clocks.move(name, seconds)
        return Truth(at, alarm=False, undo=lambda: fleet.clocks.move(name, 0))
    return inject


def not_finite(fleet, job, pick):
    """Diverges by its learning rate: all ranks are equally to blame. The time of the first exit
    counts.
    """
    def started():
        ranks = fleet.job(job).get("ranks", [])
        return [rank["pid"] for rank in ranks if rank.get("pid", 0) > 0]
    pids = wait_until(started, 30, "its processes")
    while all(is_alive(pid) for pid in pids):
        time.sleep(0.005)
    return Truth(time.time(), tuple(range(pick.ranks)), kinds=(NOT_FINITE,))


def is_alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def free_bytes(folder):
    status = os.statvfs(folder)
    return status.f_bavail * status.f_bsize


CASES = [
    Case("SIGKILL", signalled(signal.SIGKILL, (DIED, MEMORY)), "dead"),
    Case("SIGABRT", signalled(signal.SIGABRT, (DIED,)), "dead"),
    Case("SIGBUS", signalled(signal.SIGBUS, (DIED,)), "dead"),
    Case("SIGILL", signalled(signal.SIGILL, (DIED,)), "dead"),
    Case("SIGFPE", signalled(signal.SIGFPE, (DIED,)), "dead"),
    Case("SIGQUIT", signalled(signal.SIGQUIT, (DIED,)), "dead"),
    Case("segmentation fault", ordered("segv", (DIED,)), "dead"),
    Case("abort()", ordered("abort", (DIED,)), "dead"),
    Case("exit code 1", ordered("exit_1", (DIED,)), "dead"),
    Case("exit code 0 too early", ordered("exit_0", (DIED, HANG)), "dead"),
    Case("std::bad_alloc", ordered("bad_alloc", (DIED, MEMORY)), "dead"),
    Case("killed for memory", memory_limit, "dead"),
    Case("loss not finite", not_finite, "dead", ("learning_rate=1e30",), breaks_itself=True),
    Case("worker killed", worker_killed, "dead"),
    Case("node cut off", partitioned, "dead"),
    Case("disk full", full_disk, "disk", ("checkpoint_period=5",)),
    Case("SIGSTOP", signalled(signal.SIGSTOP, (HANG,)), "hang"),
    Case("collective left out", ordered("skip_collective"), "hang"),
    Case("another collective", ordered("other_collective", (HANG, DIED)), "hang"),
    Case("sleeps in its step", ordered("sleep"), "hang"),
    Case("sleeps in the data loader", ordered("sleep_in_data"), "hang"),
    Case("waits for a lock", ordered("lock"), "hang"),
    Case("busy loop", ordered("busy_loop"), "hang"),
    Case("uninterruptible sleep", ordered("uninterruptible"), "hang"),
    Case("fsync on a frozen file system", frozen_file_system, "hang"),
    Case("main thread is a zombie", ordered("zombie"), "hang"),
    Case("node stopped", node_stopped, "hang"),
    Case("two ranks stopped", two_stopped, "hang"),
    Case("collective left out, and a lock", two_kinds, "hang"),
    Case("one stopped, one killed", stopped_and_killed, "dead"),
    Case("slow by 1.5", ordered("slow", (SLOW,), continues=True, factor=1.5), "slow"),
    Case("slow by 3", ordered("slow", (SLOW,), continues=True, factor=3), "slow"),
    Case("worker paused for 1.5 s", worker_paused(1.5), "harmless"),
    Case("network away for 0.2 s", network_blip, "harmless"),
    Case("rank paused for 0.5 s", paused_briefly, "harmless"),
    Case("coordinator restarted", coordinator_restarted, "harmless"),
    Case("a node's clock jumps ahead", clock_jumps(JUMP_SECONDS, of_node=True), "harmless"),
    Case("the coordinator's clock jumps back", clock_jumps(-JUMP_SECONDS, of_node=False), "harmless"),
]
