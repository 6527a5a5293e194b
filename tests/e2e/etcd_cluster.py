"""A cluster of etcd on loopback, in the test's own folder."""
import json
import shutil
import socket
import unittest
import urllib.request

import kube_build
from harness import wait_until


def etcd_or_skip():
    """Returns the program: the package etcd-server's, or that of the Kubernetes tests."""
    found = shutil.which("etcd") or (str(kube_build.ETCD_PATH) if kube_build.ETCD_PATH.exists() else None)
    if found is None:
        raise unittest.SkipTest("no etcd: deploy/install-deps.sh --tests installs the package etcd-server")
    return found


def free_ports(count):
    """Returns free ports of 127.0.0.1, all different."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [listener.getsockname()[1] for listener in sockets]
    for listener in sockets:
        listener.close()
    return ports


class EtcdCluster:
    """Members that `test` (a MusterTest) starts and reaps. Each has a port for each of `users`, so
    that a rule of the firewall can cut one user off.
    """

    def __init__(self, test, members=3, users=1):
        self._test, self._program = test, etcd_or_skip()
        self._peers = free_ports(members)
        ports = free_ports(members * users)
        self._clients = [ports[member * users:(member + 1) * users] for member in range(members)]
        self.members = [self._start(member) for member in range(members)]
        wait_until(lambda: all(map(self.is_healthy, range(members))), 30, "a leader of etcd")

    def _start(self, member):
        url = "http://127.0.0.1:{}".format
        peers = ",".join(f"m{other}={url(port)}" for other, port in enumerate(self._peers))
        clients = ",".join(map(url, self._clients[member]))
        return self._test.start(self._program, "--name", f"m{member}", "--data-dir", self._test.dir / f"etcd-{member}",
                                "--listen-client-urls", clients, "--advertise-client-urls", clients,
                                "--listen-peer-urls", url(self._peers[member]), "--initial-advertise-peer-urls", url(self._peers[member]),
                                "--initial-cluster", peers, "--logger", "zap", "--log-level", "error")

    def is_healthy(self, member):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._clients[member][0]}/health", timeout=2) as response:
                return b'"true"' in response.read()
        except OSError:
            return False

    def leader(self):
        """Returns the member that leads the others."""
        for member, (port, *_) in enumerate(self._clients):
            request = urllib.request.Request(f"http://127.0.0.1:{port}/v3/maintenance/status", data=b"{}")
            with urllib.request.urlopen(request, timeout=5) as response:
                status = json.load(response)
            if status["leader"] == status["header"]["member_id"]:
                return member
        raise AssertionError("etcd has no leader")

    def restart(self, member):
        self.members[member] = self._start(member)

    def ports(self, user=0):
        """Returns this user's port of each member."""
        return [ports[user] for ports in self._clients]

    def endpoints(self, user=0):
        return ",".join(f"http://127.0.0.1:{port}" for port in self.ports(user))
