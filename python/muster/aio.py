"""A client of a coordinator for asyncio."""
import asyncio
import os
import time
from types import TracebackType
from typing import Any, AsyncIterator, Callable, List, Mapping, Optional, Sequence, Tuple, Type, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import Message

from muster import _channel, functions
from muster._commands import JobWords
from muster._requests import Requests
from muster._steps import Address, Call, CallError, Connect, Emit, Execute, Executed, Fetch, Flow, Open, Pause, Read, Step
from muster._target import Path, Secrets, find_target
from muster.errors import MusterError
from muster.types import Attempt, Checkpoint, Incident, Job, LogLine, Sample, Worker

T = TypeVar("T")


class AsyncClient:
    """Client for asyncio: the same calls as coroutines, and streams for `async for`. An object
    belongs to the event loop of its first call.
    """

    def __init__(self, coordinator: Optional[str] = None, *, tls_ca: Optional[Path] = None, tls_cert: Optional[Path] = None,
                 tls_key: Optional[Path] = None, token_file: Optional[Path] = None) -> None:
        self._requests = Requests(find_target(coordinator, tls_ca, tls_cert, tls_key, token_file))
        self._channel: Optional[grpc.aio.Channel] = None
        self._leader = ""  # the address of the channel; of several, that of the one that leads
        self._secrets = Secrets()

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connection; the next call opens another one."""
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close(None)

    async def submit(self, config: Path, keys: Optional[Mapping[str, Any]] = None, *, ranks: Optional[int] = None, nodes: Optional[int] = None,
                     ranks_per_node: Optional[int] = None, gpus_per_rank: Optional[int] = None, env: Optional[Mapping[str, str]] = None,
                     priority: int = 0, spares: Optional[int] = None, min_nodes: Optional[int] = None,
                     working_directory: Optional[Path] = None, check: bool = True, plan: bool = True) -> Job:
        """As Client.submit()."""
        options = dict(ranks=ranks, nodes=nodes, ranks_per_node=ranks_per_node, gpus_per_rank=gpus_per_rank, priority=priority, spares=spares,
                       min_nodes=min_nodes, working_directory=working_directory, no_check=not check, no_plan=not plan)
        return await self._run(self._requests.submit(JobWords(config=os.fspath(config), keys=keys or {}, options=options, env=env or {})))

    async def submit_program(self, command: Sequence[Path], *, ranks: Optional[int] = None, nodes: Optional[int] = None,
                             ranks_per_node: Optional[int] = None, gpus_per_rank: Optional[int] = None, env: Optional[Mapping[str, str]] = None,
                             priority: int = 0, spares: Optional[int] = None, min_nodes: Optional[int] = None,
                             working_directory: Optional[Path] = None, name: Optional[str] = None, output: Optional[Path] = None,
                             restarts: Optional[int] = None, hang_after: Optional[int] = None) -> Job:
        """As Client.submit_program()."""
        options = dict(ranks=ranks, nodes=nodes, ranks_per_node=ranks_per_node, gpus_per_rank=gpus_per_rank, priority=priority, spares=spares,
                       min_nodes=min_nodes, working_directory=working_directory, name=name, output=output, restarts=restarts,
                       hang_after=hang_after)
        return await self._run(self._requests.submit(JobWords(command=list(map(str, command)), options=options, env=env or {})))

    async def run(self, function: Callable[..., T], args: Sequence[Any] = (), kwargs: Optional[Mapping[str, Any]] = None, *, folder: Path,
                  ranks: Optional[int] = None, nodes: Optional[int] = None, ranks_per_node: Optional[int] = None,
                  gpus_per_rank: Optional[int] = None, env: Optional[Mapping[str, str]] = None, priority: int = 0, name: Optional[str] = None,
                  restarts: int = 0, hang_after: Optional[int] = None, python: Optional[Path] = None) -> List[T]:
        """As Client.run()."""
        calls = functions.Calls(function, args, kwargs or {}, folder)
        try:
            job = await self.submit_program(calls.command(python), ranks=ranks, nodes=nodes, ranks_per_node=ranks_per_node,
                                            gpus_per_rank=gpus_per_rank, env=env, priority=priority, working_directory=calls.folder,
                                            name=name or calls.name, output=calls.folder / "job", restarts=restarts, hang_after=hang_after)
        except BaseException:
            calls.remove()
            raise
        try:
            end = await self.wait(job.id, check=False)
        except (KeyboardInterrupt, asyncio.CancelledError):
            await self.cancel(job.id)
            raise
        note = end.incident.sentence if end.incident else end.reason
        return calls.results(end.exit_code, note, end.spec.nodes * end.spec.ranks_per_node)

    async def job(self, job_id: int) -> Job:
        """As Client.job()."""
        return await self._run(self._requests.job(job_id))

    async def jobs(self, *, active_only: bool = False, limit: int = 1000) -> List[Job]:
        """As Client.jobs()."""
        return await self._run(self._requests.jobs(active_only, limit))

    def watch(self, job_id: int) -> AsyncIterator[Job]:
        """As Client.watch(), for `async for`."""
        return self._iterate(self._requests.watch(job_id))

    async def wait(self, job_id: int, *, check: bool = True) -> Job:
        """As Client.wait()."""
        last = None
        async for last in self.watch(job_id):
            pass
        return _channel.check_end(last, check)

    async def cancel(self, job_id: int, *, force: bool = False) -> Job:
        """As Client.cancel()."""
        return await self._run(self._requests.cancel(job_id, force))

    async def checkpoint(self, job_id: int, *, wait: bool = True) -> Checkpoint:
        """As Client.checkpoint()."""
        return await self._run(self._requests.checkpoint(job_id, wait))

    async def update(self, job_id: int, keys: Optional[Mapping[str, Any]] = None, *, command: Sequence[Path] = (),
                     env: Optional[Mapping[str, str]] = None, now: bool = False, at_checkpoint: bool = False,
                     rollback_steps: Optional[int] = None, check: bool = True) -> Job:
        """As Client.update()."""
        options = dict(now=now, at_checkpoint=at_checkpoint, rollback_steps=rollback_steps, no_check=not check)
        change = JobWords(keys=keys or {}, command=list(map(str, command)), options=options, env=env or {})
        return await self._run(self._requests.update(job_id, change))

    async def withdraw_update(self, job_id: int) -> Job:
        """As Client.withdraw_update()."""
        return await self._run(self._requests.update(job_id, JobWords(options={"cancel": True})))

    def logs(self, job_id: int, *, rank: Optional[int] = 0, attempt: int = 0, follow: bool = False) -> AsyncIterator[LogLine]:
        """As Client.logs(), for `async for`."""
        return self._iterate(self._requests.logs(job_id, rank, attempt, follow))

    async def incidents(self, job_id: int = 0, *, limit: int = 100) -> List[Incident]:
        """As Client.incidents()."""
        return await self._run(self._requests.incidents(job_id, limit))

    async def incident(self, incident_id: int) -> Incident:
        """As Client.incident()."""
        return await self._run(self._requests.incident(incident_id))

    async def history(self, job_id: int, *, limit: int = 100) -> List[Attempt]:
        """As Client.history()."""
        return await self._run(self._requests.history(job_id, limit))

    async def workers(self) -> List[Worker]:
        """As Client.workers()."""
        return await self._run(self._requests.workers())

    async def metrics(self, http: Optional[str] = None) -> List[Sample]:
        """As Client.metrics()."""
        return await self._run(self._requests.metrics(http))

    # ------------------------------------------------------------------ steps of flows

    async def _run(self, flow: Flow[T]) -> T:
        result: Any = None
        error: Optional[Exception] = None
        try:
            while True:
                step = flow.send(result) if error is None else flow.throw(error)
                result, error = None, None
                try:
                    result = await self._carry_out(step)
                except (CallError, OSError) as failure:
                    error = failure
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]

    async def _iterate(self, flow: Flow[None]) -> AsyncIterator[Any]:
        stream: Any = None
        result: Any = None
        error: Optional[Exception] = None
        try:
            while True:
                try:
                    step = flow.send(result) if error is None else flow.throw(error)
                except StopIteration:
                    return
                result, error = None, None
                try:
                    if isinstance(step, Open):
                        channel = await self._connection()
                        stream = channel.unary_stream(_channel.SERVICE + step.method, _channel.serialize, step.decode)(step.request)
                    elif isinstance(step, Read):
                        result = await self._read(stream)
                    elif isinstance(step, Emit):
                        yield step.value
                    else:
                        result = await self._carry_out(step)
                except CallError as failure:
                    error = failure
        finally:
            if stream is not None:
                stream.cancel()

    @staticmethod
    async def _read(stream: Any) -> Any:
        try:
            message = await stream.read()
        except grpc.RpcError as error:
            raise _channel.call_error(error) from None
        return message if isinstance(message, Message) else None  # else gRPC's mark of the end

    async def _carry_out(self, step: Step) -> Any:
        if isinstance(step, Call):
            call = (await self._connection()).unary_unary(_channel.SERVICE + step.method, _channel.serialize, step.decode)
            try:
                return await call(step.request, timeout=step.timeout)
            except grpc.RpcError as error:
                failure = _channel.call_error(error)
                if _channel.may_stand_still(failure, self._requests.target):
                    self._channel = None
                raise failure from None
        if isinstance(step, Pause):
            return await asyncio.sleep(step.seconds)
        if isinstance(step, Connect):
            return await self._connect()
        if isinstance(step, Address):
            await self._connection()
            return self._leader
        if isinstance(step, Execute):
            return await _execute(step)
        if isinstance(step, Fetch):
            return await asyncio.to_thread(_channel.fetch, step.url, self._requests.target.tls_ca)
        raise AssertionError(step)

    async def _connection(self, patience: float = _channel.LEADER_SECONDS) -> grpc.aio.Channel:
        """As Client._connection()."""
        target = self._requests.target
        secrets = target.read_secrets()
        is_one_of_several = len(target.addresses) > 1
        if self._channel is not None and secrets == self._secrets and (not is_one_of_several or _leads(self._channel)):
            return self._channel
        if is_one_of_several:
            self._leader, self._channel = await _find_leader(target.addresses, secrets, patience)
        else:
            is_shared = await asyncio.to_thread(_channel.names_several, target.address)
            options = _channel.OPTIONS_OF_SEVERAL if is_shared else _channel.OPTIONS
            self._leader, self._channel = target.address, _open(target.address, secrets, options)
        self._secrets = secrets
        return self._channel

    async def _connect(self) -> bool:
        try:
            channel = await self._connection(_channel.CONNECT_SECONDS)
            await asyncio.wait_for(channel.channel_ready(), _channel.CONNECT_SECONDS)
        except (asyncio.TimeoutError, CallError):
            return False
        except MusterError:  # the files may be half renewed
            await asyncio.sleep(_channel.CONNECT_SECONDS)
            return False
        return True


def _open(address: str, secrets: Secrets, options: Sequence[Any]) -> grpc.aio.Channel:
    trust = _channel.credentials(secrets)
    return grpc.aio.insecure_channel(address, options) if trust is None else grpc.aio.secure_channel(address, trust, options)


def _leads(channel: grpc.aio.Channel) -> bool:
    return channel.get_state() is grpc.ChannelConnectivity.READY


async def _find_leader(addresses: Sequence[str], secrets: Secrets, patience: float) -> Tuple[str, grpc.aio.Channel]:
    """Returns the address and the channel. Raises CallError if no coordinator leads."""
    give_up = time.monotonic() + patience
    while True:
        channels = {address: _open(address, secrets, _channel.OPTIONS_OF_SEVERAL) for address in addresses}
        round_ends = time.monotonic() + _channel.ROUND_SECONDS
        while time.monotonic() < round_ends:
            states = [channel.get_state(try_to_connect=True) for channel in channels.values()]
            if grpc.ChannelConnectivity.READY in states or all(map(_channel.has_failed, states)):
                break
            await asyncio.sleep(_channel.STATE_POLL)
        found = next((address for address, channel in channels.items() if _leads(channel)), "")
        for address, channel in channels.items():
            if address != found:
                await channel.close(None)
        if found:
            return found, channels[found]
        if time.monotonic() >= give_up:
            raise _channel.no_leader()
        await asyncio.sleep(_channel.ROUND_PAUSE)


async def _execute(step: Execute) -> Executed:
    process = await asyncio.create_subprocess_exec(*step.words, env=step.env, stdin=asyncio.subprocess.DEVNULL,
                                                   stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE)
    try:
        output, errors = await process.communicate()
    except asyncio.CancelledError:
        process.terminate()
        await process.wait()
        raise
    return Executed(process.returncode or 0, output.decode(errors="replace"), errors.decode(errors="replace"))
