"""A coordinator and workers as on separate nodes: each worker is in a network namespace, connected
by a bridge, with its own monotonic clock and wall clock.

Needs root. Everything is in one temporary folder and in namespaces named after this process;
close() ends each process by pid and removes the namespaces. A case that needs something that the
machine does not support raises NotHere.
"""
import contextlib
import itertools
import json
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import tempfile

from faults.orders import Orders, wait_until

READY_SECONDS_MAX = 30
NETWORK = "10.99.0"  # only inside the namespaces
UPTIME_SECONDS = 100_000  # difference between the monotonic clocks of consecutive nodes
ENDED = ("FAILED", "CANCELLED", "SUCCEEDED")
_numbers = itertools.count()


class NotHere(RuntimeError):
    """A feature that this machine lacks, with the reason."""


def run_or_refuse(what, *command):
    """Returns None if the command succeeds, else why `what` is unavailable."""
    try:
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    except OSError as error:
        return f"{what}: {error}"
    return None if done.returncode == 0 else f"{what}: {done.stderr.strip() or done.returncode}"


def ip(*arguments):
    subprocess.run(["ip", *map(str, arguments)], check=True, capture_output=True, text=True)


class Network:
    """A hub and one namespace per node: muster<pid>-hub, muster<pid>-0, …"""

    def __init__(self, nodes):
        self.prefix = f"muster{os.getpid()}"
        self.namespaces = []
        self.hub = self._add("hub")
        ip("-n", self.hub, "link", "add", "br0", "type", "bridge")
        ip("-n", self.hub, "addr", "add", f"{NETWORK}.1/24", "dev", "br0")
        ip("-n", self.hub, "link", "set", "br0", "up")
        self.nodes = [self._add_node(node) for node in range(nodes)]

    def _add(self, name):
        namespace = f"{self.prefix}-{name}"
        ip("netns", "add", namespace)
        self.namespaces.append(namespace)
        ip("-n", namespace, "link", "set", "lo", "up")
        return namespace

    def _add_node(self, node):
        namespace = self._add(node)
        ip("-n", self.hub, "link", "add", f"v{node}", "type", "veth", "peer", "name", "eth0", "netns", namespace)
        ip("-n", self.hub, "link", "set", f"v{node}", "master", "br0", "up")
        ip("-n", namespace, "addr", "add", f"{self.address(node)}/24", "dev", "eth0")
        ip("-n", namespace, "link", "set", "eth0", "up")
        return namespace

    @staticmethod
    def address(node):
        return f"{NETWORK}.{10 + node}"

    def connect(self, node, connected):
        """Cuts the node off at the switch, which drops its packets: the node's own link stays up,
        as when a network fails elsewhere.

        If the node's own link lost its carrier, Linux would extend the outage: it checks links once
        a second, resolves neighbours again after one, and TCP backs off. 0.2 s became 1 to 4 s.
        """
        subprocess.run(["bridge", "-n", self.hub, "link", "set", "dev", f"v{node}", "state", "3" if connected else "0"],
                       check=True, capture_output=True, text=True)

    @staticmethod
    def inside(namespace):
        """Returns the prefix of a command that runs in the namespace and keeps its process id."""
        return ("nsenter", f"--net=/run/netns/{namespace}")

    def close(self):
        for namespace in self.namespaces:
            subprocess.run(["ip", "netns", "del", namespace], capture_output=True)


class Clocks:
    """A wall clock for each daemon, by libfault_clock.so. If the kernel has time namespaces, a node
    also has its own uptime.
    """

    def __init__(self, folder, library):
        self.folder, self.library = folder, library
        self.problem = None if library.exists() else f"{library.name} is not built"
        self.apart = run_or_refuse("time namespaces", "unshare", "-T", "--monotonic", "1", "true") is None

    def inside(self, name, uptime_seconds):
        """Returns the prefix of a command that runs with the clocks of this name."""
        own_uptime = ("unshare", "-T", "--monotonic", str(uptime_seconds)) if self.apart and uptime_seconds else ()
        if self.problem:
            return own_uptime
        if not self._file(name).exists():
            self._file(name).write_bytes(struct.pack("q", 0))
        return (*own_uptime, "env", f"LD_PRELOAD={self.library}", f"FAULT_CLOCK={self._file(name)}")

    def move(self, name, seconds):
        if self.problem:
            raise NotHere(self.problem)
        with open(self._file(name), "r+b") as file:
            file.write(struct.pack("q", int(seconds * 1e9)))

    def _file(self, name):
        return self.folder / f"{name}.clock"


