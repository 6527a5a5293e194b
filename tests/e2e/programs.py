"""Common parts of tests of `muster run -- COMMAND`."""
import os
import pathlib
import resource

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

    def without_inotify(self, uid, command):
        """Returns a command that runs `command` as a user who has as many inotify instances as the
        sysctl allows. `uid`: of a user without other processes, whose limit this is.
        """
        if os.getuid() != 0:
            self.skipTest("changing to a user without other processes, whose limit this is, needs root")
        most = int(pathlib.Path("/proc/sys/fs/inotify/max_user_instances").read_text())
        if most + 500 > resource.getrlimit(resource.RLIMIT_NOFILE)[1]:
            self.skipTest("more instances are allowed than open files")
        os.chmod(self.dir, 0o777)
        take_all = ("import ctypes, os, resource, sys; hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n"
                    "resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard)); take = ctypes.CDLL(None).inotify_init\n"
                    "while take() >= 0: pass\n"
                    "os.execv(sys.argv[1], sys.argv[1:])")
        return ["setpriv", "--reuid", str(uid), "--regid", str(uid), "--clear-groups", "env", f"HOME={self.dir}", "python3", "-c", take_all, *command]

    @staticmethod
    def bin(name):
        return os.path.join(os.environ["MUSTER_BIN_DIR"], name)

    def pid_of_daemon(self, name):
        """Returns the pid of this test's only process of that program."""
        found = [pid for pid in processes_with_mark(self.mark) if pathlib.Path(command_line(pid).split(" ")[0]).name == name]
        self.assertEqual(len(found), 1, name)
        return found[0]

    def pids_of_ranks(self):
        """Returns {rank: pid} of the live processes that were started as ranks. Children inherit
        the environment of a rank, so the process counts whose parent has another environment. The
        order of pids is no help, because they start again at low values.
        """
        parents = {}
        for pid in processes_with_mark(self.mark):
            try:
                with open(f"/proc/{pid}/environ", "rb") as file:
                    environ = dict(e.split(b"=", 1) for e in file.read().split(b"\0") if b"=" in e)
                with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
                    parent = int(file.read().rpartition(")")[2].split()[1])
            except OSError:
                continue
            if b"MUSTER_PROGRESS_PAGE" in environ:
                parents.setdefault(int(environ[b"RANK"]), {})[pid] = parent
        return {rank: pid for rank, pids in parents.items() for pid, parent in pids.items() if parent not in pids}
