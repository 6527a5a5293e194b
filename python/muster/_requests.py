"""The requests of a client, as flows that `Client` and `AsyncClient` carry out."""
import dataclasses
from typing import Any, Dict, Iterator, List, Optional, Tuple

from prometheus_client.parser import text_string_to_metric_families

from muster import _commands, _messages, errors, types
from muster._calls import repeated, stream, translate, unary
from muster._steps import Address, CallError, Emit, Fetch, Flow, Pause
from muster._target import Target
from muster.v1 import muster_pb2 as v1

# A worker reports its ranks once a second.
_POLL_SECONDS = 0.2
# The default port of muster-coordinator --http.
_PAGE_PORT = 7071
# Longer lines are divided, as the command does.
_LINE_BYTES_MAX = 1 << 16


class Requests:
    """The requests to one coordinator."""

    def __init__(self, target: Target) -> None:
        self.target = target

    def _unary(self, method: str, request: Any, answer: Any) -> Flow[Any]:
        return unary(self.target, method, request, answer)

    def job(self, job_id: int) -> Flow[types.Job]:
        """Returns the job with all its ranks, which come in pages."""
        job = yield from self._unary("GetJob", v1.GetJobRequest(job_id=job_id), v1.Job)
        while len(job.placement) < job.rank_count:
            request = v1.GetJobRequest(job_id=job_id, first_rank=len(job.placement))
            page = yield from self._unary("GetJob", request, v1.Job)
            # The next attempt may have begun, on other nodes. The pages so far are consistent.
            if page.attempt != job.attempt or not page.placement:
                break
            job.placement.MergeFrom(page.placement)
            job.ranks.MergeFrom(page.ranks)
        return _messages.job(job)

    def jobs(self, active_only: bool, limit: int) -> Flow[List[types.Job]]:
        found: List[types.Job] = []
        request = v1.ListJobsRequest(active_only=active_only)
        while True:
            page = yield from self._unary("ListJobs", request, v1.ListJobsResponse)
            found += map(_messages.job, page.jobs)
            if not page.more or not page.jobs or len(found) >= limit:
                return found[:limit]
            request.before_job_id = page.jobs[-1].id

    def submit(self, job: _commands.JobWords) -> Flow[types.Job]:
        submitted = yield from _commands.on_target(self.target, ["submit"], job)
        # The job is queued: a caller that gets an error would submit it again.
        queued: types.Job = yield from repeated(lambda: self.job(submitted["id"]))
        return queued

    def update(self, job_id: int, change: _commands.JobWords) -> Flow[types.Job]:
        yield from _commands.on_target(self.target, ["update", str(job_id)], change)
        updated: types.Job = yield from repeated(lambda: self.job(job_id))
        return updated

    def cancel(self, job_id: int, force: bool) -> Flow[types.Job]:
        repeats: List[None] = []
        request = v1.CancelJobRequest(job_id=job_id, force=force)
        try:
            answer = yield from unary(self.target, "CancelJob", request, v1.CancelJobResponse, lambda: repeats.append(None))
        except errors.FailedPrecondition:
            # The first leader may have cancelled the job, and its answer was lost.
            job = (yield from self.job(job_id)) if repeats else None
            if job is None or job.state is not types.JobState.CANCELLED:
                raise
            return job
        return _messages.job(answer.job)

    def checkpoint(self, job_id: int, wait: bool) -> Flow[types.Checkpoint]:
        answer = yield from self._unary("CheckpointJob", v1.CheckpointJobRequest(job_id=job_id), v1.CheckpointJobResponse)
        before = _messages.job(answer.job)
        request = types.Checkpoint(job_id, -1, answer.after_step, "")
        if not wait:
            return request
        saved: types.Checkpoint = yield from repeated(lambda: self._saved(before, request))
        return saved

    def _saved(self, before: types.Job, request: types.Checkpoint) -> Flow[types.Checkpoint]:
        failed = before.ranks[0].checkpoints_failed if before.ranks else 0
        while True:
            yield Pause(_POLL_SECONDS)
            job = _messages.job((yield from self._unary("GetJob", v1.GetJobRequest(job_id=request.job_id), v1.Job)))
            rank = job.ranks[0] if job.ranks else None
            if job.attempt == before.attempt and rank is not None and rank.checkpoint_step > request.after_step:
                folder = job.spec.train_config.get("checkpoint_directory")
                return dataclasses.replace(request, step=rank.checkpoint_step, folder=f"{folder}/{rank.checkpoint_step}" if folder else "")
            if job.state.has_ended:
                raise errors.Aborted(f"job {job.id} has ended before it saved a checkpoint: {job.reason}")
            if job.attempt != before.attempt or not job.state.runs:
                raise errors.Aborted(f"job {job.id} was stopped before it saved a checkpoint ({job.reason}); repeat the request later")
            if rank is not None and rank.checkpoints_failed > failed:
                raise errors.Aborted(f"job {job.id} could not save the checkpoint and continues to train: `muster logs {job.id} --rank 0` "
                                     "shows why")

    def watch(self, job_id: int) -> Flow[None]:
        return stream(self.target, "WatchJob", lambda: v1.WatchJobRequest(job_id=job_id), v1.Job, lambda job: [_messages.job(job)])

    def logs(self, job_id: int, rank: Optional[int], attempt: int, follow: bool) -> Flow[None]:
        lines = _Lines(with_time=rank is None)
        request = v1.FollowLogsRequest(job_id=job_id, rank=-1 if rank is None else rank, attempt=attempt, follow=follow)
        yield from stream(self.target, "FollowLogs", lambda: request, v1.LogChunk, lines.take, reconnect=follow)
        yield from lines.emit_rest()

    def incidents(self, job_id: int, limit: int) -> Flow[List[types.Incident]]:
        answer = yield from self._unary("ListIncidents", v1.ListIncidentsRequest(job_id=job_id, limit=limit), v1.ListIncidentsResponse)
        return list(map(_messages.incident, answer.incidents))

    def incident(self, incident_id: int) -> Flow[types.Incident]:
        answer = yield from self._unary("GetIncident", v1.GetIncidentRequest(incident_id=incident_id), v1.Incident)
        return _messages.incident(answer)

    def history(self, job_id: int, limit: int) -> Flow[List[types.Attempt]]:
        answer = yield from self._unary("GetJobHistory", v1.GetJobHistoryRequest(job_id=job_id, limit=limit), v1.GetJobHistoryResponse)
        return list(map(_messages.attempt, answer.attempts))

    def workers(self) -> Flow[List[types.Worker]]:
        found: List[types.Worker] = []
        request = v1.ListWorkersRequest()
        while True:
            page = yield from self._unary("ListWorkers", request, v1.ListWorkersResponse)
            found += map(_messages.worker, page.workers)
            if not page.more or not page.workers:
                return found
            request.after = page.workers[-1].name

    def metrics(self, http: Optional[str]) -> Flow[List[types.Sample]]:
        scheme = "https" if self.target.tls_ca else "http"
        authority = http
        if not authority:
            try:
                address = yield Address()
            except CallError as error:
                raise translate(error, self.target) from None
            authority = f"{address.rpartition(':')[0]}:{_PAGE_PORT}"
        url = f"{authority if '://' in authority else f'{scheme}://{authority}'}/metrics"
        try:
            text = yield Fetch(url)
        except OSError as error:
            raise errors.Unavailable(f"{url}: {error}; name the address of muster-coordinator --http") from None
        return [types.Sample(sample.name, sample.labels, sample.value) for family in text_string_to_metric_families(text)
                for sample in family.samples]


