"""Starts, watches and reaps real programs in a temporary folder.

Each process gets its own session and is ended by pid in tearDown. `leftovers()` finds any process
that still has the test's mark in its environment.
"""
import ctypes
import errno
import fcntl
import glob
import json
import os
import pathlib
import platform
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unittest
import urllib.request
import uuid

BIN = pathlib.Path(os.environ["MUSTER_BIN_DIR"])
SOURCE = pathlib.Path(os.environ["MUSTER_SOURCE_DIR"])
MARK = "MUSTER_TEST_MARK"
STEP_LINE = re.compile(
    r"^completed step: (\d+), seconds: (\d+\.\d{3,}), TFLOP/s/device: (\d+\.\d{3,}), "
    r"Tokens/s/device: (\d+\.\d{3,}), total_weights: (\d+), loss: (\d+\.\d{3,})$", re.M)

# A model that trains in milliseconds per step, as overrides of base.yml.
TINY = ["override_model_config=true", "base_emb_dim=32", "base_num_decoder_layers=2", "base_num_query_heads=4",
        "base_num_kv_heads=2", "head_dim=8", "base_mlp_dim=64", "vocab_size=256", "max_target_length=32",
        "per_device_batch_size=2", "learning_rate=1e-3", "dtype=float32"]


def wait_until(condition, seconds=30, what="condition"):
    """Polls until condition() is true and returns its value; fails after a bounded time."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not come true within {seconds} s")
        time.sleep(0.02)


def processes_with_mark(mark):
    found = []
    for path in glob.glob("/proc/[0-9]*/environ"):
        try:
            with open(path, "rb") as file:
                if f"{MARK}={mark}".encode() in file.read().split(b"\0"):
                    found.append(int(path.split("/")[2]))
        except OSError:
            continue
    return [pid for pid in found if pid != os.getpid() and not is_zombie(pid)]


def is_zombie(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


def command_line(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def forbid_tracing():
    """Denies ptrace and process_vm_readv to this process and its children, as a container's seccomp
    profile does.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    ptrace, read_memory = (101, 310) if platform.machine() == "x86_64" else (117, 270)
    load, if_equal, ret, allowed, refused = 0x20, 0x15, 0x06, 0x7FFF0000, 0x00050000 | errno.EPERM
    program = b"".join(struct.pack("HBBI", *step) for step in (
        (load, 0, 0, 0), (if_equal, 2, 0, ptrace), (if_equal, 1, 0, read_memory), (ret, 0, 0, allowed), (ret, 0, 0, refused)))
    bytes_ = ctypes.create_string_buffer(program, len(program))
    head = struct.pack("HP", len(program) // 8, ctypes.addressof(bytes_))
    no_new_privileges, set_seccomp, filter_mode = 38, 22, 2
    if libc.prctl(no_new_privileges, 1, 0, 0, 0) != 0 or libc.prctl(set_seccomp, filter_mode, head) != 0:
        raise OSError(ctypes.get_errno(), "seccomp")


class MusterTest(unittest.TestCase):
    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="muster-e2e-"))
        self.mark = uuid.uuid4().hex
        self.env = {**os.environ, MARK: self.mark, "NO_COLOR": "1"}
        self.env.pop("MUSTER_COORDINATOR", None)
        self.processes = []

    def tearDown(self):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.communicate()
        left = wait_gone(self.mark, 30)
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.dir, ignore_errors=True)
        self.assertEqual(left, [], "processes outlived the test")

    def gpus(self, *lines):
        """Sets the state of the fake NVML (tests/fake_nvml) for running and later processes."""
        file = self.dir / "gpus"
        if self.env.get("MUSTER_FAKE_NVML") is None:
            self.env["MUSTER_FAKE_NVML"] = str(file)
            self.env["LD_LIBRARY_PATH"] = f"{BIN.parent / 'fake_nvml'}:{os.environ.get('LD_LIBRARY_PATH', '')}"
            self.env.pop("CUDA_VISIBLE_DEVICES", None)
        new = self.dir / "gpus.new"
        new.write_text("\n".join(lines) + "\n")
        new.rename(file)

    def store_gemm_peak(self):
        """Stores a peak of this machine's GEMMs, for tests that need MFU: while other tests use the
        CPUs, a trainer does not measure one.
        """
        cache = self.dir / "cache"
        (cache / "muster").mkdir(parents=True)
        self.env["XDG_CACHE_HOME"] = str(cache)
        model = re.search(r"^model name\s*:\s*(.*?)\s*$", pathlib.Path("/proc/cpuinfo").read_text(), re.M)
        keys = [f"{platform.node()}|{model.group(1) if model else 'CPU'}|{threads} threads|{dtype}"
                for threads in range(1, os.cpu_count() + 1) for dtype in ("float32", "bfloat16")]
        (cache / "muster/gemm-peaks.json").write_text(json.dumps(dict.fromkeys(keys, 1.0)))

    # ------------------------------------------------------------------ commands

    def muster(self, *args, check=None, timeout=120, env=None, cwd=None):
        """Runs the CLI to its end. `check`: the expected exit code."""
        result = subprocess.run([str(BIN / "muster"), *map(str, args)], capture_output=True, text=True,
                                timeout=timeout, env={**self.env, **(env or {})}, cwd=cwd or self.dir)
        if check is not None:
            self.assertEqual(result.returncode, check,
                             f"muster {' '.join(map(str, args))}\n{result.stdout}\n{result.stderr}")
        return result

    def on_terminal(self, *command, columns=80, seconds=120):
        """Runs a program to its end on a terminal of that width. Returns (exit code, bytes
        written).
        """
        reader, terminal = os.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        process = subprocess.Popen(list(map(str, command)), stdin=terminal, stdout=terminal, stderr=terminal, cwd=self.dir,
                                   env={**self.env, "TERM": "xterm"}, start_new_session=True)
        self.processes.append(process)
        os.close(terminal)
        written, deadline = b"", time.monotonic() + seconds
        try:
            while select.select([reader], [], [], max(0, deadline - time.monotonic()))[0]:
                try:
                    chunk = os.read(reader, 65536)
                except OSError:  # the terminal's last user has closed it
                    chunk = b""
                if not chunk:
                    return process.wait(timeout=30), written
                written += chunk
        finally:
            os.close(reader)
        raise AssertionError(f"{command[0]} did not end within {seconds} s: {written!r}")

    def start(self, *command, stdout=None, **kwargs):
        """Starts a program in the background with its output in files `<n>.out` (or in `stdout`)
        and `<n>.err`.
        """
        number = len(self.processes)
        out = open(self.dir / f"{number}.out", "w")
        err = open(self.dir / f"{number}.err", "w")
        process = subprocess.Popen(list(map(str, command)), stdout=stdout or out, stderr=err, stdin=subprocess.DEVNULL,
                                   env=self.env, cwd=self.dir, start_new_session=True, **kwargs)
        out.close()
        err.close()
        process.out_path, process.err_path = self.dir / f"{number}.out", self.dir / f"{number}.err"
        self.processes.append(process)
        return process

    def output(self, process):
        return process.out_path.read_text() + process.err_path.read_text()

    def base_yml(self):
        return SOURCE / "configs" / "base.yml"

    def run_args(self, name, *overrides, ranks=4):
        """Arguments of a small synthetic run under self.dir/out."""
        return ["run", self.base_yml(), f"run_name={name}", f"base_output_directory={self.dir}/out",
                "dataset_type=synthetic", *TINY, *overrides, "--ranks", str(ranks)]

    def start_run(self, name, *overrides, ranks=4, **kwargs):
        """Starts `muster run` with these arguments; keyword arguments are those of start()."""
        return self.start(BIN / "muster", *self.run_args(name, *overrides, ranks=ranks), **kwargs)

    def wait_for_step(self, process, step):
        """Waits until that run has printed the step."""
        def reached():
            self.assertIsNone(process.poll(), self.output(process))
            lines = step_lines(process.out_path.read_text())
            return lines and lines[-1][0] >= step
        wait_until(reached, 60, f"step {step}")

    # ------------------------------------------------------------------ fleet

    def start_coordinator(self, state="state", listen="127.0.0.1:0", http="127.0.0.1:0", extra=()):
        port_file = self.dir / f"coordinator-{len(self.processes)}.json"
        process = self.start(BIN / "muster-coordinator", "--listen", listen, "--http", http, "--state-dir",
                             self.dir / state, "--port-file", port_file, *extra)
        process.ports = json.loads(self.wait_for_file(process, port_file))
        process.address = f"127.0.0.1:{process.ports['grpc_port']}"
        self.env["MUSTER_COORDINATOR"] = process.address
        return process

    def start_worker(self, coordinator, name="node0", slots=4, extra=(), **kwargs):
        port_file = self.dir / f"worker-{len(self.processes)}.json"
        process = self.start(BIN / "muster-worker", "--coordinator", coordinator.address, "--name", name, "--slots",
                             slots, "--work-dir", self.dir / "work" / name, "--http", "127.0.0.1:0", "--sys-root",
                             self.dir / "sys", "--port-file", port_file, *extra, **kwargs)
        process.ports = json.loads(self.wait_for_file(process, port_file))
        return process

    def wait_for_file(self, process, path):
        def ready():
            if process.poll() is not None:
                raise AssertionError(f"{process.args[0]} ended with {process.returncode}: {self.output(process)}")
            return path.exists()
        wait_until(ready, 20, f"{path.name} of {process.args[0]}")
        return path.read_text()

    def ranks_of_test(self):
        """Returns {rank: pid} of the live trainer processes of this test."""
        found = {}
        for pid in processes_with_mark(self.mark):
            if "muster-trainer train" not in command_line(pid):
                continue
            try:
                environ = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            except OSError:
                continue
            rank = [e[5:] for e in environ if e.startswith(b"RANK=")]
            if rank:
                found[int(rank[0])] = pid
        return found

    def page(self, process, path):
        """Returns (status, text) of a page of a daemon's HTTP server."""
        with urllib.request.urlopen(f"http://127.0.0.1:{process.ports['http_port']}{path}", timeout=5) as response:
            return response.status, response.read().decode()

    def samples(self, process):
        """Returns {series: value} of a daemon's /metrics; a series is written as on the page."""
        lines = [line for line in self.page(process, "/metrics")[1].splitlines() if not line.startswith("#")]
        return {series: float(value) for series, value in (line.rsplit(" ", 1) for line in lines)}

    def job(self, job_id):
        return json.loads(self.muster("status", job_id, "--json", check=0).stdout)


def wait_gone(mark, seconds):
    deadline = time.monotonic() + seconds
    while True:
        left = processes_with_mark(mark)
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.05)


def step_lines(text):
    """Returns [(step, loss as printed)] of every step line."""
    return [(int(m.group(1)), m.group(6)) for m in STEP_LINE.finditer(text)]


def drawn_bars(written):
    """Returns the states of the progress bar in a terminal's bytes: texts that were drawn and then
    cleared without a newline.
    """
    parts = written.decode(errors="replace").split("\r\x1b[2K")[1:-1]
    return [part for part in parts if part and "\n" not in part]


def metrics(path):
    """Returns the rows of a metrics_file: the last row of each step, without an unfinished row."""
    text = pathlib.Path(path).read_text()
    rows = [json.loads(line) for line in text[:text.rfind("\n") + 1].splitlines()]
    return {row["step"]: row for row in rows}
