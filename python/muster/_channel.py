"""The common parts of both clients' connections."""
import socket
import ssl
import urllib.request
from typing import Any, Optional, Sequence, Tuple

import grpc

from muster import errors, types
from muster._steps import CallError
from muster._target import Secrets, Target

# A name that no other service has: the methods are called without generated stubs, which refuse
# versions of gRPC that are older than their generator.
SERVICE = "/muster.v1.Muster/"
CONNECT_SECONDS = 1.0
FETCH_SECONDS = 30.0
# The time for which a call waits until one of several coordinators leads, and that of a round, in
# which all addresses are tried at the same time (cli/coordinator_search.cc).
LEADER_SECONDS = 10.0
ROUND_SECONDS = 1.5
ROUND_PAUSE = 0.2
STATE_POLL = 0.01
_RETRY_HINT = "grpc-retry-pushback-ms"
OPTIONS: Sequence[Tuple[str, Any]] = (
    ("grpc.max_receive_message_length", 4 << 20),  # daemon/limits.h
    # Reconnects quickly to a restarted coordinator.
    ("grpc.initial_reconnect_backoff_ms", 100),
    # Despite its name this also bounds a single attempt.
    ("grpc.min_reconnect_backoff_ms", 5000),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # Detects a coordinator whose machine is gone, as workers do.
    ("grpc.keepalive_time_ms", 300_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    # Coordinators are reached directly, not through a web proxy.
    ("grpc.enable_http_proxy", 0),
)
# A coordinator of several that stands still loses its connections after these times. Its successor
# leads by then.
OPTIONS_OF_SEVERAL: Sequence[Tuple[str, Any]] = (
    *(option for option in OPTIONS if option[0] not in ("grpc.min_reconnect_backoff_ms", "grpc.keepalive_time_ms", "grpc.keepalive_timeout_ms")),
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.keepalive_time_ms", 2_000),
    ("grpc.keepalive_timeout_ms", 2_000),
    ("grpc.http2.max_pings_without_data", 0),
)


def names_several(address: str) -> bool:
    """Returns whether the host is a name with several addresses of one family, which are those of
    several coordinators.
    """
    host = address.rpartition(":")[0].strip("[]")
    try:
        found = {(family, place[0]) for family, _, _, _, place in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    except OSError:
        return False
    families = [family for family, _ in found]
    return any(families.count(family) > 1 for family in families)


def has_failed(state: Optional[grpc.ChannelConnectivity]) -> bool:
    """Returns whether a new channel has tried to connect in vain."""
    return state is grpc.ChannelConnectivity.TRANSIENT_FAILURE


def no_leader() -> CallError:
    """Returns the error of a call while no coordinator of several leads."""
    return CallError(grpc.StatusCode.UNAVAILABLE, "no address answers")


def credentials(secrets: Secrets) -> Optional[grpc.ChannelCredentials]:
    """Returns TLS and the token as far as they are set; None: the connection is unencrypted."""
    if not secrets.ca:
        return None
    tls = grpc.ssl_channel_credentials(secrets.ca, secrets.key or None, secrets.certificate or None)
    if not secrets.token:
        return tls
    return grpc.composite_channel_credentials(tls, grpc.access_token_call_credentials(secrets.token))


def call_error(error: Any) -> CallError:
    """Converts gRPC's exception of a call."""
    hint = None
    for key, value in error.trailing_metadata() or ():
        text = value.decode("latin-1") if isinstance(value, bytes) else value
        if key == _RETRY_HINT and text.isdigit():
            hint = int(text) / 1000
    return CallError(error.code(), error.details() or "", hint)


def may_stand_still(error: CallError, target: Target) -> bool:
    """Returns whether one of several coordinators may have been stopped, so that the next call
    searches the one that leads.
    """
    return error.code is grpc.StatusCode.DEADLINE_EXCEEDED and len(target.addresses) > 1


def check_end(job: Optional[types.Job], check: bool) -> types.Job:
    """Returns the last state of a watched job. `check`: raises JobFailed if it has not
    succeeded.
    """
    if job is None:
        raise errors.MusterError("the coordinator ended the stream without a state of the job")
    if check and job.state is not types.JobState.SUCCEEDED:
        raise errors.JobFailed(job.incident.sentence if job.incident else job.reason, job)
    return job


def serialize(message: Any) -> bytes:
    """Returns the bytes of a request."""
    return message.SerializeToString()  # type: ignore[no-any-return]


def fetch(url: str, tls_ca: str) -> str:
    """Reads a page of the coordinator."""
    trust = ssl.create_default_context(cafile=tls_ca) if tls_ca else None
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), *([urllib.request.HTTPSHandler(context=trust)] if trust else []))
    with opener.open(url, timeout=FETCH_SECONDS) as response:
        return response.read().decode()  # type: ignore[no-any-return]
