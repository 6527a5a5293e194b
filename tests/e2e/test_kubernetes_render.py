"""`muster k8s render`: its output against the schemas of Kubernetes and JobSet, and whole jobs
under JobSet's own controller.
"""
import base64
import json
import os
import subprocess
import unittest

import kube_jobset
import kube_pods
from harness import BIN, SOURCE, TINY, wait_until
from helm_case import CHART, HelmCase, yaml
from kube_case import NAMESPACE, ClusterCase

LAYER = "topology.k8s.aws/network-node-layer-"
IMAGE = ("--image", "registry.example/muster:1")
VARIANTS = {
    "plain": ("--insecure",),
    "secrets": ("--tls-secret", "muster-tls", "--token-secret", "muster-tokens", "-n", NAMESPACE, "--pull-secret", "registry"),
    "kueue": ("--insecure", "--queue", "team-a", "--priority-class", "high", "--topology", f"{LAYER}2"),
    "switches": ("--insecure", "--switches-from-node", f"{LAYER}1", "--switches-from-node", f"{LAYER}2", "--service-account", "topology"),
    "p5": ("--insecure", "--gpus", "8", "--efa", "32", "--huge-pages", "5120Mi", "--cpu", "160", "--memory", "1600Gi", "--shared-memory", "256Gi",
           "--node-selector", "node.kubernetes.io/instance-type=p5.48xlarge", "--toleration", "nvidia.com/gpu", "--toleration",
           "vpc.amazonaws.com/efa", "--env-from-secret", "wandb", "--mount", "/mnt/nvme:/scratch", "--spares", "1"),
}


class RenderCase(HelmCase):
    def render(self, *arguments, check=0):
        return self.muster("k8s", "render", *IMAGE, *arguments, check=check)

    def objects(self, *arguments):
        result = self.render(*arguments)
        documents = [document for document in yaml.safe_load_all(result.stdout) if document]
        self.assertEqual(documents, json.loads(self.render("--json", *arguments).stdout)["items"], "YAML and JSON have the same content")
        return documents

    def trainer(self, *more):
        return self.objects(self.base_yml(), "model_name=llama2-tiny", "run_name=First.run", "base_output_directory=/shared/out", "dataset_type=synthetic",
                            "--mount", "shared:/shared", "--nodes", "2", "--ranks-per-node", "2", *more)


