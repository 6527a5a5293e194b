"""A real Slurm on this machine: munged, slurmctld and several slurmd on loopback, in the test's own
folder.

Nodes are `node1` … `nodeN`. Each is a slurmd with its own port and spool folder; all share the
machine's processors and host name, so a process learns its node from SLURMD_NODENAME.
"""
import getpass
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import time

from harness import is_zombie, wait_until

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol")
# slurmd restarts itself by this path, which on Debian is outside of a user's PATH.
NODE_CPUS = 8
# slurmd restarts itself by this path, which on Debian is outside of a user's PATH.
PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"


def why_not():
    """Returns why Slurm cannot run here; empty if it can."""
    missing = [program for program in PROGRAMS if shutil.which(program, path=PATH) is None]
    if missing:
        return f"no {', '.join(missing)} here: deploy/install-deps.sh --tests installs slurm-wlm and munge"
    if os.geteuid() != 0:
        return "slurmd runs other users' jobs, so it needs root"
    return ""


def free_ports(count):
    """Returns free ports. Each stays bound until all are found."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


CONFIG = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={dir}/munge.sock
CryptoType=crypto/munge
SlurmctldPort={controller_port}
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
StateSaveLocation={dir}/ctld
SlurmdSpoolDir={dir}/spool.%n
SlurmctldPidFile={dir}/pid/slurmctld
SlurmdPidFile={dir}/pid/slurmd.%n
SlurmctldLogFile={dir}/log/slurmctld.log
SlurmdLogFile={dir}/log/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1,sched_min_interval=0,requeue_delay=1
SlurmdParameters=config_overrides
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
ReturnToService=2
MinJobAge=300
InactiveLimit=0
KillWait=20
# The time in which slurmctld queries all nodes once more
SlurmdTimeout=10
SlurmctldTimeout=10
GresTypes=gpu
TopologyPlugin={topology_plugin}
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO PriorityTier=1 GraceTime=30
PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP OverSubscribe=NO PriorityTier=2
"""