class Memory:
    """A control group for one node, within this process' group: of the kernel's version 1 or 2."""

    def __init__(self, name):
        self.problem = None
        try:
            self.folder, self.limit = self._own_folder()
            self.folder = self.folder / name
            self.folder.mkdir()
            if not (self.folder / self.limit).exists():
                raise OSError(f"{self.folder} has no {self.limit}")
        except OSError as error:
            self.problem = f"control groups of memory: {error}"

    @staticmethod
    def _own_folder():
        root = pathlib.Path("/sys/fs/cgroup")
        for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if "memory" in controllers.split(","):
                return root / "memory" / path.lstrip("/"), "memory.limit_in_bytes"
            if not controllers and not (root / "memory").is_dir():
                return root / path.lstrip("/"), "memory.max"
        raise OSError("none is mounted")

    def add(self, pid):
        if not self.problem:
            (self.folder / "cgroup.procs").write_text(str(pid))

    def allow(self, more_bytes):
        """Sets the limit to this much above the current use; None: no limit."""
        if self.problem:
            raise NotHere(self.problem)
        version_1 = self.limit == "memory.limit_in_bytes"
        if more_bytes is None:
            text = "-1" if version_1 else "max"
        else:
            used = self.folder / ("memory.usage_in_bytes" if version_1 else "memory.current")
            text = str(int(used.read_text()) + more_bytes)
        (self.folder / self.limit).write_text(text)

    def close(self):
        if not self.problem:
            wait_until(self._remove, READY_SECONDS_MAX, f"the end of {self.folder}")

    def _remove(self):
        with contextlib.suppress(OSError):  # it has processes that are ending
            self.folder.rmdir()
        return not self.folder.exists()