class _Lines:
    """Makes lines of chunks, which begin again from the first after a reconnection."""

    def __init__(self, with_time: bool) -> None:
        self._with_time = with_time
        self._ends: Dict[Tuple[int, int], int] = {}
        self._rests: Dict[Tuple[int, int], bytes] = {}

    def take(self, chunk: v1.LogChunk) -> Iterator[types.LogLine]:
        key = (chunk.attempt, chunk.rank)
        end = self._ends.get(key, chunk.offset)
        data = chunk.data[max(0, end - chunk.offset):]
        self._ends[key] = max(end, chunk.offset + len(chunk.data))
        *lines, rest = (self._rests.get(key, b"") + data).split(b"\n")
        while len(rest) > _LINE_BYTES_MAX:
            lines.append(rest[:_LINE_BYTES_MAX])
            rest = rest[_LINE_BYTES_MAX:]
        self._rests[key] = rest
        time = _messages.time_of(chunk.unix_ns) if self._with_time else None
        return (self._line(key, line, time) for line in lines)

    def emit_rest(self) -> Flow[None]:
        for key, rest in self._rests.items():
            if rest:
                yield Emit(self._line(key, rest, None))

    @staticmethod
    def _line(key: Tuple[int, int], line: bytes, time: types.Time) -> types.LogLine:
        return types.LogLine(text=line.decode("utf-8", "replace"), rank=key[1], attempt=key[0], time=time)
