"""The steps of which each call of the API consists, apart from how they are carried out.

A call is a generator, a `Flow`: it yields steps and receives their results, so that `Client` and
`AsyncClient` share everything but the waiting. A step that fails raises CallError in the generator.
"""
import dataclasses
from typing import Any, Callable, Dict, Generator, List, Optional, TypeVar, Union

import grpc
from google.protobuf.message import Message

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Call:
    """Calls a method with one answer, which is the result."""

    method: str
    request: Message
    decode: Callable[[bytes], Any]
    timeout: float


@dataclasses.dataclass(frozen=True)
class Open:
    """Opens a stream of answers. A flow has at most one at a time."""

    method: str
    request: Message
    decode: Callable[[bytes], Any]


@dataclasses.dataclass(frozen=True)
class Read:
    """Reads the open stream: its next message, or None at its end."""


@dataclasses.dataclass(frozen=True)
class Emit:
    """Gives a value to the caller, who iterates over the flow."""

    value: Any


@dataclasses.dataclass(frozen=True)
class Pause:
    """Waits."""

    seconds: float


@dataclasses.dataclass(frozen=True)
class Connect:
    """Waits until the coordinator can be reached, for at most a second; the result is whether it
    can.
    """


@dataclasses.dataclass(frozen=True)
class Address:
    """Finds the coordinator's address; of several, that of the one that leads."""


@dataclasses.dataclass(frozen=True)
class Execute:
    """Runs a program to its end. The result is an Executed."""

    words: List[str]
    env: Dict[str, str]


@dataclasses.dataclass(frozen=True)
class Executed:
    """The end of a program."""

    exit_code: int
    output: str
    errors: str


@dataclasses.dataclass(frozen=True)
class Fetch:
    """Reads a page by HTTP. The result is its text; fails with OSError."""

    url: str


class CallError(Exception):
    """A call that failed with a status of gRPC."""

    def __init__(self, code: grpc.StatusCode, details: str, retry_after: Optional[float] = None) -> None:
        super().__init__(details)
        self.code, self.details, self.retry_after = code, details, retry_after


Step = Union[Call, Open, Read, Emit, Pause, Connect, Address, Execute, Fetch]
Flow = Generator[Step, Any, T]
