"""A control group for the processes of a test, of either version of the kernel's interface."""
import pathlib
import time

ROOT = pathlib.Path("/sys/fs/cgroup")


class ControlGroup:
    """Makes a group of one controller below this process's own, with limits. Raises OSError where
    that is not permitted.

    `limits`: {file of version 2: value}.
    """

    V1 = {"cpu.max": ("cpu.cfs_quota_us", lambda value: value.split()[0].replace("max", "-1")),
          "memory.max": ("memory.limit_in_bytes", str), "pids.max": ("pids.max", str)}

    def __init__(self, name, controller, limits):
        self.folder, is_v1 = self._own_folder(controller)
        self.folder = self.folder / name
        self.folder.mkdir()
        try:
            for file, value in limits.items():
                if is_v1 and file not in self.V1:
                    raise OSError(f"version 1 has no {file}")
                file, value = (self.V1[file][0], self.V1[file][1](value)) if is_v1 else (file, value)
                if not (self.folder / file).exists():
                    raise OSError(f"{self.folder} has no {file}")
                (self.folder / file).write_text(value)
        except OSError:
            self.folder.rmdir()
            raise

    @staticmethod
    def _own_folder(controller):
        for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controller in controllers.split(","):
                return ROOT / controller / path.lstrip("/"), True
            if not controllers and not (ROOT / controller).is_dir():
                return ROOT / path.lstrip("/"), False
        raise OSError("no control groups are mounted")

    def command(self, *words):
        """Returns the words of a command that runs in the group."""
        return ["sh", "-c", f'echo $$ > {self.folder}/cgroup.procs && exec "$@"', "sh", *map(str, words)]

    def remove(self):
        for _ in range(100):
            try:
                return self.folder.rmdir()
            except OSError:  # a process is about to end
                time.sleep(0.1)
