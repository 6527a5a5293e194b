"""Links between nodes that are cut, with one network namespace per node and the coordinator in the
test's own one.
"""
import json
import os
import subprocess
import sys
import unittest

from harness import BIN, TINY, wait_until
from own_network import OwnNetworkTest
from steady_worker import steady_worker

HUB = "10.77.0.1"

# Ranks that exchange one message per step over TCP, and wait for each other without a time limit.
PROGRAM = """
import os, socket, sys, time
rank = int(os.environ["RANK"])
address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if rank == 0:
    listener = socket.create_server(address)
    peer = listener.accept()[0]
else:
    while True:
        try:
            peer = socket.create_connection(address)
            break
        except ConnectionRefusedError:
            time.sleep(0.05)
open(sys.argv[1] + f"/met{rank}", "w").close()
while True:
    peer.sendall(bytes(4096))
    left = 4096
    while left > 0:
        got = len(peer.recv(left))
        if got == 0:
            sys.exit("Connection closed by peer")
        left -= got
    time.sleep(0.02)
"""


class CutLinksTest(OwnNetworkTest):
    def setUp(self):
        super().setUp()
        self.ip("link", "add", "br0", "type", "bridge")
        self.ip("addr", "add", f"{HUB}/24", "dev", "br0")
        self.ip("link", "set", "br0", "up")
        self.coordinator = self.start_coordinator(listen="0.0.0.0:0", extra=["--insecure"])
        self.coordinator.address = f"{HUB}:{self.coordinator.ports['grpc_port']}"
        self.namespaces = [self.add_node(node) for node in range(3)]
        wait_until(lambda: len(self.connected_workers()) == 3, 60, "three workers")

    def worker_program(self):
        return BIN / "muster-worker"

    def connected_workers(self):
        workers = json.loads(self.muster("list", "--workers", "--json", check=0).stdout)["workers"]
        return [worker for worker in workers if worker["connected"]]

    def ip(self, *words):
        subprocess.run(["ip", *words], check=True)

    def address(self, node):
        return f"10.77.0.{10 + node}"

    def add_node(self, node):
        namespace = f"muster-cut-{os.getpid()}-{node}"
        self.ip("netns", "add", namespace)
        self.addCleanup(subprocess.run, ["ip", "netns", "del", namespace])
        self.ip("link", "add", f"v{node}", "type", "veth", "peer", "name", "eth0", "netns", namespace)
        self.ip("link", "set", f"v{node}", "master", "br0", "up")
        self.ip("-n", namespace, "link", "set", "lo", "up")
        self.ip("-n", namespace, "addr", "add", f"{self.address(node)}/24", "dev", "eth0")
        self.ip("-n", namespace, "link", "set", "eth0", "up")
        ports = self.dir / f"worker-{node}.json"
        worker = self.start("nsenter", f"--net=/run/netns/{namespace}", self.worker_program(), "--coordinator",
                            self.coordinator.address, "--name", f"node{node}", "--slots", 1, "--work-dir", self.dir / "work" / f"node{node}",
                            "--local-dir", self.dir / "local" / f"node{node}", "--http", "127.0.0.1:0", "--rendezvous",
                            f"{self.address(node)}:0", "--sys-root", self.dir / "sys", "--insecure", "--port-file", ports)
        self.wait_for_file(worker, ports)
        return namespace

    def cut(self, node, others, target=("DROP",)):
        """Drops what the node receives from the addresses, and what these nodes receive from it."""
        for other in others:
            for here, there in ((node, other), (other, node)):
                subprocess.run(["nsenter", f"--net=/run/netns/{self.namespaces[here]}", "iptables", "-I", "INPUT", "-s", self.address(there), "-j", *target],
                               check=True)


class CutLinks(CutLinksTest):
    def submit_program(self):
        self.dir.joinpath("program.py").write_text(PROGRAM)
        return json.loads(self.muster("submit", "--json", "--nodes", "2", "--restarts", "3", "--", sys.executable, "program.py", self.dir, check=0).stdout)["id"]

    def nodes_of(self, job):
        return [rank["worker"] for rank in self.job(job)["placement"]]

    def step_of(self, job):
        return max((int(rank["step"]) for rank in self.job(job)["ranks"]), default=-1)

    def wait_for_attempt(self, job, attempt):
        wait_until(lambda: self.job(job)["attempt"] == attempt and self.job(job)["state"] == "RUNNING", 90, f"attempt {attempt}")

    def incidents(self):
        return json.loads(self.muster("incident", "list", "--json", check=0).stdout)["incidents"]

    def test_trainer_continues_without_one_node_of_the_pair(self):
        job = json.loads(self.muster(
            "submit", self.base_yml(), "--json", "run_name=cut", f"base_output_directory={self.dir}/out", "dataset_type=synthetic", *TINY,
            "steps=1000000", "checkpoint_period=20", "restarts_max=3", "--nodes", "2", "--ranks-per-node", "1", check=0).stdout)["id"]
        wait_until(lambda: self.step_of(job) >= 40, 60, "steps")
        self.assertEqual(self.nodes_of(job), ["node0", "node1"])
        self.cut(0, [1])
        self.wait_for_attempt(job, 2)
        step = self.step_of(job)
        wait_until(lambda: self.step_of(job) > step + 20, 60, "steps of the second attempt")
        self.assertEqual(self.nodes_of(job), ["node0", "node2"])
        sentences = [incident["sentence"] for incident in self.incidents()]
        self.assertTrue(any(text.startswith("nodes node0 and node1 cannot reach each other: rank ") and "10.77.0.1" in text for text in sentences),
                        sentences)
        self.assertEqual(self.job(job)["attempt"], 2)

    def test_program_that_cannot_connect_gets_another_node(self):
        self.cut(0, [1])
        job = self.submit_program()
        wait_until(lambda: (self.dir / "met1").exists(), 180, "the first exchange")
        self.assertEqual(self.nodes_of(job), ["node0", "node2"])
        fault = self.job(job)["faults"][0]
        self.assertIn("nodes node0 and node1 cannot reach each other: rank 1 on node1 tries to connect to 10.77.0.10:", fault["message"])

    def test_silent_node_whose_ranks_do_not_answer_is_lost_before_its_lease_ends(self):
        """The program reports nothing, so only connections show that its peers miss it."""
        job = self.submit_program()
        wait_until(lambda: (self.dir / "met1").exists(), 60, "the first exchange")
        self.assertEqual(self.nodes_of(job), ["node0", "node1"])
        subprocess.run(["ip", "link", "set", "v1", "nomaster"], check=True)
        self.wait_for_attempt(job, 2)
        self.assertEqual(self.nodes_of(job), ["node0", "node2"])
        self.assertIn("does not answer its peers either", self.job(job)["faults"][0]["message"])


class CutLinksOfIdleNodes(CutLinksTest):
    def worker_program(self):
        folder = self.dir / "programs"
        return folder / "muster-worker" if folder.exists() else steady_worker(folder)

    def test_deep_check_names_the_pair(self):
        """The link refuses connections, because a test of a silent one waits for its time limit."""
        self.cut(0, [1], target=("REJECT",))
        sweep = json.loads(self.muster("node", "check", "--deep", "--seconds", "0.1", "--json", check=1, timeout=300).stdout)
        self.assertEqual([node["outcome"] for node in sweep["nodes"]], ["passed"] * 3, sweep)
        self.assertEqual(len(sweep["findings"]), 1, sweep)
        self.assertRegex(sweep["findings"][0], "the link between node0 and node1 is bad: .*; both nodes work with others")


if __name__ == "__main__":
    unittest.main()
