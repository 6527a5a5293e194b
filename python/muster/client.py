"""A client of a coordinator that blocks."""
import os
import subprocess
import threading
import time
from types import TracebackType
from typing import Any, Callable, Iterator, List, Mapping, Optional, Sequence, Type, TypeVar

import grpc

from muster import _channel, functions
from muster._commands import JobWords
from muster._requests import Requests
from muster._steps import Address, Call, CallError, Connect, Emit, Execute, Executed, Fetch, Flow, Open, Pause, Read, Step
from muster._target import Path, Secrets, find_target
from muster.errors import MusterError
from muster.types import Attempt, Checkpoint, Incident, Job, LogLine, Sample, Worker

T = TypeVar("T")


class Client:
    """Calls of a coordinator's API.

    Without arguments the coordinator is that of the command `muster`: MUSTER_COORDINATOR, else
    127.0.0.1:7070, with the files of MUSTER_TLS_CA, MUSTER_TLS_CERT, MUSTER_TLS_KEY and
    MUSTER_TOKEN_FILE, which are read again for each call. Raises subclasses of MusterError, with
    the command's texts. Neither connects nor reads files before the first call.

    Calls that an overloaded coordinator refuses are repeated for up to a minute. watch(), wait(),
    logs(follow=True) and checkpoint() continue when a coordinator that restarts returns within a
    minute. Thread-safe.
    """

    def __init__(self, coordinator: Optional[str] = None, *, tls_ca: Optional[Path] = None, tls_cert: Optional[Path] = None,
                 tls_key: Optional[Path] = None, token_file: Optional[Path] = None) -> None:
        self._requests = Requests(find_target(coordinator, tls_ca, tls_cert, tls_key, token_file))
        self._lock = threading.Lock()
        self._channel: Optional[grpc.Channel] = None
        self._leader: Optional["_Candidate"] = None  # that of several coordinators
        self._secrets = Secrets()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection; the next call opens another one."""
        with self._lock:
            if self._channel is not None:
                self._channel.close()
            self._channel = None
            self._leader = None

    # ------------------------------------------------------------------ jobs

    def submit(self, config: Path, keys: Optional[Mapping[str, Any]] = None, *, ranks: Optional[int] = None, nodes: Optional[int] = None,
               ranks_per_node: Optional[int] = None, gpus_per_rank: Optional[int] = None, env: Optional[Mapping[str, str]] = None,
               priority: int = 0, spares: Optional[int] = None, min_nodes: Optional[int] = None,
               working_directory: Optional[Path] = None, check: bool = True, plan: bool = True) -> Job:
        """Queues a training with Muster's trainer and returns the job.

        `config`: a file, or a name of Muster's own presets such as "base.yml". `keys`: keys of the
        config; values other than texts are passed as JSON. `check`: whether data and checkpoints
        are checked, which must be visible from this machine. `plan`: whether the job must fit in
        memory. The other arguments are the options of `muster submit`, which resolves the config.
        Raises InvalidArgument if a key or a value is wrong.
        """
        options = dict(ranks=ranks, nodes=nodes, ranks_per_node=ranks_per_node, gpus_per_rank=gpus_per_rank, priority=priority, spares=spares,
                       min_nodes=min_nodes, working_directory=working_directory, no_check=not check, no_plan=not plan)
        return self._run(self._requests.submit(JobWords(config=os.fspath(config), keys=keys or {}, options=options, env=env or {})))

    def submit_program(self, command: Sequence[Path], *, ranks: Optional[int] = None, nodes: Optional[int] = None,
                       ranks_per_node: Optional[int] = None, gpus_per_rank: Optional[int] = None, env: Optional[Mapping[str, str]] = None,
                       priority: int = 0, spares: Optional[int] = None, min_nodes: Optional[int] = None,
                       working_directory: Optional[Path] = None, name: Optional[str] = None, output: Optional[Path] = None,
                       restarts: Optional[int] = None, hang_after: Optional[int] = None) -> Job:
        """Queues a program, which is started once per rank, and returns the job.

        The arguments are the options of `muster submit`; see docs/any-program.md.
        """
        options = dict(ranks=ranks, nodes=nodes, ranks_per_node=ranks_per_node, gpus_per_rank=gpus_per_rank, priority=priority, spares=spares,
                       min_nodes=min_nodes, working_directory=working_directory, name=name, output=output, restarts=restarts,
                       hang_after=hang_after)
        return self._run(self._requests.submit(JobWords(command=list(map(str, command)), options=options, env=env or {})))

    def run(self, function: Callable[..., T], args: Sequence[Any] = (), kwargs: Optional[Mapping[str, Any]] = None, *, folder: Path,
            ranks: Optional[int] = None, nodes: Optional[int] = None, ranks_per_node: Optional[int] = None,
            gpus_per_rank: Optional[int] = None, env: Optional[Mapping[str, str]] = None, priority: int = 0, name: Optional[str] = None,
            restarts: int = 0, hang_after: Optional[int] = None, python: Optional[Path] = None) -> List[T]:
        """Calls a function on ranks of the fleet, and returns their results in the order of ranks.

        As muster.run(), but on the coordinator's workers. `folder`: a folder that this machine and
        all workers share; the call uses a new folder in it. `python`: the interpreter on the
        workers, which must have the function's modules; by default the path of this one.
        Raises RunFailed with the sentence of the incident.
        """
        calls = functions.Calls(function, args, kwargs or {}, folder)
        try:
            job = self.submit_program(calls.command(python), ranks=ranks, nodes=nodes, ranks_per_node=ranks_per_node,
                                      gpus_per_rank=gpus_per_rank, env=env, priority=priority, working_directory=calls.folder,
                                      name=name or calls.name, output=calls.folder / "job", restarts=restarts, hang_after=hang_after)
        except BaseException:
            calls.remove()
            raise
        try:
            end = self.wait(job.id, check=False)
        except KeyboardInterrupt:
            self.cancel(job.id)
            raise
        note = end.incident.sentence if end.incident else end.reason
        return calls.results(end.exit_code, note, end.spec.nodes * end.spec.ranks_per_node)

    def job(self, job_id: int) -> Job:
        """Returns a job with the figures of all its ranks."""
        return self._run(self._requests.job(job_id))

    def jobs(self, *, active_only: bool = False, limit: int = 1000) -> List[Job]:
        """Returns the newest jobs, newest first. They lack the train config, the environment and
        the figures of all ranks except rank 0.
        """
        return self._run(self._requests.jobs(active_only, limit))

    def watch(self, job_id: int) -> Iterator[Job]:
        """Yields the job now and after each change of its state, until it has ended."""
        return self._iterate(self._requests.watch(job_id))

    def wait(self, job_id: int, *, check: bool = True) -> Job:
        """Waits for the end of a job and returns it. `check`: raises JobFailed, with the sentence
        of the incident, unless it has succeeded.
        """
        last = None
        for last in self.watch(job_id):
            pass
        return _channel.check_end(last, check)

    def cancel(self, job_id: int, *, force: bool = False) -> Job:
        """Ends a job; its ranks save a checkpoint first. `force`: they are killed at once."""
        return self._run(self._requests.cancel(job_id, force))

    def checkpoint(self, job_id: int, *, wait: bool = True) -> Checkpoint:
        """Requests a checkpoint of a running job, which trains on. `wait`: returns when the
        checkpoint is complete.
        """
        return self._run(self._requests.checkpoint(job_id, wait))

    def update(self, job_id: int, keys: Optional[Mapping[str, Any]] = None, *, command: Sequence[Path] = (),
               env: Optional[Mapping[str, str]] = None, now: bool = False, at_checkpoint: bool = False,
               rollback_steps: Optional[int] = None, check: bool = True) -> Job:
        """Changes the keys of a job's config, or the command of a job with a program, and variables
        of its ranks. The options are those of `muster update`, which resolves the config.
        """
        options = dict(now=now, at_checkpoint=at_checkpoint, rollback_steps=rollback_steps, no_check=not check)
        change = JobWords(keys=keys or {}, command=list(map(str, command)), options=options, env=env or {})
        return self._run(self._requests.update(job_id, change))

    def withdraw_update(self, job_id: int) -> Job:
        """Withdraws an update that no attempt has yet."""
        return self._run(self._requests.update(job_id, JobWords(options={"cancel": True})))

    # ------------------------------------------------------------------ records

    def logs(self, job_id: int, *, rank: Optional[int] = 0, attempt: int = 0, follow: bool = False) -> Iterator[LogLine]:
        """Yields the lines that a rank wrote; `rank=None`: all ranks, by time. `attempt`: 0 is the
        newest. `follow`: continues with later output and attempts, until the job has ended.
        """
        return self._iterate(self._requests.logs(job_id, rank, attempt, follow))

    def incidents(self, job_id: int = 0, *, limit: int = 100) -> List[Incident]:
        """Returns the newest incidents of a job, or of all jobs, without evidence."""
        return self._run(self._requests.incidents(job_id, limit))

    def incident(self, incident_id: int) -> Incident:
        """Returns an incident with its evidence."""
        return self._run(self._requests.incident(incident_id))

    def history(self, job_id: int, *, limit: int = 100) -> List[Attempt]:
        """Returns the newest attempts of a job, newest first."""
        return self._run(self._requests.history(job_id, limit))

    def workers(self) -> List[Worker]:
        """Returns all workers, by name."""
        return self._run(self._requests.workers())

    def metrics(self, http: Optional[str] = None) -> List[Sample]:
        """Returns the coordinator's metrics (docs/metrics.md). `http`: the address of its --http;
        by default port 7071 of its host.
        """
        return self._run(self._requests.metrics(http))

    # ------------------------------------------------------------------ steps of flows

    def _run(self, flow: Flow[T]) -> T:
        result: Any = None
        error: Optional[Exception] = None
        try:
            while True:
                step = flow.send(result) if error is None else flow.throw(error)
                result, error = None, None
                try:
                    result = self._carry_out(step)
                except (CallError, OSError) as failure:
                    error = failure
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]

    def _iterate(self, flow: Flow[None]) -> Iterator[Any]:
        stream: Any = None
        result: Any = None
        error: Optional[Exception] = None
        try:
            while True:
                step = flow.send(result) if error is None else flow.throw(error)
                result, error = None, None
                try:
                    if isinstance(step, Open):
                        channel = self._connection()
                        stream = channel.unary_stream(_channel.SERVICE + step.method, _channel.serialize, step.decode)(step.request)
                    elif isinstance(step, Read):
                        result = self._read(stream)
                    elif isinstance(step, Emit):
                        yield step.value
                    else:
                        result = self._carry_out(step)
                except CallError as failure:
                    error = failure
        except StopIteration:
            return
        finally:
            if stream is not None:
                stream.cancel()

    @staticmethod
    def _read(stream: Any) -> Any:
        try:
            return next(stream, None)
        except grpc.RpcError as error:
            raise _channel.call_error(error) from None

    def _carry_out(self, step: Step) -> Any:
        if isinstance(step, Call):
            call = self._connection().unary_unary(_channel.SERVICE + step.method, _channel.serialize, step.decode)
            try:
                return call(step.request, timeout=step.timeout)
            except grpc.RpcError as error:
                failure = _channel.call_error(error)
                if _channel.may_stand_still(failure, self._requests.target):
                    with self._lock:
                        self._channel = None
                raise failure from None
        if isinstance(step, Pause):
            return time.sleep(step.seconds)
        if isinstance(step, Connect):
            return self._connect()
        if isinstance(step, Address):
            return self._address()
        if isinstance(step, Execute):
            ended = subprocess.run(step.words, env=step.env, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
            return Executed(ended.returncode, ended.stdout, ended.stderr)
        if isinstance(step, Fetch):
            return _channel.fetch(step.url, self._requests.target.tls_ca)
        raise AssertionError(step)

    def _connection(self, patience: float = _channel.LEADER_SECONDS) -> grpc.Channel:
        """Returns the channel; makes another one if the files for TLS or the token have changed. Of
        several coordinators, waits for at most `patience` until one leads.
        """
        secrets = self._requests.target.read_secrets()
        addresses = self._requests.target.addresses
        with self._lock:
            if self._channel is not None and secrets == self._secrets and (self._leader is None or self._leader.leads):
                return self._channel
            if len(addresses) == 1:
                options = _channel.OPTIONS_OF_SEVERAL if _channel.names_several(addresses[0]) else _channel.OPTIONS
                self._channel = _open(addresses[0], secrets, options)
                self._secrets = secrets
                return self._channel
        found = _find_leader(addresses, secrets, patience)
        with self._lock:
            self._leader, self._channel, self._secrets = found, found.channel, secrets
        return found.channel

    def _address(self) -> str:
        if len(self._requests.target.addresses) > 1:
            self._connection()
        return self._requests.target.address if self._leader is None else self._leader.address

    def _connect(self) -> bool:
        if len(self._requests.target.addresses) > 1:
            try:
                return self._connection(_channel.CONNECT_SECONDS) is not None
            except CallError:
                return False
        try:
            ready = grpc.channel_ready_future(self._connection())
        except MusterError:  # the files may be half renewed
            time.sleep(_channel.CONNECT_SECONDS)
            return False
        try:
            ready.result(timeout=_channel.CONNECT_SECONDS)
        except grpc.FutureTimeoutError:
            ready.cancel()
            return False
        return True


def _open(address: str, secrets: Secrets, options: Sequence[Any]) -> grpc.Channel:
    trust = _channel.credentials(secrets)
    return grpc.insecure_channel(address, options) if trust is None else grpc.secure_channel(address, trust, options)


class _Candidate:
    """A channel to one of several coordinators, and its newest state."""

    def __init__(self, address: str, secrets: Secrets) -> None:
        self.address, self.channel = address, _open(address, secrets, _channel.OPTIONS_OF_SEVERAL)
        self.state: Optional[grpc.ChannelConnectivity] = None
        self.channel.subscribe(self._take, try_to_connect=True)

    def _take(self, state: grpc.ChannelConnectivity) -> None:
        self.state = state

    @property
    def leads(self) -> bool:
        return self.state is grpc.ChannelConnectivity.READY


def _find_leader(addresses: Sequence[str], secrets: Secrets, patience: float) -> _Candidate:
    """Raises CallError if no coordinator leads."""
    give_up = time.monotonic() + patience
    while True:
        candidates = [_Candidate(address, secrets) for address in addresses]
        round_ends = time.monotonic() + _channel.ROUND_SECONDS
        while time.monotonic() < round_ends and not all(_channel.has_failed(candidate.state) for candidate in candidates):
            if any(candidate.leads for candidate in candidates):
                break
            time.sleep(_channel.STATE_POLL)
        found = next((candidate for candidate in candidates if candidate.leads), None)
        for candidate in candidates:
            if candidate is not found:
                candidate.channel.close()
        if found is not None:
            return found
        if time.monotonic() >= give_up:
            raise _channel.no_leader()
        time.sleep(_channel.ROUND_PAUSE)
