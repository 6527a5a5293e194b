"""A real control plane on loopback, in the test's own folder: etcd, kube-apiserver,
kube-controller-manager and kube-scheduler.

Nodes are objects with the condition Ready. The real programs admit, place, evict and delete pods,
but no pod runs. Every daemon ends with the test's process, even if that process is killed.
"""
import ctypes
import json
import os
import pathlib
import secrets
import shutil
import signal
import subprocess

import kube_build
import kube_tools
from harness import wait_until
from slurm_cluster import free_ports

PR_SET_PDEATHSIG = 1
KUBECTL_MINOR_MIN = 27  # --subresource, --validate=strict


def why_not():
    """Returns why no control plane can run here; empty if one can."""
    for program in ("kubectl", "openssl"):
        if shutil.which(program) is None:
            return f"no {program} here"
    version = subprocess.run(["kubectl", "version", "--client", "-o", "json"], capture_output=True, text=True, timeout=20).stdout
    minor = int(json.loads(version)["clientVersion"]["minor"].rstrip("+"))
    if minor < KUBECTL_MINOR_MIN:
        return f"kubectl is 1.{minor}, and tests need 1.{KUBECTL_MINOR_MIN}"
    try:
        kube_build.etcd()
        for program in kube_build.CONTROL_PLANE:
            kube_build.kubernetes(program)
    except kube_tools.Missing as missing:
        return str(missing)
    return ""


def die_with_parent():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class KubeCluster:
    def __init__(self, folder, env, nodes=3):
        self.dir = pathlib.Path(folder)
        self.nodes = [f"node{n}" for n in range(1, nodes + 1)]
        self.token = secrets.token_hex(16)
        self.kubeconfig = self.dir / "kubeconfig"
        self.env = {**env, "KUBECONFIG": str(self.kubeconfig)}
        self.daemons = []
        self.etcd_port, self.peer_port, self.port = free_ports(3)
        self.url = f"https://127.0.0.1:{self.port}"

    # ------------------------------------------------------------------ daemons

    def start(self):
        for name in ("log", "certificates"):
            (self.dir / name).mkdir(parents=True)
        subprocess.run(["openssl", "genrsa", "-out", str(self.dir / "accounts.key"), "2048"], check=True, capture_output=True, timeout=60)
        self.write_secret("tokens.csv", f"{self.token},admin,admin,system:masters\n")
        self.write_secret("kubeconfig", json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": {"server": self.url, "insecure-skip-tls-verify": True}}],
            "users": [{"name": "admin", "user": {"token": self.token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}]}))
        self.start_etcd()
        self.start_api()
        no_ports = ("--leader-elect=false", "--bind-address=127.0.0.1", "--secure-port=0", f"--kubeconfig={self.kubeconfig}")
        self.run_daemon("controller-manager", kube_build.kubernetes("kube-controller-manager"), *no_ports,
                        f"--service-account-private-key-file={self.dir}/accounts.key",
                        "--node-monitor-grace-period=1h",  # no kubelet reports that a node lives
                        "--controllers=*,-node-ipam-controller,-node-route-controller,-service-lb-controller",
                        f"--root-ca-file={self.dir}/certificates/apiserver.crt")
        self.run_daemon("scheduler", kube_build.kubernetes("kube-scheduler"), *no_ports)
        for node in self.nodes:
            self.add_node(node)
        wait_until(lambda: self.kubectl("get", "serviceaccount", "default", check=False).returncode == 0, 60, "the controllers")
        return self

    def add_node(self, name, **more):
        """Creates a ready node with 8 CPUs. `more` adds allocatable resources; names with dots or
        slashes: **{"nvidia.com/gpu": 8}.
        """
        has = {"cpu": "8", "memory": "64Gi", "pods": "110", "ephemeral-storage": "1Ti", **more}
        self.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}})
        status = {"status": {"allocatable": has, "capacity": has, "conditions": [{"type": "Ready", "status": "True", "reason": "Said"}]}}
        self.kubectl("patch", "node", name, "--subresource=status", "--type=merge", "-p", json.dumps(status))
        self.kubectl("taint", "node", name, "node.kubernetes.io/not-ready-", check=False)

    def report_running(self, pod, namespace, ready=True):
        """Sets the status that a kubelet reports for a pod whose containers run and pass or fail
        their probes.
        """
        conditions = [{"type": kind, "status": "True"} for kind in ("PodScheduled", "Initialized")]
        conditions += [{"type": kind, "status": str(ready)} for kind in ("ContainersReady", "Ready")]
        self.kubectl("-n", namespace, "patch", "pod", pod, "--subresource=status", "--type=merge", "-p",
                     json.dumps({"status": {"phase": "Running", "conditions": conditions}}))

    def start_etcd(self):
        client, peer = f"http://127.0.0.1:{self.etcd_port}", f"http://127.0.0.1:{self.peer_port}"
        self.run_daemon("etcd", kube_build.etcd(), f"--data-dir={self.dir}/etcd", "--unsafe-no-fsync", f"--listen-client-urls={client}",
                        f"--advertise-client-urls={client}", f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}",
                        f"--initial-cluster=default={peer}")

    def start_api(self):
        self.run_daemon("apiserver", kube_build.kubernetes("kube-apiserver"), f"--etcd-servers=http://127.0.0.1:{self.etcd_port}",
                        "--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", f"--secure-port={self.port}",
                        "--endpoint-reconciler-type=none", f"--cert-dir={self.dir}/certificates", f"--token-auth-file={self.dir}/tokens.csv",
                        "--authorization-mode=RBAC", "--service-account-issuer=https://kubernetes.default.svc",
                        f"--service-account-signing-key-file={self.dir}/accounts.key", f"--service-account-key-file={self.dir}/accounts.key",
                        "--service-cluster-ip-range=10.0.0.0/24")
        wait_until(lambda: self.kubectl("get", "--raw", "/readyz", check=False).returncode == 0, 120, "the API")

    def run_daemon(self, name, *command):
        with open(self.dir / "log" / name, "w") as log:
            self.daemons.append(subprocess.Popen(list(map(str, command)), stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=self.env,
                                                 start_new_session=True, preexec_fn=die_with_parent))

    def stop(self):
        for daemon in reversed(self.daemons):
            daemon.kill()
            daemon.wait()

    def write_secret(self, name, text):
        with open(os.open(self.dir / name, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
            file.write(text)

    # ------------------------------------------------------------------ actions of users

    def kubectl(self, *arguments, check=True, stdin=None):
        return subprocess.run(["kubectl", *map(str, arguments)], input=stdin, capture_output=True, text=True, timeout=60, env=self.env,
                              check=check)

    def get(self, *arguments):
        return json.loads(self.kubectl("get", *arguments, "-o", "json").stdout)

    def apply(self, *documents, options=(), check=True):
        return self.kubectl("apply", *options, "-f", "-", check=check, stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": documents}))
