"""Common parts of tests of `muster run -- COMMAND`."""
import os
import pathlib

from harness import MusterTest, command_line, processes_with_mark, wait_gone


class ProgramTest(MusterTest):
    def script(self, name, text):
        path = self.dir / name
        path.write_text(text)
        return path

    def run_program(self, *words, ranks=1, options=(), check=0, **kwargs):
        result = self.muster("run", "--name", "job", "--ranks", ranks, *options, "--", *words, check=check, **kwargs)
        self.assertEqual(wait_gone(self.mark, 30), [], "something is still running")
        return result

    def start_program(self, *words, ranks=1, options=()):
        return self.start(self.bin("muster"), "run", "--name", "job", "--ranks", ranks, *options, "--", *words)

    @staticmethod
    def bin(name):
        return os.path.join(os.environ["MUSTER_BIN_DIR"], name)

    def pid_of_daemon(self, name):
        """Returns the pid of this test's only process of that program."""
        found = [pid for pid in processes_with_mark(self.mark) if pathlib.Path(command_line(pid).split(" ")[0]).name == name]
        self.assertEqual(len(found), 1, name)
        return found[0]

    def pids_of_ranks(self):
        """Returns {rank: pid} of the live processes that were started as ranks. Of the processes
        with a rank's environment the oldest counts: its children inherit it.
        """
        found = {}
        for pid in sorted(processes_with_mark(self.mark), reverse=True):
            try:
                with open(f"/proc/{pid}/environ", "rb") as file:
                    environ = dict(e.split(b"=", 1) for e in file.read().split(b"\0") if b"=" in e)
            except OSError:
                continue
            if b"MUSTER_PROGRESS_PAGE" in environ:
                found[int(environ[b"RANK"])] = pid
        return found
