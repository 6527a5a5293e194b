"""The chart's pods as processes on a real control plane: jobs through the Service, deleted pods,
changed tokens, drained nodes.
"""
import base64
import json
import os
import re
import unittest

import kube_pods
from harness import BIN, TINY, wait_until
from helm_case import merged
from kube_case import NAMESPACE, ClusterCase

COORDINATOR = "demo-muster-coordinator"
LAYER = "topology.k8s.aws/network-node-layer-"
WORKERS = [f"demo-muster-cpu-{n}" for n in range(3)]


class Jobs(ClusterCase):
    def setUp(self):
        if os.geteuid() != 0:
            self.skipTest("a network of its own is root's to make")
        super().setUp()

    def prepare(self):
        """Creates the network that daemons started later share with this process."""
        folder = self.dir / "pods"
        folder.mkdir()
        try:
            self.addresses = kube_pods.own_network(folder, [f"{COORDINATOR}-0", *WORKERS])
        except OSError as error:
            self.skipTest(f"no network of its own can be had here: {error}")
        with open(folder / "hosts", "a") as hosts:
            hosts.write(f"{self.addresses[COORDINATOR + '-0']} {COORDINATOR}\n")

    def start_pods(self, replicas, before=lambda: None, **pool):
        """Installs the release and runs its pods. `before` is called once pods have their nodes and
        before any container runs.
        """
        volume = self.dir / "volume"
        volume.mkdir()
        self.cluster.apply({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "state"}, "spec": {
            "capacity": {"storage": "10Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "manual", "hostPath": {"path": str(volume)}}})
        self.values = {"image": {"binDir": str(BIN)}, "coordinator": {"persistence": {"storageClassName": "manual"}, "logFormat": "text"},
                       "pools": {"cpu": {"replicas": replicas, "leaveGraceSeconds": 120, "logFormat": "text", **pool}}}
        self.helm_release("install", self.values)
        self.wait_for_placement(replicas, "cpu")
        before()
        self.pods_run = kube_pods.PodRunner(self.cluster, self.dir / "pods/run", self.env, self.addresses, NAMESPACE).start()
        self.addCleanup(self.pods_run.stop)
        for role in ("ca.crt", "submitter"):
            secret = "demo-muster-tls" if role == "ca.crt" else "demo-muster-tokens"
            data = self.cluster.get("-n", NAMESPACE, "secret", secret)["data"]
            (self.dir / role).write_bytes(base64.b64decode(data[role]))
        self.env.update(MUSTER_COORDINATOR=f"{COORDINATOR}:7070", MUSTER_TLS_CA=str(self.dir / "ca.crt"),
                        MUSTER_TOKEN_FILE=str(self.dir / "submitter"))
        self.wait_for_workers(replicas)

    def tearDown(self):
        if hasattr(self, "pods_run"):
            self.pods_run.stop()
        super().tearDown()

    def logs(self):
        return "\n".join(f"== {name}\n{self.pods_run.log(name)[-3000:]}" for name in [f"{COORDINATOR}-0", *WORKERS]) + str(self.pods_run.last_error)

    def wait_for_workers(self, count):
        def condition():
            printed = self.muster("list", "--workers", "--json")
            workers = json.loads(printed.stdout)["workers"] if printed.returncode == 0 else []
            return len([w for w in workers if w.get("connected") and not w.get("leaving")]) == count
        try:
            wait_until(condition, 90, f"{count} workers")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.logs()}") from error

    def nodes(self):
        """Returns the node of each worker's pod."""
        return {pod["metadata"]["name"]: pod["spec"].get("nodeName") for pod in self.pods("cpu")}

    def submit(self, name, *overrides, nodes):
        result = self.muster("submit", self.base_yml(), f"run_name={name}", f"base_output_directory={self.dir}/out", "dataset_type=synthetic",
                             "log_period=1", *TINY, *overrides, "--nodes", nodes, "--ranks-per-node", "1", "--json", check=0)
        return json.loads(result.stdout)["id"]

    def wait_for_state(self, job, state):
        def condition():
            record = self.job(job)
            self.assertNotEqual(record["state"], "FAILED", f"{record}\n{self.logs()}")
            return record if record["state"] == state else None
        return wait_until(condition, 90, f"job {job} {state}")

    def restored(self, job, attempt):
        """Returns the steps of the checkpoints from which the job's ranks resumed."""
        return [int(step) for step in re.findall(r"restored checkpoint \S+: (\d+) steps", self.muster("logs", job, "--attempt", attempt).stdout)]

    def image_of(self, name):
        """Returns the name of the pod that stays; empty while there is none."""
        return next((pod["spec"]["containers"][0]["image"] for pod in self.pods()
                     if pod["metadata"]["name"] == name and "deletionTimestamp" not in pod["metadata"]), "")

    def step_of(self, job):
        return max((rank["step"] for rank in self.job(job)["ranks"]), default=-1)

    def test_job_survives_a_deleted_pod_a_new_token_and_an_upgrade(self):
        for node, zone in zip(self.cluster.nodes, "cba"):
            self.cluster.kubectl("label", "node", node, f"topology.kubernetes.io/zone=zone-{zone}")
        self.start_pods(2)
        slices = self.cluster.get("-n", NAMESPACE, "endpointslices", "-l", f"kubernetes.io/service-name={COORDINATOR}")["items"]
        self.assertEqual([(s["endpoints"][0]["addresses"], s["ports"][0]["port"]) for s in slices], [([self.addresses[COORDINATOR + "-0"]], 7070)])
        record = self.wait_for_state(self.submit("short", "steps=5", nodes=2), "SUCCEEDED")
        # Kubernetes gives each pod its node's zone; that needs no permission.
        zones = {pod["metadata"]["name"]: pod["metadata"]["labels"]["topology.kubernetes.io/zone"] for pod in self.pods("cpu")}
        self.assertEqual([assignment["worker"] for assignment in record["placement"]], sorted(zones, key=lambda worker: (zones[worker], worker)))

        # A counted restart would end the job.
        job = self.submit("long", "steps=1000000", "checkpoint_period=1000000", "restarts_max=0", nodes=2)
        wait_until(lambda: self.step_of(job) > 2, 60, "steps")
        self.cluster.kubectl("-n", NAMESPACE, "delete", "pod", WORKERS[0], "--wait=false")
        wait_until(lambda: self.job(job)["faults"], 60, "the news")
        record = self.wait_for_state(job, "RUNNING")
        self.assertEqual([fault["message"] for fault in record["faults"]], [f"worker {WORKERS[0]} is leaving"], self.logs())
        wait_until(lambda: "restored checkpoint" in self.muster("logs", job).stdout, 60, "the checkpoint")

        token = base64.b64encode(b"another-worker-token-0123456789").decode()
        self.cluster.kubectl("-n", NAMESPACE, "patch", "secret", "demo-muster-tokens", "--type=merge", "-p", json.dumps({"data": {"worker": token}}))
        self.cluster.kubectl("-n", NAMESPACE, "delete", "pod", f"{COORDINATOR}-0", "--wait=false")
        wait_until(lambda: "stopped" in self.pods_run.log(f"{COORDINATOR}-0"), 60, "the coordinator's end")
        self.wait_for_workers(2)
        self.assertEqual(len(self.wait_for_state(job, "RUNNING")["faults"]), 1, self.logs())

        # Another image replaces the coordinator's pod, too, while the first worker drains for its
        # replacement.
        before, record = self.step_of(job), self.job(job)
        self.assertGreater(before, 0)
        self.helm_release("upgrade", merged(self.values, {"image": {"tag": "new"}, "pools": {"cpu": {"replicas": 3}}}))
        for pod in (f"{COORDINATOR}-0", *WORKERS):
            wait_until(lambda pod=pod: self.image_of(pod).endswith(":new"), 120, f"{pod} again")
        self.wait_for_workers(3)
        wait_until(lambda: self.restored(job, self.job(job)["attempt"]), 90, "the checkpoint")
        after = self.wait_for_state(job, "RUNNING")
        left = [fault["message"] for fault in after["faults"][len(record["faults"]):]]
        self.assertEqual(left, [f"worker {worker} is leaving" for worker in WORKERS[1::-1]], self.logs())
        attempts = range(record["attempt"] + 1, after["attempt"] + 1)
        self.assertEqual(len(attempts), 2)
        # A pod that is terminated before its container starts has restored nothing.
        restored = [step for attempt in attempts for step in self.restored(job, attempt)]
        self.assertGreaterEqual(min(restored), before)
        wait_until(lambda: self.step_of(job) > max(restored), 90, "more steps")
        self.muster("cancel", job, "--force", check=0)

        self.helm_release("uninstall")
        wait_until(lambda: not self.pods_run.pods, 90, "the end of all pods")

    def worker_of(self, job):
        return {assignment["worker"] for assignment in self.job(job)["placement"]}

    def test_drained_node_and_shrunk_pool_cost_the_job_no_restart(self):
        def label_nodes():
            """Labels nodes so that the order of the switches differs from the order of the names.
            """
            nodes = self.nodes()
            self.assertEqual(len(set(nodes.values())), len(WORKERS), nodes)
            for worker, switch in zip(WORKERS, "cba"):
                self.cluster.kubectl("label", "node", nodes[worker], f"{LAYER}1=spine", f"{LAYER}2=leaf-{switch}")
        self.start_pods(3, label_nodes, switchesFromNode=[f"{LAYER}1", f"{LAYER}2"])
        record = self.wait_for_state(self.submit("short", "steps=5", nodes=3), "SUCCEEDED")
        self.assertEqual([assignment["worker"] for assignment in record["placement"]], WORKERS[::-1], self.logs())
        job = self.submit("long", "steps=1000000", "checkpoint_period=1000000", nodes=2)
        wait_until(lambda: self.step_of(job) > 2, 60, "steps")
        evicted = sorted(self.worker_of(job))[0]
        node = self.nodes()[evicted]
        self.cluster.kubectl("drain", node, "--delete-emptydir-data", "--pod-selector=app.kubernetes.io/component=worker", "--timeout=50s")
        wait_until(lambda: self.job(job)["faults"], 60, "the news")
        self.wait_for_state(job, "RUNNING")
        self.cluster.kubectl("uncordon", node)
        wait_until(lambda: "restored checkpoint" in self.muster("logs", job).stdout, 60, "the checkpoint")
        self.wait_for_workers(3)

        wait_until(lambda: self.step_of(job) > 2, 60, "steps")
        with_rank = WORKERS[2] in self.worker_of(job)
        self.helm_release("upgrade", merged(self.values, {"pools": {"cpu": {"replicas": 2}}}))
        self.wait_for_workers(2)
        record = self.wait_for_state(job, "RUNNING")
        messages = [fault["message"] for fault in record["faults"]]
        expected = [f"worker {evicted} is leaving"] + [f"worker {WORKERS[2]} is leaving"] * with_rank
        self.assertEqual(messages, expected, self.logs())
        self.assertEqual(self.worker_of(job), set(WORKERS[:2]) if with_rank else self.worker_of(job))
        self.muster("cancel", job, "--force", check=0)
        self.helm_release("uninstall")
        wait_until(lambda: not self.pods_run.pods, 90, "the end of all pods")


if __name__ == "__main__":
    unittest.main()
