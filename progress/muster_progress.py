"""Reports the step, phase and collectives of one rank of your program to Muster.

They go into the progress page that the worker reads (version 4; layout:
common/progress/progress_page.h). Muster then detects a hang by the program's own step times, and
names its rank and collective. This file is self-contained: put it where Python finds it.

    import muster_progress as progress

    progress.begin()                       # once, early; without Muster every call does nothing
    progress.phase("LOAD")
    for n in range(steps):
        ...
        progress.step(n + 1, loss=loss, tokens=tokens)
        with progress.phase("CHECKPOINT_SAVE"):
            save()

Report long phases: a program is never considered hung until it has reported a phase or completed a
step; from then on Muster expects progress. Evaluation and checkpoints are phases with their own
time budgets.

Thread-safe. After os.fork() the child's calls do nothing.
"""
from __future__ import annotations

import atexit
import collections
import mmap
import os
import signal
import sys
import threading
import time
from typing import Callable, Deque, Dict, Optional, Type

PHASES = ("INIT", "RENDEZVOUS", "LOAD", "COMPILE", "DATA", "STEP", "EVAL", "CHECKPOINT_SAVE", "CHECKPOINT_RESTORE", "SHUTDOWN")
COLLECTIVES = ("none", "all-reduce", "all-gather", "reduce-scatter", "all-to-all", "broadcast", "send", "recv", "barrier",
               "send-recv")

_PAGE_BYTES, _VERSION, _MAGIC = 8192, 4, b"MUSTPAGE"
_GROUPS_MAX, _RING_LENGTH = 32, 32
# Offsets in bytes; see common/progress/progress_page.h.
_AT = dict(version=8, page_bytes=12, sequence=16, job=24, attempt=32, rank=36, local_rank=40, world_size=44, pid=48, phase=52,
           incarnation=56, start=64, phase_start=72, last_progress=88, step=96, loss=104, grad_norm=112, step_seconds=120,
           step_ewma=128, tokens=136, tflops=144, learning_rate=160, checkpoint_step=168, total_steps=176, group_count=184,
           ring_head=188, groups=192, ring=3520, step_counts=5824, steps_seconds=5952, on_request=5992, data_wait=6008, collective_wait=6032)
_GROUP = dict(enqueued=56, started=64, completed=72, bytes=80, kind=88, dtype=92, members=96, id=100)
_GROUP_BYTES, _GROUP_NAME_BYTES = 104, 56
_RECORD = dict(seq=0, group=8, kind=12, bytes=16, enqueued_ns=24, completed_ns=32, name=40)
_RECORD_BYTES, _RECORD_NAME_BYTES = 72, 32
_STEP_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250)
_WORD = (1 << 64) - 1
_TRAINING = (PHASES.index("DATA"), PHASES.index("STEP"))
# Bounds the wait for a writer that died inside the lock; live ones hold it for microseconds.
_LOCK_TRIES_MAX = 1000


