"""Programs and machines as people have them: scripts that cannot be executed, standard input,
progress bars, quotas, limits, and host names that are not text.
"""
import json
import os
import pty
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import unittest

from control_group import ControlGroup
from harness import SOURCE, wait_gone, wait_until
from programs import ProgramTest

BAR_PY = '''
import os, sys, time
for n in range(60):
    sys.stderr.write("\\r%3d%%|%s| %d/60" % (n * 100 // 60, "#" * (n // 6), n))
    sys.stderr.flush()
    time.sleep(0.05)
'''


class OddPrograms(ProgramTest):
    def group(self, controller, limits):
        try:
            group = ControlGroup(f"muster-{self.mark}", controller, limits)
        except OSError as error:
            self.skipTest(f"no control group of {controller} can be made here: {error}")
        self.addCleanup(group.remove)
        return group

    def run_words(self, *words, ranks=1, options=()):
        return [self.bin("muster"), "run", "--name", "job", "--ranks", str(ranks), *options, "--", *map(str, words)]

    def started(self, words, **kwargs):
        """Runs the words to their end. Returns the result; nothing is left running."""
        result = subprocess.run(list(map(str, words)), capture_output=True, env=self.env, cwd=self.dir, timeout=120, **kwargs)
        self.assertEqual(wait_gone(self.mark, 30), [], "something is still running")
        result.stdout, result.stderr = (text.decode(errors="surrogateescape") for text in (result.stdout, result.stderr))
        return result

    # ------------------------------------------------------------------ scripts

    def test_scripts_that_cannot_be_executed_are_named_and_not_retried(self):
        for name, text, code, problem in (
                ("no-line", "echo hi\n", 126, r"no-line cannot be executed: it has no interpreter line \(#!\); name its interpreter in front"),
                ("crlf", "#!/bin/sh\r\necho hi\r\n", 126, r"the interpreter /bin/sh\\x0d: the line ends in a carriage return"),
                ("env-crlf", "#!/usr/bin/env python3\r\nprint()\r\n", 126, r"/usr/bin/env python3\\x0d: the line ends in a carriage return"),
                ("missing", "#!/opt/none/python3\nprint()\n", 126, r"the interpreter /opt/none/python3, which does not exist"),
                ("empty", "", 126, "empty cannot be executed: the file is empty"),
                ("bom", "\ufeff#!/bin/sh\n", 126, "a byte order mark stands before its first line"),
                ("says-126", "#!/bin/sh\nexit 126\n", 126, "exited with code 126"),
                ("says-127", "#!/bin/sh\nno-such-command\n", 127, "no-such-command")):
            with self.subTest(name):
                self.script(name, text).chmod(0o755)
                result = self.run_program(f"./{name}", options=["--restarts", "3"], check=code)
                self.assertRegex(result.stderr, problem)
                self.assertIn("a program that is missing or cannot be executed is not retried", result.stderr)
                self.assertNotIn("RESTARTING", result.stderr)

    # ------------------------------------------------------------------ standard input

    def test_rank_0_has_the_launchers_input(self):
        code = self.script("code.py", "import os; print('rank', os.environ['RANK'], 'ran', flush=True)\n")
        for name, words, options, ranks, expected in (
                ("a program in a pipe", ["python3", "-"], [], 1, "rank 0 ran\n"),
                ("only rank 0", ["sh", "-c", 'sleep 0.$RANK; echo "$RANK:$(cat | wc -c)"'], [], 2, f"0:{code.stat().st_size}\n"),
                ("none", ["sh", "-c", "cat | wc -c"], ["--stdin", "none"], 1, "0\n"),
                ("rank0 by name", ["sh", "-c", "cat | wc -l"], ["--stdin", "rank0"], 1, "1\n"),
                ("a program that reads nothing", ["echo", "hi"], [], 1, "hi\n")):
            with self.subTest(name):
                result = self.started(self.run_words(*words, ranks=ranks, options=options), input=code.read_bytes())
                self.assertEqual((result.returncode, result.stdout), (0, expected), result.stderr)
                if ranks == 2:
                    self.assertIn("[rank 1] 1:0\n", result.stderr)
        result = self.muster("run", "--stdin", "all", "--", "true", check=2)
        self.assertIn("--stdin", result.stderr)

    def test_each_attempt_reads_a_file_from_its_start_and_a_pipe_cannot_be(self):
        code = self.script("code.py", "import os, sys; print('attempt', os.environ['MUSTER_ATTEMPT'], flush=True)\n"
                                      "sys.exit(0 if os.environ['MUSTER_ATTEMPT'] == '3' else 1)\n")
        with code.open() as file:
            result = self.started(self.run_words("python3", "-"), stdin=file)
        self.assertEqual((result.returncode, result.stdout), (0, "attempt 1\nattempt 2\nattempt 3\n"), result.stderr)
        result = self.started(self.run_words("python3", "-"), input=code.read_bytes())
        self.assertEqual((result.returncode, result.stdout), (126, "attempt 1\n"), "a retry would read nothing and succeed")
        self.assertIn("an earlier attempt has read its standard input, a pipe, to the end", result.stderr)

    def test_a_pipe_that_is_not_read_stops_no_retry(self):
        script = 'test "$MUSTER_ATTEMPT" = 2'
        for name, text, is_closed in (("ends during the first attempt", b"", True), ("has data that is not read", b"one\n", True),
                                      ("stays open", b"", False)):
            with self.subTest(name):
                reader, writer = os.pipe()
                os.write(writer, text)
                words = list(map(str, self.run_words("sh", "-c", f'echo "attempt $MUSTER_ATTEMPT"; sleep 1; {script}')))
                with os.fdopen(reader, "rb") as input_file, subprocess.Popen(words, stdin=input_file, stdout=subprocess.PIPE,
                                                                             stderr=subprocess.PIPE, text=True, env=self.env,
                                                                             cwd=self.dir) as run:
                    first = run.stdout.readline()
                    if is_closed:
                        os.close(writer)
                    rest, errors = run.communicate(timeout=120)
                if not is_closed:
                    os.close(writer)
                self.assertEqual((run.returncode, first + rest), (0, "attempt 1\nattempt 2\n"), errors)

    def test_a_slow_writer_and_a_socket_are_not_read_again(self):
        code = b"import os, sys; print('attempt', os.environ['MUSTER_ATTEMPT'], flush=True); sys.exit(1)\n"
        reader, writer = os.pipe()
        with os.fdopen(reader, "rb") as input_file:
            slow = threading.Timer(2, lambda: (os.write(writer, code), os.close(writer)))
            slow.start()
            self.addCleanup(slow.join)
            result = self.started(self.run_words("python3", "-"), stdin=input_file)
        self.assertEqual((result.returncode, result.stdout), (126, "attempt 1\n"), result.stderr)
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.sendall(code)
            ours.shutdown(socket.SHUT_WR)
            result = self.started(self.run_words("python3", "-"), stdin=theirs)
        self.assertEqual((result.returncode, result.stdout), (126, "attempt 1\n"), result.stderr)
        self.assertIn("has read its standard input", result.stderr)

    def test_an_attempt_that_reads_the_rest_of_a_pipe_is_announced(self):
        reader, writer = os.pipe()
        os.write(writer, b"one\ntwo\n")
        with os.fdopen(reader, "rb") as input_file:
            try:
                script = 'read -r line; echo "$line"; test "$MUSTER_ATTEMPT" = 2'
                result = self.started(self.run_words("sh", "-c", script), stdin=input_file)
            finally:
                os.close(writer)
        self.assertEqual((result.returncode, result.stdout), (0, "one\ntwo\n"), result.stderr)
        self.assertEqual(result.stderr.count("reads its standard input, a pipe, from where the previous attempt stopped"), 1, result.stderr)

    def test_a_worker_that_replaces_a_dead_one_has_the_mark_of_the_input(self):
        code = ("import os, sys, time\nprint('attempt', os.environ['MUSTER_ATTEMPT'], flush=True)\n"
                "if os.environ['MUSTER_ATTEMPT'] == '1': time.sleep(600)\n")
        for name, is_file, code_of_end, output in (("file", True, 0, "attempt 1\nattempt 2\n"), ("pipe", False, 126, "attempt 1\n")):
            with self.subTest(name):
                if is_file:
                    input_file = self.script("code.py", code).open("rb")
                else:
                    reader, writer = os.pipe()
                    os.write(writer, code.encode())
                    os.close(writer)
                    input_file = os.fdopen(reader, "rb")
                words = list(map(str, self.run_words("python3", "-")))
                with input_file, subprocess.Popen(words, stdin=input_file, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                                  env=self.env, cwd=self.dir) as run:
                    first = run.stdout.readline()
                    os.kill(self.pid_of_daemon("muster-worker"), signal.SIGKILL)
                    rest, errors = run.communicate(timeout=120)
                self.assertEqual((run.returncode, first + rest), (code_of_end, output), errors)
                self.assertIn("muster-worker was killed by signal 9; restarting it", errors)
                self.assertEqual(wait_gone(self.mark, 30), [])

    def test_a_debugger_can_be_used_at_a_terminal(self):
        script = self.script("debugged.py", "x = 41\nbreakpoint()\nprint('x is', x, flush=True)\n")
        pid, terminal = pty.fork()
        if pid == 0:
            os.chdir(self.dir)
            os.execve(self.bin("muster"), self.run_words("python3", script), {**self.env, "TERM": "xterm"})
        seen = b""

        def wait_for(text):
            nonlocal seen
            deadline = time.monotonic() + 60
            while text not in seen:
                self.assertGreater(deadline, time.monotonic(), seen)
                if select.select([terminal], [], [], 1)[0]:
                    try:
                        seen += os.read(terminal, 65536)
                    except OSError:
                        break
            self.assertIn(text, seen)
        try:
            wait_for(b"(Pdb) ")
            os.write(terminal, b"x = x + 1\n")
            time.sleep(1)
            os.write(terminal, b"c\n")
            wait_for(b"x is 42")
            wait_for(b"SUCCEEDED")
            self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 0, seen)
        except AssertionError:
            os.kill(pid, signal.SIGKILL)
            raise
        finally:
            os.close(terminal)
        self.assertEqual(wait_gone(self.mark, 30), [])

    # ------------------------------------------------------------------ output

    def test_progress_bar_is_followed_and_the_error_behind_it_is_found(self):
        script = self.script("bar.py", BAR_PY + 'print("\\nRuntimeError: \\x1b[31mboom\\x1b[0m", flush=True)\nsys.exit(1)\n')
        began = time.monotonic()
        run = self.start(*self.run_words("python3", script, options=["--restarts", "0"]))
        wait_until(lambda: "/60" in run.out_path.read_text(), 20, "the first state of the bar")
        self.assertIsNone(run.poll(), "it is shown while the program runs")
        self.assertEqual(run.wait(timeout=60), 1)
        seconds = time.monotonic() - began
        states = re.findall(r"\d+/60", run.out_path.read_text())
        self.assertGreater(len(states), 1, self.output(run))
        self.assertLess(len(states), seconds + 3, "at most one a second, and the last one")
        self.assertEqual(states[-1], "59/60")
        incident = json.loads(self.output(run) and next(iter(self.dir.glob("job/muster/0001/incident-*.json"))).read_text())
        text = json.dumps(incident)
        self.assertIn("RuntimeError: boom", text)
        self.assertNotIn("\\u001b", text, "no colours")
        self.assertNotIn("10/60", text, "no old states")
        self.assertRegex(run.err_path.read_text(), r"exited with code 1: RuntimeError: boom")
        self.assertRegex(run.err_path.read_text(), r"\d+ earlier states of lines with carriage returns .* were replaced")

    def test_a_line_in_a_file_is_not_divided_by_a_notice(self):
        script = 'test "$RANK" = 0 || { sleep 1.5; echo other; exit 0; }; printf abc; sleep 3; echo def'
        result = self.run_program("sh", "-c", script, ranks=2)
        self.assertEqual(result.stdout, "abcdef\n", result.stderr)
        self.assertIn("[rank 1] other\n", result.stderr)

    def test_logs_keep_the_last_state_of_a_line(self):
        coordinator = self.start_coordinator()
        self.start_worker(coordinator)
        self.muster("submit", "--name", "bar", "--", "printf", r"start\r\n\r 10%%\r 50%%\r\033[32m100%%\033[0m\ndone\n", check=0)
        wait_until(lambda: self.job(1)["state"] == "SUCCEEDED", 30, "the end")
        result = self.muster("logs", 1, check=0)
        self.assertEqual(result.stdout, "start\n\x1b[32m100%\x1b[0m\ndone\n")
        self.assertIn("2 earlier states", result.stderr)
        rows = [json.loads(line)["line"] for line in self.muster("logs", 1, "--json", check=0).stdout.splitlines()]
        self.assertEqual(rows, ["start", "100%", "done"])

    def test_nested_bars_leave_the_last_state_of_each_row(self):
        # The output of two tqdm bars, the inner one below the outer one.
        script = self.script("bars.py", "import sys\nout = sys.stdout\nfor i in range(50):\n"
                                        "    out.write(f'\\router {i}')\n    for j in range(4): out.write(f'\\n\\rinner {j}\\x1b[A')\n"
                                        "out.write('\\router 50\\n\\ndone\\n')\n")
        result = self.started(self.run_words("python3", script))
        self.assertEqual(result.returncode, 0, result.stderr)
        lines = result.stdout.replace("\x1b[A", "").splitlines()
        self.assertEqual(lines[-3:], ["outer 50", "inner 3", "done"], result.stdout)
        self.assertLess(len(lines), 20, "states of the bars were printed as lines")
        self.assertIn("earlier states", result.stderr)

    # ------------------------------------------------------------------ limits

    def test_cpu_quota_bounds_the_threads_of_ranks(self):
        for quota, ranks, threads in (("50000 100000", 1, 1), ("100000 100000", 1, 1), ("150000 100000", 1, 1),
                                      ("100000 100000", 2, 1), ("max 100000", 1, len(os.sched_getaffinity(0)))):
            with self.subTest(quota=quota, ranks=ranks):
                try:
                    group = ControlGroup(f"muster-{self.mark}", "cpu", {"cpu.max": quota})
                except OSError as error:
                    self.skipTest(f"no control group of cpu can be made here: {error}")
                try:
                    result = self.started(group.command(*self.run_words("sh", "-c", "echo $OMP_NUM_THREADS", ranks=ranks)))
                finally:
                    group.remove()
                self.assertEqual((result.returncode, result.stdout), (0, f"{threads}\n"), result.stderr)

    def test_cpu_quota_bounds_the_threads_of_the_trainer(self):
        """A saved plan has the trainer's threads, and a rank compares its own with them."""
        plan = self.dir / "step.plan"
        tiny = ["base_emb_dim=32", "base_num_decoder_layers=1", "base_num_query_heads=2", "base_num_kv_heads=2", "head_dim=16", "base_mlp_dim=32",
                "vocab_size=64", "max_target_length=16", "per_device_batch_size=1", "dataset_type=synthetic", "steps=2", "dtype=float32",
                "enable_checkpointing=false", "run_name=quota", f"base_output_directory={self.dir}", f"compiled_trainstep_file={plan}"]
        for quota, threads in (("50000 100000", 1), ("100000 100000", 1), ("150000 100000", 1)):
            with self.subTest(quota=quota):
                try:
                    group = ControlGroup(f"muster-{self.mark}", "cpu", {"cpu.max": quota})
                except OSError as error:
                    self.skipTest(f"no control group of cpu can be made here: {error}")
                try:
                    plan.unlink(missing_ok=True)
                    planned = self.started(group.command(self.bin("muster"), "plan", SOURCE / "configs/base.yml", *tiny, "compile_topology=cpu-1"))
                    self.assertEqual(planned.returncode, 0, planned.stderr)
                    self.assertEqual(json.loads(plan.read_text())["plan"]["threads"], threads)
                    result = self.started(group.command(self.bin("muster"), "run", SOURCE / "configs/base.yml", *tiny))
                    self.assertEqual(result.returncode, 0, result.stderr)
                finally:
                    group.remove()
        if len(os.sched_getaffinity(0)) > 1:
            result = self.started([self.bin("muster"), "run", SOURCE / "configs/base.yml", *tiny])
            self.assertIn("the plan is for 1 thread", result.stderr)

    def test_limits_that_stop_a_start_are_named(self):
        group = self.group("pids", {"pids.max": "30"})
        as_user = ["setpriv", "--reuid", "61235", "--regid", "61235", "--clear-groups"] if os.getuid() == 0 else []
        os.chmod(self.dir, 0o777)
        words = self.run_words("true")
        for name, command, problem in (
                ("pids.max", group.command(*words), r"needs at least \d+ more threads, but pids.max allows 30 processes and threads"),
                ("ulimit -n", ["sh", "-c", 'ulimit -n 20; exec "$@"', "sh", *words], r"needs at least \d+ open files, but ulimit -n allows 20"),
                ("ulimit -v", ["bash", "-c", 'ulimit -v 400000; exec "$@"', "sh", *words],
                 r"needs at least \d+ MiB of address space, but ulimit -v allows 390 MiB"),
                ("ulimit -u", [*as_user, "bash", "-c", 'ulimit -u 20; exec "$@"', "sh", *words],
                 r"needs at least \d+ more threads, but only \d+ start: ulimit -u allows 20 processes and threads"),
                ("worker", ["bash", "-c", 'ulimit -n 20; exec "$@"', "sh", self.bin("muster-worker"), "--work-dir", self.dir / "work"],
                 r"the worker needs at least \d+ open files"),
                ("coordinator", ["bash", "-c", 'ulimit -v 300000; exec "$@"', "sh", self.bin("muster-coordinator"), "--state-dir", self.dir / "state"],
                 r"the coordinator needs at least \d+ MiB of address space")):
            with self.subTest(name):
                result = self.started(command)
                self.assertIn(result.returncode, (1, 2), result.stderr)
                self.assertRegex(result.stderr, problem)
                self.assertNotIn("terminate called", result.stderr)

    def test_the_limit_of_inotify_instances_is_named(self):
        result = self.started(self.without_inotify(61237, self.run_words("true")))
        self.assertIn(result.returncode, (1, 2), result.stderr)
        self.assertIn("fs.inotify.max_user_instances", result.stderr)

    def test_rank_that_the_kernel_kills_for_memory_has_that_reason(self):
        group = self.group("memory", {"memory.max": str(300 << 20)})
        script = self.script("eats.py", "data = []\nwhile True: data.append(bytearray(b'x' * (1 << 20)))\n")
        result = self.started(group.command(*self.run_words("python3", script, options=["--restarts", "0"])))
        self.assertEqual(result.returncode, 137, result.stderr)
        self.assertRegex(result.stderr, r"was killed by signal 9 \(SIGKILL\): "
                         r"out of memory \(cgroup limit 300 MiB(, used (299|300) MiB)?")

    # ------------------------------------------------------------------ names

    def test_host_names_that_are_not_text_do_no_harm(self):
        if os.getuid() != 0 or subprocess.run(["unshare", "--uts", "true"], capture_output=True).returncode != 0:
            self.skipTest("naming a machine needs root and namespaces")
        set_name = "import socket, sys, os; socket.sethostname(eval(sys.argv[1])); os.execv(sys.argv[2], sys.argv[2:])"
        for name in (b"caf\xe9", b"\xff\xfe", b"node\xe4\xb8", b"plain", "nœud".encode(), b"a\nb", b"\x1b[31m"):
            with self.subTest(name):
                result = self.started(["unshare", "--uts", sys.executable, "-c", set_name, repr(name), *self.run_words("echo", "hi")])
                self.assertEqual((result.returncode, result.stdout), (0, "hi\n"), result.stderr)
        # A fleet: the worker's default name is the host's.
        coordinator = self.start_coordinator()
        self.start("unshare", "--uts", sys.executable, "-c", set_name, repr(b"caf\xe9"), self.bin("muster-worker"), "--coordinator",
                   coordinator.address, "--work-dir", self.dir / "work")
        rows = wait_until(lambda: json.loads(self.muster("node", "list", "--json", check=0).stdout)["nodes"], 30, "the worker")
        self.assertIn("caf", json.dumps(rows))
        self.muster("submit", "--", "true", check=0)
        wait_until(lambda: self.job(1)["state"] == "SUCCEEDED", 30, "the end")


if __name__ == "__main__":
    unittest.main()
