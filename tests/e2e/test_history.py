"""The checker of histories: it accepts what a correct coordinator does, and catches mutants."""
import copy
import unittest

from history import CANCEL_REQUESTED, ENDED, SUBMITTED, Operation, violations

# Two submissions, one of them without an answer; a cancellation; lists between them.
GOOD = [
    Operation("submit", "a", 0, 1, {"a": (1, SUBMITTED)}),
    Operation("submit", "b", 0.5),
    Operation("list", "", 0.5, 1.5, {"a": (1, SUBMITTED)}),
    Operation("list", "", 2, 3, {"a": (1, SUBMITTED), "b": (2, SUBMITTED)}),
    Operation("cancel", "a", 4, 5, {"a": (1, CANCEL_REQUESTED)}),
    Operation("list", "", 4, 4.5, {"a": (1, SUBMITTED), "b": (2, SUBMITTED)}),
    Operation("list", "", 6, 7, {"a": (1, ENDED), "b": (2, SUBMITTED)}),
    Operation("list", "", 6, 8, {"a": (1, CANCEL_REQUESTED), "b": (2, SUBMITTED)}),
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
            operation.seen.pop("a", None)
        self.assertIn("saw a at level 0, after level 1 was known", violations(lost)[0])

    def test_stale_read_is_caught(self):
        self.assertIn("saw b at level 0, after level 1 was known", self.mutant(6, seen={"a": (1, ENDED)})[0])
        self.assertIn("saw a at level 1, after level 2 was known", self.mutant(7, seen={"a": (1, SUBMITTED), "b": (2, SUBMITTED)})[0])

    def test_reused_and_changed_ids_are_caught(self):
        self.assertIn("the id 1 was given to a and to b", self.mutant(3, seen={"a": (1, SUBMITTED), "b": (1, SUBMITTED)}))
        self.assertIn("b has the ids 2 and 3", self.mutant(6, seen={"a": (1, ENDED), "b": (3, SUBMITTED)}))

    def test_effect_before_its_cause_is_caught(self):
        self.assertTrue(self.mutant(2, seen={"a": (1, CANCEL_REQUESTED)}))

    def test_contradicting_snapshots_are_caught(self):
        operations = [Operation("submit", "a", 0), Operation("submit", "b", 0), Operation("list", "", 1, 3, {"a": (1, SUBMITTED)}),
                      Operation("list", "", 1, 3, {"b": (2, SUBMITTED)})]
        self.assertIn("contradict each other", violations(operations)[0])


if __name__ == "__main__":
    unittest.main()
