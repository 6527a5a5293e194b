"""Calls that are repeated while a coordinator is overloaded or restarts, and their errors as
sentences: the rules of cli/client.cc, cli/client_repeats.cc and cli/client_errors.cc.
"""
import logging
import random
import time
from typing import Any, Callable, Dict, Iterable, Type

import grpc
from google.protobuf.message import Message

from muster import errors
from muster._steps import Call, CallError, Connect, Emit, Flow, Open, Pause, Read
from muster._target import Target

LOG = logging.getLogger("muster")

# A coordinator answers within milliseconds; the limit allows for a machine under heavy load.
_CALL_SECONDS = 5.0
# The time for which calls are repeated that an overloaded coordinator refuses.
_OVERLOAD_SECONDS = 60.0
_REPEAT_PAUSE_MIN, _REPEAT_PAUSE_MAX = 0.1, 10.0
# The time for which calls are repeated that one of several coordinators has not answered. After the
# loss of a leader another one leads within 5 s.
_LEADER_SECONDS = 10.0
# Methods whose repetition has no further effect.
_REPEATABLE = frozenset({"GetJob", "ListJobs", "CancelJob", "ListIncidents", "GetIncident", "GetJobHistory", "ListWorkers"})
# The time to wait for a coordinator that cannot be reached. A restart takes seconds.
_RECONNECT_SECONDS_MAX = 60
_RECONNECT_PAUSE = 0.2
# A stream that lived this long was healthy and resets the count of losses.
_GOOD_STREAM_SECONDS = 2.0
_LOSSES_IN_A_ROW_MAX = _RECONNECT_SECONDS_MAX * 5

_ERROR_OF: Dict[grpc.StatusCode, Type[errors.MusterError]] = {
    grpc.StatusCode.INVALID_ARGUMENT: errors.InvalidArgument,
    grpc.StatusCode.NOT_FOUND: errors.NotFound,
    grpc.StatusCode.ALREADY_EXISTS: errors.AlreadyExists,
    grpc.StatusCode.FAILED_PRECONDITION: errors.FailedPrecondition,
    grpc.StatusCode.PERMISSION_DENIED: errors.PermissionDenied,
    grpc.StatusCode.RESOURCE_EXHAUSTED: errors.ResourceExhausted,
    grpc.StatusCode.UNAUTHENTICATED: errors.Unauthenticated,
    grpc.StatusCode.ABORTED: errors.Aborted,
}


def _advice(details: str, target: Target) -> str:
    if "certificate" in details:
        return "check that --tls-ca has the CA of its certificate, and that the certificate names this address"
    is_there = "refused" not in details
    if target.tls_ca and is_there:
        return "check that it serves TLS and accepts the certificate of --tls-cert"
    if is_there and "Socket closed" in details:
        return "if it serves TLS, give --tls-ca"
    return "start muster-coordinator, or name another address with --coordinator"


def translate(error: CallError, target: Target) -> errors.MusterError:
    """Returns the error of a call as a sentence for users."""
    if error.code is grpc.StatusCode.UNAVAILABLE:
        cause = error.details.rpartition(": ")[2]
        return errors.Unavailable(f"no coordinator answers at {target.address} ({cause}); {_advice(error.details, target)}")
    if error.code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return errors.DeadlineExceeded(f"the coordinator at {target.address} did not answer in time")
    if error.code is grpc.StatusCode.UNIMPLEMENTED:
        return errors.MusterError(f"the coordinator at {target.address} is older than this client: update it")
    return _ERROR_OF.get(error.code, errors.MusterError)(error.details)


def _pause_before_repeat(hint: float, repeats: int) -> float:
    """At least the requested time, growing and different for each caller; otherwise all callers
    would return at once.
    """
    most = max(min(hint * (1 << min(repeats, 8)), _REPEAT_PAUSE_MAX), 2 * hint)
    return hint + (most - hint) * random.random()


