"""Checks that a recorded history of submissions, cancellations and lists of jobs is linearizable.

A job only moves forward: absent, submitted, cancellation requested, ended. Each name belongs to one
submission. So each of these events happens once or never, and a list shows exactly which of them
are before it. Such a history is linearizable exactly if the following relation has no cycle:

- an operation that ended before another one began precedes it;
- the submission of a job precedes its other events, and the end of a job that lasts follows a
  cancellation;
- an event precedes each list that shows it, and follows each list that does not;
- an answer to a cancellation is a list of its job alone, after the request.

Besides, a name has one id for ever, and an id has one name. No job is cancelled twice.
"""
import dataclasses
import graphlib
import threading
import time
from typing import Dict, List, Optional, Tuple

SUBMITTED, CANCEL_REQUESTED, ENDED = 1, 2, 3
EVENTS = {SUBMITTED: "submission", CANCEL_REQUESTED: "cancellation", ENDED: "end"}


@dataclasses.dataclass
class Operation:
    """`end`: None: there was no answer, and the effect is unknown. `seen`: the level of each job
    that the answer has, by name and id. `lasts`: the submitted job ends only by a cancellation.
    """

    kind: str  # submit, cancel, list
    name: str  # the job's; "" for lists
    begin: float
    end: Optional[float] = None
    seen: Dict[Tuple[str, int], int] = dataclasses.field(default_factory=dict)
    lasts: bool = False

    def __str__(self):
        return f"the {self.kind}{f' of {self.name}' if self.name else ''} at {self.begin:.3f}"


class History:
    """Records the operations of several threads."""

    def __init__(self):
        self._lock = threading.Lock()
        self.operations: List[Operation] = []

    def begin(self, kind, name="", lasts=False):
        operation = Operation(kind, name, time.monotonic(), lasts=lasts)
        with self._lock:
            self.operations.append(operation)
        return operation

    @staticmethod
    def end(operation, seen):
        operation.seen, operation.end = seen, time.monotonic()

    def answered(self, kind, since):
        """Returns whether an operation of this kind that began after `since` was answered."""
        with self._lock:
            return any(operation.kind == kind and operation.begin > since and operation.end is not None for operation in self.operations)


def contradicting_ids(operations):
    found = []
    ids, names = {}, {}
    for operation in operations:
        for name, number in operation.seen:
            if ids.setdefault(name, number) != number:
                found.append(f"{name} has the ids {ids[name]} and {number}")
            if names.setdefault(number, name) != name:
                found.append(f"the id {number} was given to {names[number]} and to {name}")
    return found


class Order:
    """The relation "precedes" between events of jobs and the answers of operations."""

    def __init__(self, operations):
        self._before = {}  # by each node, the nodes that precede it
        done = [operation for operation in operations if operation.end is not None]
        jobs = {operation.name for operation in operations if operation.name} | {name for operation in done for name, _ in operation.seen}
        self._intervals = []  # (begin, end, node); an end of infinity: there was no answer
        for operation in operations:
            self._place(operation)
        for name in jobs:
            for level in (CANCEL_REQUESTED, ENDED):
                self._add((name, SUBMITTED), (name, level))
        for operation in done:
            if operation.kind == "submit":
                continue
            levels = {name: level for (name, _), level in operation.seen.items()}
            for name in (jobs if operation.kind == "list" else [operation.name]):
                self._show(self._answer(operation), name, levels.get(name, 0))
        for _, end, node in self._intervals:
            for begin, _, later in self._intervals:
                if end < begin:
                    self._add(node, later)

    def _place(self, operation):
        end = float("inf") if operation.end is None else operation.end
        if operation.kind != "list":
            event = (operation.name, SUBMITTED if operation.kind == "submit" else CANCEL_REQUESTED)
            self._intervals.append((operation.begin, end, event))
        if operation.lasts:
            self._add((operation.name, CANCEL_REQUESTED), (operation.name, ENDED))
        if operation.kind != "submit" and operation.end is not None:
            self._intervals.append((operation.begin, end, self._answer(operation)))
        if operation.kind == "cancel" and operation.end is not None:
            self._add(event, self._answer(operation))

    @staticmethod
    def _answer(operation):
        return (str(operation), id(operation))

    def _add(self, first, second):
        self._before.setdefault(second, set()).add(first)

    def _show(self, answer, name, level):
        for event in EVENTS:
            # A job that has ended may have been cancelled or not.
            if event == CANCEL_REQUESTED and level == ENDED:
                continue
            if level >= event:
                self._add((name, event), answer)
            else:
                self._add(answer, (name, event))

    def cycle(self):
        """Returns the nodes of a cycle as texts; empty if there is none."""
        try:
            graphlib.TopologicalSorter(self._before).prepare()
        except graphlib.CycleError as error:
            return [f"the {EVENTS[kind]} of {name}" if kind in EVENTS else name for name, kind in error.args[1]]
        return []


def violations(operations):
    """Returns a sentence for each violation; of several contradictions in the order only one."""
    found = contradicting_ids(operations)
    if cycle := Order(operations).cycle():
        found.append(" precedes ".join(cycle))
    return found
