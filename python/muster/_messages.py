"""Converts messages of the API to the values of muster.types."""
import datetime
import json
from typing import Any, Dict, Tuple

from muster import types
from muster.progress import PHASES
from muster.types import JobState, Time
from muster.v1 import muster_pb2 as v1

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)


def time_of(unix_ns: int) -> Time:
    return _EPOCH + datetime.timedelta(microseconds=unix_ns // 1000) if unix_ns > 0 else None


def _object(text: str) -> Dict[str, Any]:
    try:
        value = json.loads(text) if text else {}
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _state(value: int) -> JobState:
    name = v1.JobState.Name(v1.JobState.ValueType(value)) if value in v1.JobState.values() else ""
    return JobState(name) if name in JobState.__members__ else JobState.UNKNOWN


def _spec(spec: v1.JobSpec) -> types.JobSpec:
    return types.JobSpec(
        name=spec.name, user=spec.user, owner=spec.owner, team=spec.team, priority=spec.priority, nodes=spec.nodes, ranks_per_node=spec.ranks_per_node,
        gpus_per_rank=spec.gpus_per_rank, restarts_max=spec.restarts_max, output_directory=spec.output_directory, steps=spec.steps,
        spares=spec.spares, min_nodes=spec.min_nodes, command=tuple(spec.command), working_directory=spec.working_directory,
        hang_after_seconds=spec.hang_after_seconds, train_config=_object(spec.train_config_json), settings=_object(spec.settings_json),
        environment=dict(spec.environment))


def _rank(rank: v1.RankStatus) -> types.RankStatus:
    return types.RankStatus(
        rank=rank.rank, worker=rank.worker, pid=rank.pid, phase=rank.phase, step=rank.step, loss=rank.loss, grad_norm=rank.grad_norm,
        step_seconds=rank.step_seconds, tokens_per_second=rank.tokens_per_second, mfu=rank.mfu,
        last_progress_age_seconds=rank.last_progress_age_seconds, checkpoint_step=rank.checkpoint_step,
        checkpoints_saved=rank.checkpoints.saved, checkpoints_failed=rank.checkpoints.failed, saves_on_request=rank.checkpoints.on_request)


def _fault(fault: v1.Fault) -> types.Fault:
    return types.Fault(rank=fault.rank, worker=fault.worker, signal=fault.signal, exit_code=fault.exit_code, last_step=fault.last_step,
                       message=fault.message, time=time_of(fault.unix_ns), kind=fault.kind)


def _revision(revision: v1.Revision) -> types.Revision:
    return types.Revision(revision=revision.revision, change=revision.change, time=time_of(revision.unix_ns), pending=revision.pending,
                          rollback_steps=revision.rollback_steps, undone=revision.undone, end=revision.end)


def job(job: v1.Job) -> types.Job:
    note = types.IncidentNote(job.incident.id, job.incident.sentence) if job.incident.id else None
    return types.Job(
        id=job.id, spec=_spec(job.spec), state=_state(job.state), reason=job.reason, attempt=job.attempt, exit_code=job.exit_code,
        is_futile=job.is_futile, nodes=job.nodes, rank_count=job.rank_count,
        placement=tuple(types.Placement(place.rank, place.worker, place.local_rank) for place in job.placement),
        ranks=tuple(map(_rank, job.ranks)), faults=tuple(map(_fault, job.faults)), incident=note, tokens_per_second=job.tokens_per_second,
        newest_step=job.newest_step, revision=job.revision, revisions=tuple(map(_revision, job.revisions)),
        submitted=time_of(job.submitted_unix_ns), started=time_of(job.started_unix_ns), finished=time_of(job.finished_unix_ns),
        queued_seconds=job.goodput.queued_ns / 1e9, wall_seconds=job.goodput.wall_ns / 1e9,
        productive_seconds=job.goodput.productive_ns / 1e9,
        losses=tuple(types.Loss(loss.cause, loss.what, loss.ns / 1e9) for loss in job.goodput.losses))


def _suspect(suspect: v1.Suspect) -> types.Suspect:
    return types.Suspect(rank=suspect.rank, worker=suspect.worker, axis=suspect.axis, collective=suspect.collective, source=suspect.source,
                         why=suspect.why, confidence=suspect.confidence)


def _evidence(evidence: v1.RankEvidence) -> types.Evidence:
    known = evidence.phase < len(PHASES) and not evidence.page_problem
    return types.Evidence(
        rank=evidence.rank, pid=evidence.pid, phase=PHASES[evidence.phase] if known else "", step=evidence.step,
        progress_age_seconds=evidence.progress_age_ns / 1e9, process_state=chr(evidence.process_state) if evidence.process_state else "",
        wait_channel=evidence.wait_channel, last_lines=tuple(evidence.last_lines), memory_used=evidence.memory_used,
        memory_limit=evidence.memory_limit)


def _recovery(recovery: v1.Recovery) -> types.Recovery:
    return types.Recovery(
        last_progress=time_of(recovery.progress_unix_ns), detected=time_of(recovery.detected_unix_ns),
        decided=time_of(recovery.decided_unix_ns), stopped=time_of(recovery.stopped_unix_ns), started=time_of(recovery.started_unix_ns),
        loaded=time_of(recovery.loaded_unix_ns), first_step=time_of(recovery.first_step_unix_ns),
        caught_up=time_of(recovery.caught_up_unix_ns), over=recovery.over, best_step=recovery.best_step,
        restored_step=recovery.restored_step)


def incident(incident: v1.Incident) -> types.Incident:
    return types.Incident(
        id=incident.id, job_id=incident.job_id, job_name=incident.job_name, attempt=incident.attempt, kind=incident.kind,
        is_open=incident.open, sentence=incident.sentence, diagnosis=incident.diagnosis, action=incident.action,
        suspects=tuple(map(_suspect, incident.suspects)), evidence=tuple(map(_evidence, incident.ranks)),
        kernel_messages=tuple(incident.kernel_messages),
        moments=tuple(types.Moment(time_of(moment.unix_ns), moment.text) for moment in incident.moments),
        recovery=_recovery(incident.recovery) if incident.HasField("recovery") else None)


def attempt(attempt: v1.JobAttempt) -> types.Attempt:
    return types.Attempt(
        job_id=attempt.job_id, attempt=attempt.attempt, started=time_of(attempt.started_unix_ns), up=time_of(attempt.up_unix_ns),
        ended=time_of(attempt.ended_unix_ns), nodes=attempt.nodes, ranks=attempt.ranks, workers=attempt.workers,
        first_step=attempt.first_step, last_step=attempt.last_step, end=attempt.end, incident_id=attempt.incident_id,
        revision=attempt.revision)


def worker(worker: v1.WorkerInfo) -> types.Worker:
    gpus: Tuple[types.Gpu, ...] = tuple(types.Gpu(gpu.index, gpu.uuid, gpu.name, gpu.memory_bytes) for gpu in worker.gpus)
    exclusion = worker.exclusion
    return types.Worker(
        name=worker.name, host=worker.host, version=worker.version, slots=worker.slots, slots_used=worker.slots_used,
        connected=worker.connected, leaving=worker.leaving, heartbeat_age_seconds=worker.heartbeat_age_seconds, gpus=gpus,
        gpus_used=worker.gpus_used,
        exclusion=types.Exclusion(exclusion.cause, exclusion.reason, time_of(exclusion.since_unix_ns), time_of(exclusion.until_unix_ns))
        if worker.HasField("exclusion") else None)
