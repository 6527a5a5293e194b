"""Starts a control plane for each test and installs the chart on it."""
import json
import subprocess

import kube_cluster
from harness import SOURCE, wait_until
from helm_case import CHART, HelmCase

NAMESPACE = "training"


class ClusterCase(HelmCase):
    def setUp(self):
        reason = kube_cluster.why_not()
        if reason:
            self.skipTest(reason)
        super().setUp()
        self.prepare()
        self.cluster = kube_cluster.KubeCluster(self.dir / "kube", self.env)
        self.addCleanup(self.cluster.stop)
        self.cluster.start()
        self.env["KUBECONFIG"] = str(self.cluster.kubeconfig)
        # The usual policy of a hardened cluster: no root, no capabilities, no access to the host.
        self.cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": {
            "pod-security.kubernetes.io/enforce": "restricted"}}})

    def prepare(self):
        """Runs before the control plane starts."""

    def tearDown(self):
        # The daemons have the test's mark, too, so they must end before the harness searches for
        # leftovers.
        if hasattr(self, "cluster"):
            self.cluster.stop()
        super().tearDown()

    def helm_release(self, verb, values=None, *more, chart=CHART):
        result = self.run_helm(verb, "demo", *([] if verb == "uninstall" else [chart]), "--namespace", NAMESPACE, "--kubeconfig",
                               self.cluster.kubeconfig, *more, values=values)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def make_secrets(self, *more):
        return subprocess.run([str(SOURCE / "deploy/make-secrets.sh"), "-n", NAMESPACE, "--coordinator", "demo-muster-coordinator", *more],
                              capture_output=True, text=True, timeout=60, env=self.cluster.env, check=True).stdout

    def pods(self, pool=None):
        selector = "app.kubernetes.io/instance=demo" + (f",muster-pool={pool}" if pool else "")
        return self.cluster.get("-n", NAMESPACE, "pods", "-l", selector)["items"]

    def wait_for_placement(self, count, pool):
        def placed():
            found = [pod for pod in self.pods(pool) if pod["spec"].get("nodeName") and "deletionTimestamp" not in pod["metadata"]]
            return found if len(found) == count else None
        return wait_until(placed, 60, f"{count} pods of {pool} on nodes")

    def evict(self, pod):
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": NAMESPACE}}
        return self.cluster.kubectl("create", "--raw", f"/api/v1/namespaces/{NAMESPACE}/pods/{pod}/eviction", "-f", "-", check=False,
                                    stdin=json.dumps(eviction))
