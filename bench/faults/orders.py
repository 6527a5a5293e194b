"""Orders that make ranks fail (fault_orders.h)."""
import json
import time

COMMIT_SECONDS_MAX = 30


def wait_until(condition, seconds, what):
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {seconds} s")
        time.sleep(0.02)


class Orders:
    def __init__(self, folder):
        self.folder, self.number = folder, 0
        folder.mkdir()

    def give(self, *faults):
        """Returns when the first order was carried out, in seconds since the epoch."""
        self.number += 1
        done = [self.folder / f"done.{self.number}.{fault['rank']}" for fault in faults]
        new = self.folder / "order.new"
        new.write_text(json.dumps({"number": self.number, "faults": faults}))
        new.rename(self.folder / "order.json")
        wait_until(lambda: all(path.exists() for path in done), COMMIT_SECONDS_MAX, "the fault")
        return min(int(path.read_text()) for path in done) / 1e9