class Fleet:
    def __init__(self, binaries, nodes=4, slots=2, pace=0.1):
        self.binaries, self.slots, self.pace = binaries, slots, pace
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="muster-faults-"))
        self.orders = Orders(self.folder / "orders")
        self.out = self.folder / "out"  # small, so that it can be filled
        self.disk = self.folder / "disk"  # a file system that can be frozen
        self.out_problem = self._mount_small()
        self.disk_problem = self._mount_disk()
        self.clocks = Clocks(self.folder, binaries / "libfault_clock.so")
        self.environment = {**os.environ, "NO_COLOR": "1", "OMP_NUM_THREADS": "1"}
        self.workers = [None] * nodes
        self.coordinator = None
        self.network = Network(nodes)
        self.memory = [Memory(f"muster-faults-{os.getpid()}-{node}") for node in range(nodes)]
        try:
            self.start_coordinator()
            for node in range(nodes):
                self.start_worker(node)
        except BaseException:
            self.close()
            raise

    def _mount_small(self):
        self.out.mkdir()
        return run_or_refuse("a small file system", "mount", "-t", "tmpfs", "-o", "size=64m", "muster-faults", self.out)

    def _mount_disk(self):
        self.disk.mkdir()
        image = self.folder / "disk.img"
        return (run_or_refuse("a disk's image", "truncate", "-s", "64M", image)
                or run_or_refuse("a disk", "mkfs.ext4", "-q", "-F", image)
                or run_or_refuse("a disk", "mount", "-o", "loop", image, self.disk))

    # ------------------------------------------------------------------ daemons

    def _start(self, namespace, clock, *command):
        """Starts a daemon. Every program of the command replaces the previous one, so the process
        is the daemon.
        """
        number = next(_numbers)
        with open(self.folder / f"{number}.log", "w") as log:
            process = subprocess.Popen([*Network.inside(namespace), *clock, *map(str, command)], stdout=log, stderr=log,
                                       stdin=subprocess.DEVNULL, env=self.environment, start_new_session=True)
        process.log = self.folder / f"{number}.log"
        return process

    def _wait_for_ports(self, process, path):
        def ready():
            if process.poll() is not None:
                raise RuntimeError(f"{process.args}: ended with {process.returncode}\n{process.log.read_text()}")
            return path.exists()
        wait_until(ready, READY_SECONDS_MAX, path.name)
        return json.loads(path.read_text())

    def start_coordinator(self, listen_port=0):
        ports = self.folder / f"coordinator-{next(_numbers)}.json"
        self.coordinator = self._start(
            self.network.hub, self.clocks.inside("coordinator", 0), self.binaries / "muster-coordinator", "--listen", f"{NETWORK}.1:{listen_port}", "--insecure",
            "--http", "127.0.0.1:0", "--state-dir", self.folder / "state", "--port-file", ports)
        self.port = self._wait_for_ports(self.coordinator, ports)["grpc_port"]
        self.environment["MUSTER_COORDINATOR"] = f"{NETWORK}.1:{self.port}"

    def start_worker(self, node):
        ports = self.folder / f"worker-{next(_numbers)}.json"
        address = self.network.address(node)
        self.workers[node] = self._start(
            self.network.nodes[node], self.clocks.inside(f"node{node}", UPTIME_SECONDS * (node + 1)), self.binaries / "muster-worker",
            "--coordinator", f"{NETWORK}.1:{self.port}", "--name", f"node{node}", "--slots", self.slots, "--work-dir", self.folder / f"work{node}", "--rendezvous",
            f"{address}:0", "--insecure", "--local-dir", self.memory_of(node), "--trainer", self.binaries / "faulty_trainer", "--port-file", ports)
        self.memory[node].add(self.workers[node].pid)
        self._wait_for_ports(self.workers[node], ports)

    def kill_everything(self):
        """Kills both daemons' processes with SIGKILL, and so all ranks."""
        for process in [*self.workers, self.coordinator]:
            process.kill()
        for process in [*self.workers, self.coordinator]:
            process.wait()

    def memory_of(self, node):
        """The folder that replaces the node's /dev/shm; it is lost with the node."""
        folder = pathlib.Path("/dev/shm") / f"{self.folder.name}-node{node}"
        folder.mkdir(exist_ok=True)
        return folder

    def forget_memory_of(self, node):
        shutil.rmtree(self.memory_of(node), ignore_errors=True)

    def ensure_workers(self):
        for node, worker in enumerate(self.workers):
            if worker.poll() is not None:
                self.start_worker(node)

    def is_registered(self, node):
        workers = json.loads(self.muster("list", "--workers", "--json"))["workers"]
        return any(worker["name"] == f"node{node}" and worker["connected"] for worker in workers)

    def admit_nodes(self):
        """Clears exclusions of earlier cases: the next job gets node0, node1, … in this order,
        which the cases of nodes rely on.
        """
        for node in range(len(self.workers)):
            self.muster("node", "admit", f"node{node}", check=False)  # an unknown node is rejected

    # ------------------------------------------------------------------ jobs

    def muster(self, *arguments, check=True):
        result = subprocess.run([*Network.inside(self.network.hub), str(self.binaries / "muster"), *map(str, arguments)],
                                capture_output=True, text=True, env=self.environment, timeout=60)
        if check and result.returncode != 0:
            raise RuntimeError(f"muster {' '.join(map(str, arguments))}: {result.returncode}\n{result.stdout}{result.stderr}")
        return result.stdout

    def submit(self, config, name, *overrides, nodes=None):
        """Submits a job, by default on all nodes; returns its number."""
        nodes = nodes or len(self.workers)
        answer = self.muster(
            "submit", config, f"run_name={name}", f"base_output_directory={self.out}", "dataset_type=synthetic",
            *overrides, "--nodes", nodes, "--ranks-per-node", self.slots, "--env", f"FAULT_ORDERS={self.orders.folder}",
            "--env", f"FAULT_PACE={self.pace}", "--no-check", "--json")
        return json.loads(answer)["id"]

    def job(self, job):
        return json.loads(self.muster("status", job, "--json"))

    def wait_for_step(self, job, step, seconds=60):
        """Returns the duration of the job's newest step, in seconds."""
        def reached():
            state = self.job(job)
            if state["state"] in ENDED:
                raise RuntimeError(f"job {job} is {state['state']}: {state['reason']}")
            ranks = state.get("ranks", [])
            done = ranks and min(rank["step"] for rank in ranks) >= step
            return max(rank["step_seconds"] for rank in ranks) if done else None
        return wait_until(reached, seconds, f"step {step} of job {job}")

    def wait_for_end(self, job, seconds=60):
        wait_until(lambda: self.job(job)["state"] in ENDED, seconds, f"the end of job {job}")

    def incidents(self, job):
        """Returns the incidents, the oldest first, without stacks."""
        return json.loads(self.muster("incident", "list", job, "--json"))["incidents"][::-1]

    def log_of(self, job, attempt, rank=0):
        """Returns the rank's output in that attempt, whichever node it ran on; "" if there is none.
        """
        for file in self.folder.glob(f"work*/{job}/{attempt}/rank-{rank}.log"):
            return file.read_text(errors="replace")
        return ""

    def pid_of(self, job, rank):
        return next(r["pid"] for r in self.job(job)["ranks"] if r["rank"] == rank)

    def close(self):
        for process in [*self.workers, self.coordinator]:
            if process is None or process.poll() is not None:
                continue
            process.send_signal(signal.SIGCONT)
            process.terminate()
            try:
                process.wait(timeout=15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.network.close()
        for memory in self.memory:
            memory.close()
        for mount in (self.out, self.disk):
            subprocess.run(["umount", "--lazy", mount], check=False)
        for node in range(len(self.workers)):
            self.forget_memory_of(node)
        shutil.rmtree(self.folder, ignore_errors=True)