class Render(RenderCase):
    def test_output_matches_kubernetes_and_jobset_schemas(self):
        schemas = self.schemas()
        for name, more in VARIANTS.items():
            with self.subTest(name):
                documents = self.trainer(*more)
                efa = [("ConfigMap", "first-run-efa")] if "--efa" in more else []
                self.assertEqual([(d["kind"], d["metadata"]["name"]) for d in documents],
                                 [("ConfigMap", "first-run-job"), *efa, ("NetworkPolicy", "first-run"), ("JobSet", "first-run")])
                for document in documents:
                    self.assertEqual(schemas.errors(document), [])

    def test_efa_sets_the_variables_of_the_charts_pool(self):
        pool = yaml.safe_load((CHART / "values-eks-p5.yaml").read_text())["pools"]["p5"]
        chart = {entry["name"]: entry["value"] for entry in pool["env"]}

        def variables(*more):
            documents = self.trainer("--insecure", "--gpus", "8", "--node-selector", "pool=p5", *more)
            worker = documents[-1]["spec"]["replicatedJobs"][1]["template"]["spec"]["template"]["spec"]["containers"][0]
            self.assertFalse([entry for entry in worker["env"] if "value" in entry], "these would beat a Secret's")
            found = {}
            for source in worker.get("envFrom", []):
                found |= self.one(documents, "ConfigMap", source["configMapRef"]["name"])["data"]
            return found
        self.assertEqual(variables("--efa", "32"), chart)
        self.assertEqual(variables("--efa", "32", "--huge-pages", "5120Mi"), {name: value for name, value in chart.items() if name != "FI_EFA_USE_HUGE_PAGE"})
        self.assertEqual(variables(), {})

    def test_daemons_accept_their_flags(self):
        for more in (("--insecure",), ("--tls-secret", "a", "--token-secret", "b"), ("--insecure", "--switches-from-node", "a", "--service-account", "b")):
            job_set = self.trainer(*more)[-1]
            for job in job_set["spec"]["replicatedJobs"]:
                pod = job["template"]["spec"]["template"]["spec"]
                for container in [*pod.get("initContainers", []), *pod["containers"]]:
                    words = [word.replace("$(MUSTER_WORKER_INDEX)", "0").replace("$(MUSTER_WORKER_ADDRESS)", "10.0.0.1") for word in container["args"]]
                    program = str(BIN / container["command"][0].rsplit("/", 1)[1])
                    result = subprocess.run([program, *words, "--help"], capture_output=True, text=True, timeout=20)
                    self.assertEqual(result.returncode, 0, result.stderr)

    def test_render_resolves_the_job(self):
        spec = json.loads(self.trainer("--insecure", "--env", "A=b")[0]["data"]["job.json"])
        self.assertEqual((spec["name"], spec["nodes"], spec["ranks_per_node"], spec["environment"]), ("First.run", 2, 2, {"A": "b"}))
        self.assertEqual(spec["output_directory"], "/shared/out/First.run")
        self.assertEqual(json.loads(spec["train_config_json"])["model_name"], "llama2-tiny")

    def test_ranks_are_the_gpus_of_a_worker_and_not_of_this_machine(self):
        self.gpus(*(f"gpu bus={16 * index}" for index in range(1, 4)))

        def ranks(*more):
            objects = self.objects(self.base_yml(), "model_name=llama2-tiny", "run_name=first", "base_output_directory=/shared/out", "dataset_type=synthetic",
                                   "hardware=gpu", "--mount", "shared:/shared", "--insecure", *more)
            return json.loads(objects[0]["data"]["job.json"])["ranks_per_node"]
        self.assertEqual(ranks("--gpus", 4), 4)
        self.assertEqual(ranks(), 1)

    def test_program_starts_in_its_working_directory(self):
        documents = self.objects("--insecure", "--nodes", "3", "--gpus", "4", "--mount", "shared:/shared", "--working-directory", "/shared/me",
                                 "--name", "mine", "--", "python3", "train.py", "--lr", "1e-3")
        spec = json.loads(documents[0]["data"]["job.json"])
        self.assertEqual((spec["command"], spec["working_directory"], spec["output_directory"], spec["ranks_per_node"]),
                         (["python3", "train.py", "--lr", "1e-3"], "/shared/me", "/shared/me/mine", 4))

    def test_impossible_options_are_refused_with_an_alternative(self):
        trainer = (self.base_yml(), "model_name=llama2-tiny", "run_name=a", "dataset_type=synthetic")
        cases = [
            (("--insecure", *trainer), "is in no --mount"),
            (("--mount", "shared:/shared", *trainer, "base_output_directory=/shared"), "deploy/make-secrets.sh --coordinator a-leader-0-0.a --tls a-tls --tokens a-tokens"),
            (("--insecure", "--mount", "shared:/shared", *trainer, "base_output_directory=/elsewhere"), "/elsewhere/a is in no --mount"),
            (("--insecure", "--mount", "shared", *trainer), "must be CLAIM:/path for a PersistentVolumeClaim"),
            (("--insecure", "--k8s-name", "A", "--mount", "s:/s", *trainer, "base_output_directory=/s"), "--k8s-name A"),
            (("--insecure", "--gpus", "2", "--ranks-per-node", "4", "--mount", "s:/s", *trainer, "base_output_directory=/s"), "give --gpus 4"),
            (("--insecure", "--working-directory", "here", "--", "true"), "must be an absolute path"),
            (("--insecure", "--huge-pages", "1Gi", "--env", "FI_EFA_USE_HUGE_PAGE=0", "--mount", "s:/s", *trainer, "base_output_directory=/s"),
             "--huge-pages 1Gi have no use"),
            (("--insecure", "--huge-pages", "1Gi", "--env", "FI_EFA_USE_HUGE_PAGE=no", "--mount", "s:/s", *trainer, "base_output_directory=/s"),
             "have no use with --env FI_EFA_USE_HUGE_PAGE=no"),
            (("--insecure", "--efa", "4", "--mount", "s:/s", *trainer, "base_output_directory=/s"), "without selecting nodes: give --node-selector"),
            (("--insecure", "--shared-memory", "64Gi", "--memory", "8Gi", "--mount", "s:/s", *trainer, "base_output_directory=/s"),
             "--shared-memory 64Gi and --memory 8Gi: /dev/shm counts as the container's memory"),
            (("--insecure", "--mount", "s:/dev//shm", *trainer, "base_output_directory=/s"), "--mount /dev/shm: the worker's pod uses this path itself"),
            (("--insecure", "--efa", "4", "--node-selector", "a=b", "--env", "FI_EFA_USE_HUGE_PAGE=1", "--mount", "s:/s", *trainer, "base_output_directory=/s"),
             "--env FI_EFA_USE_HUGE_PAGE without --huge-pages"),
            (("--insecure", "--toleration", "bad key!", "--mount", "s:/s", *trainer, "base_output_directory=/s"), "--toleration bad key!"),
            (("--insecure", "--memory", "8GB", "--mount", "s:/s", *trainer, "base_output_directory=/s"), "--memory 8GB"),
        ]
        for arguments, printed in cases:
            with self.subTest(printed):
                result = self.render(*arguments, check=None)
                self.assertEqual((result.returncode, result.stdout), (2 if "make-secrets" not in printed else result.returncode, ""), result.stderr)
                self.assertIn(printed, result.stderr)
        self.assertNotEqual(self.render("--mount", "shared:/shared", *trainer, "base_output_directory=/shared", check=None).returncode, 0)

    def test_invalid_job_file_is_named(self):
        for text, printed in (("", "is not a job file"), ("{", "is not a job file"), ('{"nodez": 1}', "nodez"), ('{"nodes": "x"}', "is not a job file"), ("[]", "is not a job file")):
            (self.dir / "job.json").write_text(text)
            result = self.muster("submit", "--job-file", self.dir / "job.json", check=2)
            self.assertIn(printed, result.stderr)
        self.assertIn("No such file or directory", self.muster("submit", "--job-file", self.dir / "missing", check=2).stderr)