class _Overload:
    """The repetitions of one call that an overloaded coordinator refuses."""

    def __init__(self) -> None:
        self._give_up = time.monotonic() + _OVERLOAD_SECONDS
        self._repeats = 0

    def pause(self, error: CallError, target: Target) -> Pause:
        """Returns the pause before the next repetition. Raises the error if there is none."""
        if error.code is not grpc.StatusCode.RESOURCE_EXHAUSTED or error.retry_after is None:
            raise translate(error, target) from None
        if time.monotonic() >= self._give_up:
            raise errors.Unavailable(error.details) from None
        if self._repeats == 0:
            LOG.warning("%s; trying again for up to %d s", error.details, _OVERLOAD_SECONDS)
        hint = min(max(error.retry_after, _REPEAT_PAUSE_MIN), _REPEAT_PAUSE_MAX)
        self._repeats += 1
        return Pause(_pause_before_repeat(hint, self._repeats - 1))


def unary(target: Target, method: str, request: Message, answer: Type[Message], on_repeat: Callable[[], None] = lambda: None) -> Flow[Any]:
    """Calls a method and returns its answer. Repeats a call that one of several coordinators
    has not answered, at the next leader, if a repetition has no further effect. `on_repeat` is
    called before.
    """
    overload = _Overload()
    give_up = time.monotonic() + _LEADER_SECONDS
    repeats = method in _REPEATABLE and len(target.addresses) > 1
    while True:
        try:
            return (yield Call(method, request, answer.FromString, _CALL_SECONDS))
        except CallError as error:
            is_lost = error.code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
            if repeats and is_lost and time.monotonic() < give_up:
                pause = Pause(_RECONNECT_PAUSE * (1 + random.random()))
                on_repeat()
            else:
                pause = overload.pause(error, target)
        yield pause


class _Reconnections:
    """The losses of one connection to a coordinator."""

    def __init__(self) -> None:
        self._losses = 0

    def wait(self, loss: errors.Unavailable, seconds: float) -> Flow[None]:
        """Waits for the coordinator; raises `loss` if it does not return. `seconds`: how long the
        connection lived.
        """
        if seconds > _GOOD_STREAM_SECONDS:
            self._losses = 0
        if self._losses == 0:
            LOG.warning("%s; trying again for %d s", str(loss).partition("; ")[0], _RECONNECT_SECONDS_MAX)
        self._losses += 1
        waited = 0
        while not (yield Connect()):
            if waited == _RECONNECT_SECONDS_MAX:
                raise loss
            waited += 1
        if self._losses > _LOSSES_IN_A_ROW_MAX:
            raise loss
        yield Pause(_RECONNECT_PAUSE * (1 + random.random()))


def repeated(flow: Callable[[], Flow[Any]]) -> Flow[Any]:
    """Runs a flow, and runs it again while the coordinator cannot be reached and then returns."""
    reconnections = _Reconnections()
    while True:
        started = time.monotonic()
        try:
            return (yield from flow())
        except errors.Unavailable as error:
            loss = error
        yield from reconnections.wait(loss, time.monotonic() - started)


def _read_stream(target: Target, method: str, request: Message, answer: Type[Message],
                 take: Callable[[Any], Iterable[Any]]) -> Flow[None]:
    overload = _Overload()
    while True:
        try:
            yield Open(method, request, answer.FromString)
            while True:
                message = yield Read()
                if message is None:
                    return
                for value in take(message):
                    yield Emit(value)
        except CallError as error:
            pause = overload.pause(error, target)
        yield pause


def stream(target: Target, method: str, request: Callable[[], Message], answer: Type[Message], take: Callable[[Any], Iterable[Any]],
           reconnect: bool = True) -> Flow[None]:
    """Emits the values that `take` makes of each message. Opens the stream again after a lost
    connection, with a new request; the caller skips what it has received.
    """
    def once() -> Flow[None]:
        return _read_stream(target, method, request(), answer, take)

    yield from (repeated(once) if reconnect else once())
