"""The chart on a real control plane: admitted, placed, upgraded, evicted and removed. Pods are not run."""
import unittest

from harness import wait_until
from helm_case import GPU_POOL, VARIANTS, merged
from kube_case import NAMESPACE, ClusterCase


class ControlPlane(ClusterCase):
    def test_installed_upgraded_and_removed(self):
        self.make_secrets()
        values = {"coordinator": {"persistence": {"enabled": False}}, "pools": {"cpu": {"replicas": 2}}}
        notes = self.helm_do("install", values)
        self.assertIn("pool cpu: 2 worker(s), 1 rank(s) each", notes)
        self.wait_for_places(2, "cpu")
        first = self.cluster.get("-n", NAMESPACE, "statefulsets", "demo-muster-coordinator")["metadata"]["generation"]
        self.helm_do("upgrade", merged(values, {"pools": {"cpu": {"replicas": 3}, "each": {"kind": "DaemonSet"}}}))
        self.wait_for_places(3, "cpu")
        self.wait_for_places(len(self.cluster.nodes), "each")
        again = self.cluster.get("-n", NAMESPACE, "statefulsets", "demo-muster-coordinator")["metadata"]["generation"]
        self.assertEqual(first, again, "more workers are no reason to restart the coordinator")
        self.helm_do("uninstall")
        kinds = "statefulsets,daemonsets,services,networkpolicies,poddisruptionbudgets,configmaps,persistentvolumeclaims,serviceaccounts,secrets"

        def left():
            return [f"{item['kind']} {item['metadata']['name']}" for item in self.cluster.get("-n", NAMESPACE, kinds)["items"]]
        kept = ["ConfigMap kube-root-ca.crt", "Secret muster-tls", "Secret muster-tokens", "ServiceAccount default"]
        wait_until(lambda: sorted(left()) == kept, 60, "what was there before, and nothing else")

    def test_every_variant_is_admitted(self):
        for name, values in VARIANTS.items():
            with self.subTest(name):
                built_in = [d for d in self.render(values) if "cert-manager" not in d["apiVersion"] and "coreos" not in d["apiVersion"]]
                result = self.cluster.apply(*built_in, options=("-n", NAMESPACE, "--dry-run=server", "--validate=strict"), check=False)
                self.assertEqual(result.returncode, 0, result.stderr)
                if name != "daemon set":  # a folder of the host is what "restricted" forbids
                    self.assertNotIn("PodSecurity", result.stderr)

    def test_the_accounts_may_do_nothing(self):
        self.helm_do("install", {})
        for account in ("demo-muster-coordinator", "demo-muster-worker"):
            for verb, what in (("get", "pods"), ("list", "secrets"), ("create", "pods"), ("get", "nodes"), ("*", "*")):
                asked = self.cluster.kubectl("auth", "can-i", verb, what, "-n", NAMESPACE, check=False,
                                             *("--as", f"system:serviceaccount:{NAMESPACE}:{account}"))
                self.assertEqual(asked.stdout.strip(), "no", (account, verb, what))

    def test_a_pool_of_gpus_waits_for_nodes_that_have_them(self):
        self.helm_do("install", {"pools": {"cpu": None, "gpu": GPU_POOL}})

        def why():
            conditions = [c for pod in self.pods("gpu") for c in pod["status"].get("conditions", []) if c["type"] == "PodScheduled"]
            return conditions and conditions[0].get("message", "")
        wait_until(lambda: "didn't match Pod's node affinity/selector" in (why() or ""), 60, "the scheduler's reason")
        self.cluster.add_node("gpu1", **{"nvidia.com/gpu": "8"})
        self.cluster.kubectl("label", "node", "gpu1", "pool=gpu")
        self.assertEqual(self.wait_for_places(1, "gpu")[0]["spec"]["nodeName"], "gpu1")

    def test_a_drain_takes_one_worker_at_a_time_and_daemon_sets_hold_nobody_up(self):
        self.helm_do("install", {"pools": {"cpu": {"replicas": 3}, "each": {"kind": "DaemonSet"}}})
        for pool in ("cpu", "each"):
            for pod in self.wait_for_places(3, pool):
                self.cluster.say_runs(pod["metadata"]["name"], NAMESPACE)

        def allowed():
            return self.cluster.get("-n", NAMESPACE, "poddisruptionbudgets", "demo-muster-cpu").get("status", {}).get("disruptionsAllowed")
        wait_until(lambda: allowed() == 1, 60, "the budget")
        self.assertEqual(self.evict("demo-muster-cpu-0").returncode, 0)
        wait_until(lambda: allowed() == 0, 60, "the budget's end")
        refused = self.evict("demo-muster-cpu-1")
        self.assertIn("disruption budget", refused.stderr)
        for pod in self.pods("each"):
            self.assertEqual(self.evict(pod["metadata"]["name"]).returncode, 0)

    def test_workers_that_wait_for_their_coordinator_keep_their_places(self):
        self.helm_do("install", {"pools": {"cpu": {"replicas": 3}}})
        for pod in self.wait_for_places(3, "cpu"):
            self.cluster.say_runs(pod["metadata"]["name"], NAMESPACE, ready=False)

        def counted():
            status = self.cluster.get("-n", NAMESPACE, "poddisruptionbudgets", "demo-muster-cpu").get("status", {})
            return (status.get("expectedPods"), status.get("currentHealthy")) == (3, 0)
        wait_until(counted, 60, "the budget")
        for n in range(3):
            self.assertIn("disruption budget", self.evict(f"demo-muster-cpu-{n}").stderr)

    def test_a_coordinator_that_never_came_up_is_replaced_by_an_upgrade(self):
        self.helm_do("install", {"image": {"tag": "wrong"}})

        def image():
            found = [item["spec"]["containers"][0]["image"] for item in self.cluster.get("-n", NAMESPACE, "pods")["items"]
                     if item["metadata"]["name"] == "demo-muster-coordinator-0" and "deletionTimestamp" not in item["metadata"]]
            return found[0] if found else None
        wait_until(lambda: (image() or "").endswith(":wrong"), 60, "the pod")
        self.helm_do("upgrade", {"image": {"tag": "right"}})
        wait_until(lambda: (image() or "").endswith(":right"), 60, "the corrected pod")

    def test_secrets_that_are_there_stay_as_they_are(self):
        self.make_secrets()
        before = self.cluster.get("-n", NAMESPACE, "secrets", "muster-tls", "muster-tokens")
        self.assertEqual(sorted(before["items"][0]["data"]), ["ca.crt", "tls.crt", "tls.key"])
        self.assertEqual(sorted(before["items"][1]["data"]), ["admin", "submitter", "viewer", "worker"])
        self.assertEqual(self.make_secrets().count("is there already"), 2)
        self.assertEqual(self.cluster.get("-n", NAMESPACE, "secrets", "muster-tls", "muster-tokens")["items"], before["items"])


if __name__ == "__main__":
    unittest.main()