class SlurmCluster:
    """A cluster, from start() to stop(). `folder` must be short: a socket's path has at most some
    100 characters.
    """

    def __init__(self, folder, env, nodes=4, topology=None, gpus=0, plugin=None):
        self.dir = pathlib.Path(folder)
        self.nodes = [f"node{n}" for n in range(1, nodes + 1)]
        self.gpus = gpus
        self.topology = topology
        self.plugin = plugin  # the file of a SPANK plugin
        self.env = {**env, "PATH": PATH, "SLURM_CONF": str(self.dir / "etc" / "slurm.conf")}
        for name in [name for name in self.env if re.match(r"(SLURM_(?!CONF$)|SLURMD_|SBATCH_|SRUN_)", name)]:
            del self.env[name]
        self.daemons = {}  # name: Popen

    # ------------------------------------------------------------------ daemons

    def start(self):
        for name in ("ctld", "log", "pid", "etc", "dev", *(f"spool.{node}" for node in self.nodes)):
            (self.dir / name).mkdir(parents=True)
        for path in (self.dir, self.dir.parent):
            path.chmod(0o755)
        self.write_config()
        self.run_daemon("munged", "munged", "--foreground", "--force", f"--key-file={self.key()}", f"--socket={self.dir}/munge.sock",
                        f"--pid-file={self.dir}/pid/munged", f"--log-file={self.dir}/log/munged.log", f"--seed-file={self.dir}/munge.seed",
                        "--num-threads=2")
        wait_until((self.dir / "munge.sock").exists, 10, "munged")
        self.run_daemon("slurmctld", "slurmctld", "-D")
        for node in self.nodes:
            self.start_node(node)
        self.wait_for_idle()
        return self

    def wait_for_idle(self):
        wait_until(lambda: self.query("sinfo", "-h", "-p", "main", "-t", "idle", "-o", "%D") == str(len(self.nodes)), 60, "idle nodes")

    def key(self):
        path = self.dir / "etc" / "munge.key"
        if not path.exists():
            path.touch(mode=0o600)
            path.write_bytes(os.urandom(128))
        return path

    def write_config(self):
        controller, *ports = free_ports(1 + len(self.nodes))
        host = socket.gethostname().split(".")[0]
        text = CONFIG.format(dir=self.dir, host=host, user=getpass.getuser(), controller_port=controller,
                             topology_plugin="topology/tree" if self.topology else "topology/none")
        gres = f" Gres=gpu:{self.gpus}" if self.gpus else ""
        for node, port in zip(self.nodes, ports):
            text += (f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={NODE_CPUS} RealMemory=1000{gres} "
                     "State=UNKNOWN\n")
        etc = self.dir / "etc"
        (etc / "cgroup.conf").write_text("CgroupAutomount=no\n")
        if self.plugin:
            (etc / "plugstack.conf").write_text(f"required {self.plugin}\n")
            text += f"PlugStackConfig={etc}/plugstack.conf\n"
        (etc / "slurm.conf").write_text(text)
        if self.topology:
            (etc / "topology.conf").write_text(self.topology)
        if self.gpus:
            # Existing files that represent GPUs.
            for gpu in range(self.gpus):
                os.mknod(self.dir / "dev" / f"nvidia{gpu}", 0o20666, os.makedev(1, 3))
            (etc / "gres.conf").write_text("AutoDetect=off\n" + "".join(
                f"NodeName={node} Name=gpu File={self.dir}/dev/nvidia[0-{self.gpus - 1}]\n" for node in self.nodes))

    def run_daemon(self, name, *command):
        with open(self.dir / "log" / f"{name}.out", "a") as out:
            self.daemons[name] = subprocess.Popen(command, env=self.env, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                                  start_new_session=True)

    def start_node(self, node):
        self.run_daemon(node, "slurmd", "-D", "-N", node)

    def kill_slurmd(self, node):
        """Kills slurmd; the node's jobs continue, as after a crash."""
        daemon = self.daemons.pop(node)
        daemon.kill()
        daemon.wait()

    def stop(self):
        if "slurmctld" in self.daemons:
            self.query("scancel", "-f", "-u", getpass.getuser())
            deadline = time.monotonic() + 10
            while self.query("squeue", "-h") and time.monotonic() < deadline:
                time.sleep(0.1)
        for name in sorted(self.daemons, key=lambda name: ("slurmctld", "munged").index(name) + 1 if name in ("slurmctld", "munged") else 0):
            daemon = self.daemons[name]
            daemon.terminate()
            try:
                daemon.wait(timeout=5)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        self.daemons = {}
        # Ends the node's processes, as a restarted slurmd does; no other process would end them.
        for _ in range(20):
            left = self.kill_processes()
            if not left:
                break
            time.sleep(0.1)

    # ------------------------------------------------------------------ commands

    def run(self, *command, env=None, cwd=None, timeout=60):
        return subprocess.run([str(word) for word in command], env={**self.env, **(env or {})}, cwd=cwd or self.dir, capture_output=True,
                              text=True, timeout=timeout, stdin=subprocess.DEVNULL)

    def query(self, *command):
        """Returns the command's output; empty if it fails."""
        result = self.run(*command)
        return result.stdout.strip() if result.returncode == 0 else ""

    def must(self, *command, **kwargs):
        result = self.run(*command, **kwargs)
        if result.returncode != 0:
            raise AssertionError(f"{command}: {result.returncode}\n{result.stdout}{result.stderr}")
        return result.stdout.strip()

    def sbatch(self, *arguments, env=None, cwd=None):
        """Submits a job. Returns its number."""
        return int(self.must("sbatch", "--parsable", *arguments, env=env, cwd=cwd).split(";")[0])

    def job(self, job):
        """Returns the fields of scontrol show, by name."""
        return dict(re.findall(r"(\S+?)=(\S*)", self.query("scontrol", "show", "job", "-o", job)))

    def state(self, job):
        return self.job(job).get("JobState", "")

    def wait_for_state(self, job, *states, seconds=60):
        """Waits until the job is in one of these states and has no process on any node. Returns its
        fields.
        """
        def condition():
            found = self.job(job)
            return found if found.get("JobState") in states else None
        try:
            return wait_until(condition, seconds, f"job {job} in state {' or '.join(states)}")
        except AssertionError as error:
            raise AssertionError(f"{error}; it is {self.query('scontrol', 'show', 'job', job)}\n{self.job_output(job)}\n"
                                 f"{self.log('slurmctld')[-3000:]}") from None

    def start_again(self, job):
        """Starts a requeued job's next allocation soon; Slurm alone takes two minutes. Waits until
        the second in which the nodes revoked the last credential is over: credentials count
        whole seconds, and a batch script that starts within it is killed.
        """
        self.must("scontrol", "update", f"jobid={job}", "StartTime=now+2")

    def wait_for_end(self, job, seconds=90):
        """Waits until a job has ended and left its nodes. Returns (state, exit code)."""
        found = self.wait_for_state(job, "COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "DEADLINE", "OUT_OF_MEMORY",
                                    seconds=seconds)
        return found["JobState"], int(found["ExitCode"].split(":")[0])

    def job_output(self, job):
        """Returns the job's output so far."""
        path = self.job(job).get("StdOut", "")
        return pathlib.Path(path).read_text() if path and os.path.isfile(path) else ""

    def log(self, daemon):
        path = self.dir / "log" / f"{daemon}.log"
        return path.read_text() if path.exists() else ""

    def down(self, node, reason="test"):
        self.must("scontrol", "update", f"nodename={node}", "state=down", f"reason={reason}")

    def drain(self, node, reason="test"):
        self.must("scontrol", "update", f"nodename={node}", "state=drain", f"reason={reason}")

    def processes_on(self, node=None):
        """Returns the pids of all job processes on the node; without a node, of all processes with
        this cluster's slurm.conf, daemons included.
        """
        found = []
        for path in pathlib.Path("/proc").glob("[0-9]*/environ"):
            try:
                variables = path.read_bytes().split(b"\0")
            except OSError:
                continue
            pid = int(path.parts[2])
            is_there = node is None or f"SLURMD_NODENAME={node}".encode() in variables
            if is_there and f"SLURM_CONF={self.env['SLURM_CONF']}".encode() in variables and not is_zombie(pid):
                found.append(pid)
        return found

    def kill_node(self, node):
        """Cuts the node's power: slurmd and all its processes end at the same moment."""
        self.kill_slurmd(node)
        self.kill_processes(node)

    def kill_processes(self, node=None):
        """Kills the processes. Returns their number."""
        found = self.processes_on(node)
        # Stop all first, so that no process observes the end of another.
        for signo in (signal.SIGSTOP, signal.SIGKILL):
            for pid in found:
                try:
                    os.kill(pid, signo)
                except ProcessLookupError:
                    pass
        return len(found)