class JobSets(ClusterCase, RenderCase):
    """The JobSet's pods as processes."""

    HOSTS = ["first-leader-0-0", *(f"first-workers-0-{n}" for n in range(2))]

    def setUp(self):
        reason = kube_jobset.why_not()
        if reason:
            self.skipTest(reason)
        if os.geteuid() != 0:
            self.skipTest("a network of its own is root's to make")
        super().setUp()
        kube_jobset.start(self.cluster, yaml)
        # The namespace must not be "restricted", which forbids folders of the host: the test has no
        # other shared storage.
        self.cluster.kubectl("label", "namespace", NAMESPACE, "pod-security.kubernetes.io/enforce=privileged", "--overwrite")

    def prepare(self):
        folder = self.dir / "pods"
        folder.mkdir()
        try:
            self.addresses = kube_pods.own_network(folder, self.HOSTS)
        except OSError as error:
            self.skipTest(f"no network of its own can be had here: {error}")
        with open(folder / "hosts", "a") as hosts:
            hosts.write(f"{self.addresses['first-leader-0-0']} first-leader-0-0.first\n")

    def tearDown(self):
        if hasattr(self, "pods_run"):
            self.pods_run.stop()
        super().tearDown()

    def start_job(self, *overrides, options=("--insecure",), before=lambda: None):
        """Applies the objects and runs their pods. `before` is called once the objects exist and
        before any container runs.
        """
        out = self.dir / "out"
        out.mkdir()
        objects = self.muster("k8s", "render", "--image", "r", "--bin-dir", BIN, *options, "--mount", f"{out}:{out}", "-n", NAMESPACE, "--nodes", "2",
                              "--ranks-per-node", "1", "--leave-seconds", "30", self.base_yml(), "run_name=first", f"base_output_directory={out}",
                              "dataset_type=synthetic", "log_period=1", *TINY, *overrides, check=0).stdout
        self.cluster.kubectl("apply", "-f", "-", stdin=objects)
        before()
        self.pods_run = kube_pods.PodRunner(self.cluster, self.dir / "pods/run", self.env, self.addresses, NAMESPACE).start()
        self.addCleanup(self.pods_run.stop)

    def conditions(self):
        status = self.cluster.get("-n", NAMESPACE, "jobset", "first").get("status", {})
        return {c["type"]: c.get("message") for c in status.get("conditions", []) if c["status"] == "True"}

    def wait_for(self, condition, seconds, what):
        try:
            return wait_until(condition, seconds, what)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.conditions()}\n{self.pods_run.logs()}") from error

    def pods_of(self, part):
        items = self.cluster.get("-n", NAMESPACE, "pods", "-l", f"jobset.sigs.k8s.io/replicatedjob-name={part}")["items"]
        return [pod for pod in items if "deletionTimestamp" not in pod["metadata"] and pod["status"].get("phase") == "Running"]

    def output(self):
        """Returns the output of all the leader's pods."""
        return "".join(path.read_text() for path in sorted((self.dir / "pods/run").glob("*.muster.log")))

    def test_a_job_set_ends_as_its_job_does(self):
        self.start_job("steps=5")
        self.wait_for(lambda: "Completed" in self.conditions(), 120, "the end")
        self.assertIn("completed step: 4", self.output())
        self.wait_for(lambda: not self.pods_of("workers"), 60, "the end of the workers")

    def test_tls_job_set_replaces_a_worker_and_refuses_callers_without_a_token(self):
        leader = "first-leader-0-0.first"
        # A pod's loopback is its address in this test, so the certificate includes that address.
        subprocess.run([str(SOURCE / "deploy/make-secrets.sh"), "-n", NAMESPACE, "--coordinator", leader, "--tls", "first-tls", "--tokens", "first-tokens",
                        self.addresses["first-leader-0-0"]], capture_output=True, text=True, timeout=60, env=self.cluster.env, check=True)
        self.start_job("steps=100000", options=("--tls-secret", "first-tls", "--token-secret", "first-tokens"))
        self.wait_for(lambda: self.output().count("completed step") > 3, 120, "steps")
        self.env["MUSTER_COORDINATOR"] = f"{leader}:7070"
        for file, secret, key in (("ca.crt", "first-tls", "ca.crt"), ("viewer", "first-tokens", "viewer")):
            (self.dir / file).write_bytes(base64.b64decode(self.cluster.get("-n", NAMESPACE, "secret", secret)["data"][key]))
        known = {"MUSTER_TLS_CA": str(self.dir / "ca.crt")}
        self.assertNotEqual(self.muster("list", env=known).returncode, 0)
        known["MUSTER_TOKEN_FILE"] = str(self.dir / "viewer")
        self.assertIn("first", self.muster("list", env=known, check=0).stdout)
        self.assertNotEqual(self.muster("cancel", 1, env=known).returncode, 0, "a viewer's request")
        self.evict(self.pods_of("workers")[0]["metadata"]["name"])
        self.wait_for(lambda: "restored checkpoint" in self.output(), 90, "the same from its checkpoint")
        self.assertNotIn("Failed", self.conditions())

    def test_ranks_are_in_the_order_of_their_nodes_switches(self):
        self.cluster.kubectl("-n", NAMESPACE, "create", "serviceaccount", "topology")
        self.cluster.kubectl("create", "clusterrole", "topology", "--verb=get", "--resource=nodes")
        self.cluster.kubectl("create", "clusterrolebinding", "topology", "--clusterrole=topology", f"--serviceaccount={NAMESPACE}:topology")

        def worker_nodes():
            pods = self.cluster.get("-n", NAMESPACE, "pods", "-l", "jobset.sigs.k8s.io/replicatedjob-name=workers")["items"]
            found = {pod["spec"]["hostname"]: pod["spec"].get("nodeName") for pod in pods}
            return found if len(found) == 2 and all(found.values()) else None

        def label_nodes():
            """Labels nodes so that the order of the switches differs from the order of the names.
            """
            for index, (_, node) in enumerate(sorted(wait_until(worker_nodes, 60, "the nodes of the workers").items())):
                self.cluster.kubectl("label", "node", node, f"{LAYER}1=spine", f"{LAYER}2=leaf-{9 - index}")
        layers = [word for layer in (1, 2) for word in ("--switches-from-node", f"{LAYER}{layer}")]
        # A node of 8 processors has room for one such pod.
        self.start_job("steps=1000000", options=("--insecure", "--cpu", "5", *layers, "--service-account", "topology"), before=label_nodes)
        self.wait_for(lambda: "completed step" in self.output(), 120, "steps")
        self.env["MUSTER_COORDINATOR"] = "first-leader-0-0.first:7070"
        self.assertEqual([assignment["worker"] for assignment in self.job(1)["placement"]], ["worker-1", "worker-0"])

    def test_every_variant_is_admitted(self):
        for name, more in VARIANTS.items():
            with self.subTest(name):
                result = self.cluster.apply(*self.trainer(*more), options=("-n", NAMESPACE, "--dry-run=server", "--validate=strict"), check=False)
                self.assertEqual(result.returncode, 0, result.stderr)

    def why(self):
        return self.muster("status", "--why", "-n", NAMESPACE, env=self.cluster.env, check=0).stdout

    def test_status_reports_why_a_job_set_does_not_run(self):
        self.cluster.apply({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "small", "namespace": NAMESPACE},
                            "spec": {"hard": {"pods": "1"}}})
        self.start_job("steps=1000000")
        self.wait_for(lambda: "exceeded quota" in self.why(), 60, "the quota")
        self.assertRegex(self.why(), r"Job first-(leader|workers)-0 has \d of \d pods: .*exceeded quota: small")
        self.cluster.kubectl("-n", NAMESPACE, "delete", "resourcequota", "small")
        # The same with Kueue.
        self.cluster.kubectl("-n", NAMESPACE, "patch", "jobset", "first", "--type=merge", "-p", json.dumps({"spec": {"suspend": True}}))
        for job in ("first-leader-0", "first-workers-0"):
            self.wait_for(lambda job=job: f"Job {job} is suspended: it waits for its queue" in self.why(), 60, "the suspended job")

    def test_a_job_that_fails_fails_its_job_set(self):
        self.start_job("steps=5", f"load_parameters_path={self.dir}/missing")
        self.wait_for(lambda: "Failed" in self.conditions(), 120, "the end")
        self.assertIn("missing", self.output())

    def test_job_set_survives_the_loss_of_a_worker_and_of_its_leader(self):
        self.start_job("steps=1000000", "checkpoint_period=1000000")
        self.wait_for(lambda: self.output().count("completed step") > 3, 120, "steps")
        self.evict(self.pods_of("workers")[0]["metadata"]["name"])
        self.wait_for(lambda: "is leaving" in self.output() and "restored checkpoint" in self.output(), 90, "the same from its checkpoint")
        self.wait_for(lambda: len(self.pods_of("workers")) == 2, 60, "another worker")

        before = self.pods_of("leader")[0]["metadata"]["name"]
        self.evict(before)
        self.wait_for(lambda: [pod["metadata"]["name"] for pod in self.pods_of("leader")] not in ([], [before]), 90, "another leader")
        self.wait_for(lambda: self.output().count("restored checkpoint") >= 2, 120, "the job under another coordinator")
        self.assertNotIn("Failed", self.conditions())

        self.cluster.kubectl("-n", NAMESPACE, "delete", "jobset", "first", "--wait=false")
        self.wait_for(lambda: not self.cluster.get("-n", NAMESPACE, "pods")["items"], 90, "the end of all pods")


if __name__ == "__main__":
    unittest.main()
