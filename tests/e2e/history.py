"""Checks that a recorded history of submissions, cancellations and lists of jobs is linearizable.

A job passes through levels and never returns: 0 absent, 1 submitted, 2 a cancellation was
requested, 3 ended. Each name belongs to one submission. For such objects a history is linearizable
exactly if

- an operation sees at least the level that an operation which ended before it has seen or made;
- no level is seen before an operation that can make it has begun;
- two lists see states of which one is not older than the other in any job.

Besides, a name has one id for ever, and no two jobs have the same id.
"""
import dataclasses
import itertools
import threading
import time
from typing import Dict, List, Optional, Tuple

SUBMITTED, CANCEL_REQUESTED, ENDED = 1, 2, 3


@dataclasses.dataclass
class Operation:
    """`end`: None: there was no answer, and the effect is unknown. `seen`: the id and the level of
    each job that the answer has.
    """

    kind: str  # submit, cancel, list
    name: str  # the job's; "" for lists
    begin: float
    end: Optional[float] = None
    seen: Dict[str, Tuple[int, int]] = dataclasses.field(default_factory=dict)


class History:
    """Records the operations of several threads."""

    def __init__(self):
        self._lock = threading.Lock()
        self.operations: List[Operation] = []

    def begin(self, kind, name=""):
        operation = Operation(kind, name, time.monotonic())
        with self._lock:
            self.operations.append(operation)
        return operation

    @staticmethod
    def end(operation, seen):
        operation.seen, operation.end = seen, time.monotonic()


def violations(operations):
    """Returns a sentence for each violation."""
    found = []
    ids = {}
    for operation in operations:
        for name, (number, _) in operation.seen.items():
            if ids.setdefault(name, number) != number:
                found.append(f"{name} has the ids {ids[name]} and {number}")
    names = {}
    for name, number in ids.items():
        if names.setdefault(number, name) != name:
            found.append(f"the id {number} was given to {names[number]} and to {name}")

    done = sorted((operation for operation in operations if operation.end is not None), key=lambda operation: operation.end)
    for later in operations:
        if later.end is None or later.kind == "submit":
            continue
        floor = {}
        for earlier in itertools.takewhile(lambda operation: operation.end < later.begin, done):
            for name, (_, level) in earlier.seen.items():
                floor[name] = max(floor.get(name, 0), level)
        for name, level in floor.items():
            if later.kind == "cancel" and name != later.name:
                continue
            seen = later.seen.get(name, (0, 0))[1]
            if seen < level:
                found.append(f"a {later.kind} at {later.begin:.3f} saw {name} at level {seen}, after level {level} was known")

    begun = {}
    for operation in operations:
        if operation.kind != "list":
            level = SUBMITTED if operation.kind == "submit" else CANCEL_REQUESTED
            begun[operation.name, level] = min(operation.begin, begun.get((operation.name, level), operation.begin))
    for operation in done:
        for name, (_, level) in operation.seen.items():
            causes = [SUBMITTED] + ([CANCEL_REQUESTED] if level == CANCEL_REQUESTED else [])
            for cause in causes:
                if begun.get((name, cause), float("inf")) > operation.end:
                    found.append(f"{name} was seen at level {level} before a client had begun level {cause}")

    lists = [operation for operation in done if operation.kind == "list"]
    for one, other in itertools.combinations(lists, 2):
        jobs = one.seen.keys() | other.seen.keys()
        order = {(one.seen.get(name, (0, 0))[1] > other.seen.get(name, (0, 0))[1]) -
                 (one.seen.get(name, (0, 0))[1] < other.seen.get(name, (0, 0))[1]) for name in jobs}
        if {1, -1} <= order:
            found.append(f"the lists at {one.begin:.3f} and {other.begin:.3f} contradict each other")
    return found