class _Page:
    """The mapping. Stores go through typed views, which write each word by one store of its size.

    A sequence lock guards it: `sequence` is odd while a writer is inside. Python has no memory
    fence, and processors other than x86 may show another core a later store first. Acquiring and
    releasing a lock orders the stores before and after it on all processors: that is the purpose of
    the second lock.
    """

    def __init__(self, memory: mmap.mmap) -> None:
        view = memoryview(memory)
        self.bytes = view
        self.u64, self.f64, self.u32 = view.cast("Q"), view.cast("d"), view.cast("I")
        # reentrant: a signal handler may write on the same thread
        self._writers = threading.RLock()
        self._order = threading.Lock()
        self._depth = 0
        self._mine = 0

    def _fence(self) -> None:
        with self._order:
            pass

    def __enter__(self) -> _Page:
        self._writers.acquire()
        self._depth += 1
        if self._depth == 1:
            at = _AT["sequence"] // 8
            tries = 0
            # the NCCL plugin or a C library is inside
            while self.u64[at] % 2 and tries < _LOCK_TRIES_MAX:
                tries += 1
                time.sleep(0)
            self._mine = (self.u64[at] | 1) if self.u64[at] % 2 else self.u64[at] + 1
            self.u64[at] = self._mine
            self._fence()
        return self

    def __exit__(self, *_: object) -> None:
        if self._depth == 1:
            self._fence()
            self.u64[_AT["sequence"] // 8] = (self._mine + 1) & _WORD
        self._depth -= 1
        self._writers.release()

    def set(self, name: str, value: int, base: int = 0, table: Dict[str, int] = _AT) -> None:
        self.u64[(base + table[name]) // 8] = value & _WORD

    def set32(self, name: str, value: int, base: int = 0, table: Dict[str, int] = _AT) -> None:
        self.u32[(base + table[name]) // 4] = value & 0xFFFFFFFF

    def set_double(self, name: str, value: float) -> None:
        self.f64[_AT[name] // 8] = value

    def get(self, name: str, base: int = 0, table: Dict[str, int] = _AT) -> int:
        return self.u64[(base + table[name]) // 8]

    def get32(self, name: str, base: int = 0, table: Dict[str, int] = _AT) -> int:
        return self.u32[(base + table[name]) // 4]

    def get_double(self, name: str) -> float:
        return self.f64[_AT[name] // 8]

    def set_name(self, at: int, size: int, name: str) -> None:
        raw = name.encode(errors="replace")[:size - 1]
        self.bytes[at:at + size] = raw + bytes(size - len(raw))


_page: Optional[_Page] = None
_pid = 0
_step_start_ns = 0


class _Waits(threading.local):
    """A thread's time in collectives since its last step, and the number of its open ones."""

    def __init__(self) -> None:
        self.of_thread: Dict[str, float] = {"seconds": 0.0, "open": 0}


_waits = _Waits()


def _detach() -> None:
    global _page
    _page = None


os.register_at_fork(after_in_child=_detach)


def _variable(name: str) -> int:
    try:
        return int(os.environ.get(name, "0"))
    except ValueError:
        return 0


def _owner(page: _Page) -> int:
    """Returns the pid of the page's owner; 0: it has none yet."""
    if bytes(page.bytes[:8]) != _MAGIC or page.get32("version") != _VERSION:
        return 0
    return page.get32("pid")


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return True


def _write_identity(page: _Page, pid: int) -> None:
    now = time.monotonic_ns()
    page.bytes[_AT["job"]:_PAGE_BYTES] = bytes(_PAGE_BYTES - _AT["job"])
    page.set("job", _variable("MUSTER_JOB"))
    page.set("incarnation", _variable("MUSTER_INCARNATION"))
    for name, value in (("attempt", _variable("MUSTER_ATTEMPT")), ("rank", _variable("RANK")),
                        ("local_rank", _variable("LOCAL_RANK")), ("world_size", _variable("WORLD_SIZE")), ("pid", pid)):
        page.set32(name, value)
    for name in ("start", "phase_start", "last_progress"):
        page.set(name, now)
    for name in ("step", "checkpoint_step", "total_steps"):
        page.set(name, -1)
    page.set32("version", _VERSION)
    page.set32("page_bytes", _PAGE_BYTES)
    page.bytes[:8] = _MAGIC


def begin() -> bool:
    """Opens this rank's page.

    Returns False, after which every later call does nothing, if Muster has not started this process
    or another process of this rank (a launcher's child, a data loader's parent) owns the page.
    Raises OSError if the file cannot be opened.
    """
    global _page, _pid, _step_start_ns
    path = os.environ.get("MUSTER_PROGRESS_PAGE")
    _step_start_ns = time.monotonic_ns()
    if not path:
        return False
    if _page is not None:
        return True
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(fd, 0, _PAGE_BYTES)  # makes a full disk an error here, not a SIGBUS
        page = _Page(mmap.mmap(fd, _PAGE_BYTES))
    finally:
        os.close(fd)
    pid = os.getpid()
    with page:
        owner = _owner(page)
        if owner not in (0, pid) and _is_alive(owner):
            return False
        if owner != pid:
            _write_identity(page, pid)
    _page, _pid = page, pid
    atexit.register(_leave)
    return True


def _leave() -> None:
    """Reports the end of the interpreter, which takes seconds with large libraries. After an
    exception, the phase in which it was raised remains.
    """
    if not hasattr(sys, "last_type"):
        phase("SHUTDOWN")


def _enter(page: _Page, phase: int, now: int) -> None:
    global _step_start_ns
    before = page.get32("phase")
    if before != phase:
        page.set32("phase", phase)
        page.set("phase_start", now)
        # a pause does not count as part of the next step
        if before not in _TRAINING and phase in _TRAINING:
            _step_start_ns = now
    page.set("last_progress", now)


class _PhaseScope:
    """Context of `with phase(…)`: restores the previous phase at its end."""

    def __init__(self, before: Optional[int]) -> None:
        self._before = before

    def __enter__(self) -> _PhaseScope:
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            phase(PHASES[self._before])


def phase(name: str) -> _PhaseScope:
    """Enters one of PHASES; in a `with` statement, until its end."""
    if name not in PHASES:
        raise ValueError(f"phase {name!r}: must be one of {', '.join(PHASES)}")
    page = _page
    if page is None:
        return _PhaseScope(None)
    with page:
        before = page.get32("phase")
        _enter(page, PHASES.index(name), time.monotonic_ns())
    return _PhaseScope(before if before < len(PHASES) else None)


def _is_plausible(seconds: float) -> float:
    return seconds if 0 < seconds < 1e12 else 0.0


def step(completed: int, loss: float = 0.0, tokens: int = 0, grad_norm: float = 0.0, seconds: float = 0.0,
         data_wait_seconds: float = 0.0, collective_wait_seconds: float = 0.0, tflops_per_device: float = 0.0,
         learning_rate: float = 0.0) -> None:
    """Reports the number of steps that the job has completed.

    `seconds`: duration of the last one; 0: since the previous step, or since the end of a pause.
    `tokens`: of this rank in this step. `collective_wait_seconds`: the part of the step in which
    this rank waited for others; 0: the time of this thread within `with group.collective(…)`, which
    must return when the collective is complete. The rank that waits least slows the others down. In
    a phase other than DATA or STEP, also enters STEP.
    """
    global _step_start_ns
    page = _page
    waits = _waits.of_thread
    measured, waits["seconds"] = waits["seconds"], 0.0
    if page is None:
        return
    now = time.monotonic_ns()
    with page:
        took = _is_plausible(float(seconds)) or (now - _step_start_ns) / 1e9
        _step_start_ns = now
        if page.get32("phase") not in _TRAINING:
            _enter(page, PHASES.index("STEP"), now)
            _step_start_ns = now
        ewma = page.get_double("step_ewma")
        page.set_double("step_ewma", took if ewma == 0 else ewma + 0.1 * (took - ewma))
        page.set("step", int(completed))
        page.set_double("loss", float(loss))
        page.set_double("grad_norm", float(grad_norm))
        page.set_double("step_seconds", took)
        bucket = _AT["step_counts"] // 8 + sum(bound < took for bound in _STEP_BOUNDS)
        page.u64[bucket] += 1
        page.set_double("steps_seconds", page.get_double("steps_seconds") + took)
        page.set_double("data_wait", page.get_double("data_wait") + _is_plausible(float(data_wait_seconds)))
        waited = _is_plausible(float(collective_wait_seconds)) or min(measured, took)
        page.set_double("collective_wait", page.get_double("collective_wait") + waited)
        page.set("tokens", page.get("tokens") + int(tokens))
        page.set_double("tflops", float(tflops_per_device))
        page.set_double("learning_rate", float(learning_rate))
        page.set("last_progress", now)


def total_steps(steps: int) -> None:
    """Reports the job's total number of steps, for display."""
    if _page is not None:
        with _page as page:
            page.set("total_steps", int(steps))


def checkpoint(completed: int) -> None:
    """Reports the step of the newest complete checkpoint."""
    if _page is not None:
        with _page as page:
            page.set("checkpoint_step", int(completed))


# An entry per request: appending needs no lock, which the handler of a signal must not wait for.
_save_requests: Deque[None] = collections.deque()


def receive_signal(number: int, note: Callable[[], None]) -> None:
    """Calls `note` when the signal arrives, on the main thread or on one of its own. `note` must
    not wait for a lock. Processes that are started later, such as those of data loaders, have the
    signal blocked: Muster signals the rank's whole process group, and they must live on until the
    rank has saved. Call it on the main thread.
    """
    signal.signal(number, lambda *_: note())
    signal.pthread_sigmask(signal.SIG_BLOCK, {number})

    def receive() -> None:
        while True:
            signal.sigwait({number})
            note()

    threading.Thread(target=receive, name=f"muster-signal-{int(number)}", daemon=True).start()


def offer_checkpoints() -> bool:
    """Declares that this program saves a checkpoint when `muster checkpoint` requests one; see
    save_requested(). Call it on the main thread, after begin(), on every rank.

    The request is SIGUSR2 to rank 0's process group. This process handles the signal; processes
    that it starts later have it blocked. Returns False, and offers nothing, if there is no page, or
    if another process leads the group, such as a shell that has started this one without `exec`:
    the signal would end it.
    """
    if _page is None or os.getpgrp() != os.getpid():
        return False
    if _page.get32("on_request"):
        return True
    receive_signal(signal.SIGUSR2, lambda: _save_requests.append(None))
    with _page as page:
        page.set32("on_request", 1)
    return True


def save_requested() -> bool:
    """Returns whether a checkpoint was requested since the last call. Only rank 0 receives
    requests: it must pass them to the other ranks. Report the saved step with checkpoint().
    """
    requests = len(_save_requests)
    for _ in range(requests):
        _save_requests.pop()
    return requests > 0


class Group:
    """A process group of this rank. Its collectives are numbered in the order in which they are
    enqueued.
    """

    def __init__(self, index: Optional[int]) -> None:
        self._at = None if index is None else _AT["groups"] + index * _GROUP_BYTES
        self._index = index

    def enqueued(self, kind: str, name: str = "", bytes: int = 0, dtype: int = 0) -> int:
        """Reports that the next collective, one of COLLECTIVES, was enqueued.

        Returns its number for started() and done(); 0: there is no page.
        """
        code = COLLECTIVES.index(kind)
        page = _page
        if page is None or self._at is None or self._index is None:
            return 0
        with page:
            seq = page.get("enqueued", self._at, _GROUP) + 1
            head = page.get32("ring_head")
            record = _AT["ring"] + head % _RING_LENGTH * _RECORD_BYTES
            page.set("enqueued", seq, self._at, _GROUP)
            page.set("bytes", bytes, self._at, _GROUP)
            page.set32("kind", code, self._at, _GROUP)
            page.set32("dtype", dtype, self._at, _GROUP)
            page.set("seq", seq, record, _RECORD)
            page.set32("group", self._index, record, _RECORD)
            page.set32("kind", code, record, _RECORD)
            page.set("bytes", bytes, record, _RECORD)
            page.set("enqueued_ns", time.monotonic_ns(), record, _RECORD)
            page.set("completed_ns", 0, record, _RECORD)
            page.set_name(record + _RECORD["name"], _RECORD_NAME_BYTES, name)
            page.set32("ring_head", head + 1)
        return seq

    def started(self, seq: int) -> None:
        """Reports that the collective began to move data."""
        page = _page
        if page is None or self._at is None or seq == 0:
            return
        with page:
            page.set("started", max(seq, page.get("started", self._at, _GROUP)), self._at, _GROUP)

    def done(self, seq: int) -> None:
        """Reports that the collective completed on this rank."""
        page = _page
        if page is None or self._at is None or seq == 0:
            return
        now = time.monotonic_ns()
        with page:
            for count in ("started", "completed"):
                page.set(count, max(seq, page.get(count, self._at, _GROUP)), self._at, _GROUP)
            for i in range(_RING_LENGTH):
                record = _AT["ring"] + i * _RECORD_BYTES
                if page.get("seq", record, _RECORD) == seq and page.get32("group", record, _RECORD) == self._index \
                        and page.get("completed_ns", record, _RECORD) == 0:
                    page.set("completed_ns", now, record, _RECORD)
            page.set("last_progress", now)

    def collective(self, kind: str, name: str = "", bytes: int = 0, dtype: int = 0) -> _Running:
        """`with group.collective("all-reduce"): …` around a synchronous collective. Its time counts
        as waiting for other ranks; see step().
        """
        return _Running(self, self.enqueued(kind, name, bytes, dtype))


class _Running:
    def __init__(self, group: Group, seq: int) -> None:
        self._group, self._seq = group, seq

    def __enter__(self) -> _Running:
        self._group.started(self._seq)
        self._began = time.monotonic_ns()
        self._waits = _waits.of_thread  # another thread may leave the block
        self._waits["open"] += 1
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], *_: object) -> None:
        self._waits["open"] -= 1
        if self._waits["open"] == 0:
            self._waits["seconds"] += (time.monotonic_ns() - self._began) / 1e9
        if kind is None:
            self._group.done(self._seq)


def group(name: str, members: int, id: int = 0) -> Group:
    """Registers a process group: a display name ("data"), the number of its ranks, and an id that
    is equal on all of them and differs between groups of one name.
    """
    page = _page
    if page is None:
        return Group(None)
    with page:
        count = page.get32("group_count")
        if count >= _GROUPS_MAX:
            return Group(None)
        at = _AT["groups"] + count * _GROUP_BYTES
        page.set_name(at, _GROUP_NAME_BYTES, name)
        page.set32("members", members, at, _GROUP)
        page.set32("id", id, at, _GROUP)
        page.set32("group_count", count + 1)
    return Group(count)
