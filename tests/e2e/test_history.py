"""The checker of histories: it accepts what a correct coordinator does, and catches mutants."""
import copy
import itertools
import random
import unittest

from history import CANCEL_REQUESTED, ENDED, SUBMITTED, Operation, violations

A, B = ("a", 1), ("b", 2)
# Two submissions, one of them without an answer; a cancellation; lists between them.
GOOD = [
    Operation("submit", "a", 0, 1, {A: SUBMITTED}),
    Operation("submit", "b", 0.5),
    Operation("list", "", 0.5, 1.5, {A: SUBMITTED}),
    Operation("list", "", 2, 3, {A: SUBMITTED, B: SUBMITTED}),
    Operation("cancel", "a", 4, 5, {A: CANCEL_REQUESTED}),
    Operation("list", "", 4, 4.5, {A: SUBMITTED, B: SUBMITTED}),
    Operation("list", "", 6, 7, {A: ENDED, B: SUBMITTED}),
    Operation("list", "", 6, 8, {A: CANCEL_REQUESTED, B: SUBMITTED}),
]


class Checker(unittest.TestCase):
    def mutant(self, index, **changes):
        operations = copy.deepcopy(GOOD)
        for key, value in changes.items():
            setattr(operations[index], key, value)
        return violations(operations)

    def test_correct_history_is_accepted(self):
        self.assertEqual(violations(GOOD), [])

    def test_lost_write_is_caught(self):
        lost = copy.deepcopy(GOOD)
        for operation in lost[2:]:
            operation.seen.pop(A, None)
        self.assertTrue(violations(lost))

    def test_stale_read_is_caught(self):
        self.assertTrue(self.mutant(6, seen={A: ENDED}))
        self.assertTrue(self.mutant(7, seen={A: SUBMITTED, B: SUBMITTED}))

    def test_reused_and_changed_ids_are_caught(self):
        self.assertIn("the id 1 was given to a and to b", self.mutant(3, seen={A: SUBMITTED, ("b", 1): SUBMITTED}))
        self.assertIn("b has the ids 2 and 3", self.mutant(6, seen={A: ENDED, ("b", 3): SUBMITTED}))
        self.assertIn("b has the ids 2 and 3", self.mutant(3, seen={A: SUBMITTED, B: SUBMITTED, ("b", 3): SUBMITTED}))

    def test_effect_before_its_cause_is_caught(self):
        self.assertTrue(self.mutant(2, seen={A: CANCEL_REQUESTED}))
        self.assertTrue(violations([Operation("list", "", 0, 1, {A: SUBMITTED}), Operation("submit", "a", 2)]))

    def test_contradicting_snapshots_are_caught(self):
        self.assertTrue(violations([Operation("submit", "a", 0), Operation("submit", "b", 0), Operation("list", "", 1, 3, {A: SUBMITTED}),
                                    Operation("list", "", 1, 3, {B: SUBMITTED})]))

    def test_list_that_shows_only_the_later_of_two_writes_is_caught(self):
        submissions = [Operation("submit", "a", 1, 2, {A: SUBMITTED}, lasts=True), Operation("submit", "b", 3, 4, {B: SUBMITTED}, lasts=True)]
        self.assertTrue(violations([*submissions, Operation("list", "", 0, 5, {B: SUBMITTED})]))
        self.assertEqual(violations([*submissions, Operation("list", "", 0, 5, {A: SUBMITTED})]), [])
        cancellations = [Operation("cancel", "a", 4, 5, {A: ENDED}), Operation("cancel", "b", 6, 7, {B: ENDED})]
        self.assertTrue(violations([*submissions, *cancellations, Operation("list", "", 3.5, 8, {A: SUBMITTED, B: ENDED})]))

    def test_agrees_with_a_search_over_all_orders(self):
        """Small random histories: the checker against the definition of linearizability."""
        draw = random.Random(7)
        verdicts = [0, 0]
        for _ in range(400):
            operations = self.small_history(draw)
            expected = any(map(self.explains, itertools.permutations(range(len(operations))), itertools.repeat(operations)))
            self.assertEqual(not violations(operations), expected, operations)
            verdicts[expected] += 1
        self.assertGreater(min(verdicts), 40, "both kinds were drawn")

    @staticmethod
    def small_history(draw):
        operations = [Operation("submit", "a", 0, 0, {A: SUBMITTED}, lasts=True), Operation("submit", "b", 0, 0, {B: SUBMITTED}),
                      Operation("cancel", "a", 0, 0, {A: ENDED})]
        operations += [Operation("list", "", 0, 0, {job: level for job, level in ((A, draw.choice((0, SUBMITTED, ENDED))), (B, draw.choice((0, SUBMITTED)))) if level})
                       for _ in range(2)]
        for operation in operations:
            operation.begin = draw.uniform(0, 6)
            operation.end = operation.begin + draw.uniform(0, 5)
        return operations

    @staticmethod
    def explains(order, operations):
        """Returns whether this order gives each operation its answer. Nothing ends a but its
        cancellation.
        """
        state = {}
        for place, index in enumerate(order):
            operation = operations[index]
            if any(operations[later].end < operation.begin for later in order[place + 1:]):
                return False
            if operation.kind == "submit":
                state.update(operation.seen)
            elif operation.kind == "cancel":
                if A not in state:
                    return False
                state[A] = ENDED
            elif state != operation.seen:
                return False
        return True


if __name__ == "__main__":
    unittest.main()
