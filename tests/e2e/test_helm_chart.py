"""The chart without a cluster: rendered objects, checked against Kubernetes' own schemas, and
refused values.
"""
import json
import re
import shlex
import shutil
import subprocess
import unittest

import kube_tools
from harness import BIN, SOURCE
from helm_case import CHART, GPU_POOL, VARIANTS, HelmCase, merged, yaml


class Objects(HelmCase):
    def test_lint_finds_nothing(self):
        result = self.run_helm("lint", "--strict", CHART, values={})
        self.assertEqual(result.returncode, 0, result.stdout)
        self.assertNotIn("[WARNING]", result.stdout)

    def test_every_variant_matches_kubernetes_schemas(self):
        schemas = self.schemas()
        wrong = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": 5}, "spec": {"prots": []}}
        self.assertEqual(len(schemas.errors(wrong)), 2, schemas.errors(wrong))
        wrong = {"apiVersion": "cert-manager.io/v1", "kind": "Certificate", "metadata": {}, "spec": {
            "issuerRef": {"name": "a"}, "secretName": "b", "privateKey": {"algorithm": "AES"}, "names": []}}
        self.assertEqual(len(schemas.errors(wrong)), 2, schemas.errors(wrong))
        for name, values in [*VARIANTS.items(), ("p5", {})]:
            more = ("-f", CHART / "values-eks-p5.yaml") if name == "p5" else ()
            with self.subTest(name):
                documents = self.render(values, *more)
                for document in documents:
                    self.assertEqual(schemas.errors(document), [])
                names = [(d["kind"], d["metadata"]["name"]) for d in documents]
                self.assertEqual(len(names), len(set(names)))
                self.assertTrue(all(d["metadata"]["labels"]["app.kubernetes.io/instance"] == "demo" for d in documents))

    def test_two_renders_are_equal(self):
        for values in VARIANTS.values():
            self.assertEqual(self.render(values), self.render(values), "an upgrade would restart pods for nothing")

    def test_another_chart_version_restarts_no_pod(self):
        def workloads(chart):
            result = self.run_helm("template", "demo", chart, "--kube-version", kube_tools.KUBERNETES_VERSION,
                                   values=self.with_secrets({"image": {"repository": "r", "tag": "1"}, "pools": {"each": {"kind": "DaemonSet"}}}))
            self.assertEqual(result.returncode, 0, result.stderr)
            return {d["metadata"]["name"]: d for d in yaml.safe_load_all(result.stdout) if d and d["kind"] in ("StatefulSet", "DaemonSet")}
        next_chart = self.dir / "muster"
        shutil.copytree(CHART, next_chart)
        text = (next_chart / "Chart.yaml").read_text()
        (next_chart / "Chart.yaml").write_text(re.sub(r"ersion: 0\.1\.0", "ersion: 0.2.0", text))
        before, after = workloads(CHART), workloads(next_chart)
        self.assertEqual(len(before), 3)
        for name, workload in before.items():
            self.assertNotEqual(workload["metadata"]["labels"], after[name]["metadata"]["labels"])
            self.assertEqual(workload["spec"], after[name]["spec"])

    def test_chart_without_its_rules_is_refused(self):
        bare = self.dir / "muster"
        shutil.copytree(CHART, bare, ignore=lambda folder, names: {"rules", "dashboards"} & set(names))
        for values, printed in (({"prometheusRule": {"enabled": True}}, "has no rules/*.yml"), ({"dashboards": {"enabled": True}}, "has no dashboards/*.json")):
            result = self.run_helm("template", "demo", bare, "--kube-version", kube_tools.KUBERNETES_VERSION, values=self.with_secrets({"monitoring": values}))
            self.assertIn(printed, result.stderr)

    def test_daemons_accept_their_flags(self):
        for name in ("default", "inside alone", "switches from nodes", "everything of a pod", "everything of the coordinator"):
            for workload in self.render(VARIANTS[name]):
                if workload["kind"] not in ("StatefulSet", "DaemonSet"):
                    continue
                container = self.container(workload)
                program = BIN / container["command"][0].rsplit("/", 1)[1]
                flags = [re.sub(r"\$\((\w+)\)", "x", argument) for argument in container["args"]]
                result = subprocess.run([str(program), *flags, "--help"], capture_output=True, text=True, timeout=20)
                self.assertEqual(result.returncode, 0, result.stderr)
                for flag in flags:
                    self.assertIn(flag.split("=")[0], result.stdout)

    def test_readme_matches_the_values(self):
        result = subprocess.run([str(SOURCE / "helm/make_readme.py"), "--check"], capture_output=True, text=True, timeout=20)
        self.assertEqual(result.returncode, 0, result.stdout)

    def test_chart_version_equals_the_programs_version(self):
        chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
        version = json.loads(self.muster("version", "--json", check=0).stdout)["version"]
        self.assertEqual(chart["appVersion"], version)


class Choices(HelmCase):
    def test_api_requires_tls_and_a_token(self):
        args = self.container(self.one(self.render({}), "StatefulSet", "demo-muster-coordinator"))["args"]
        self.assertIn("--tls-cert=/etc/muster/tls/tls.crt", args)
        self.assertIn("--token-dir=/etc/muster/tokens", args)
        self.assertNotIn("--insecure", args)
        worker = self.container(self.one(self.render({}), "StatefulSet", "demo-muster-cpu"))
        self.assertIn("--tls-ca=/etc/muster/ca/ca.crt", worker["args"])
        self.assertNotIn("--insecure", worker["args"])

    def test_unquoted_off_disables_tls(self):
        (self.dir / "off.yaml").write_text("image: {repository: r}\ntls:\n  mode: off\n")
        result = self.run_helm("template", "demo", CHART, "--namespace", "training", "--kube-version", kube_tools.KUBERNETES_VERSION, "-f", self.dir / "off.yaml")
        self.assertEqual(result.returncode, 0, result.stderr)
        inside = self.render(merged(VARIANTS["inside alone"], {"image": {"repository": "r"}}))
        self.assertEqual([document for document in yaml.safe_load_all(result.stdout) if document], inside)

    def test_mounted_secrets_update_in_running_pods(self):
        for workload in self.render(VARIANTS["gpu"]):
            if workload["kind"] == "StatefulSet":
                self.assertFalse([m for m in self.container(workload)["volumeMounts"] if "subPath" in m])
                self.assertNotIn("secretKeyRef", yaml.dump(workload))

    def test_worker_mounts_only_its_own_token(self):
        volumes = self.one(self.render({}), "StatefulSet", "demo-muster-cpu")["spec"]["template"]["spec"]["volumes"]
        secrets = {v["name"]: [item["key"] for item in v["secret"]["items"]] for v in volumes if "secret" in v}
        self.assertEqual(secrets, {"ca": ["ca.crt"], "token": ["worker"]})

    def test_metrics_never_leave_the_cluster(self):
        documents = self.render(VARIANTS["load balancer"])
        for service in (d for d in documents if d["kind"] == "Service"):
            ports = [port["name"] for port in service["spec"]["ports"]]
            if service["spec"].get("type", "ClusterIP") != "ClusterIP":
                self.assertEqual(ports, ["grpc"], service["metadata"]["name"])
        policy = self.one(documents, "NetworkPolicy", "demo-muster-coordinator")
        open_to_all = [rule["ports"] for rule in policy["spec"]["ingress"] if "from" not in rule]
        self.assertEqual(open_to_all, [[{"port": "grpc"}]])

    def test_network_policy_names_the_allowed_callers(self):
        policy = self.one(self.render({"networkPolicy": {"clients": [{"namespaceSelector": {}}]}}), "NetworkPolicy", "demo-muster-coordinator")
        grpc = next(rule for rule in policy["spec"]["ingress"] if rule["ports"] == [{"port": "grpc"}])
        self.assertEqual(len(grpc["from"]), 3)
        workers = self.one(self.render({}), "NetworkPolicy", "demo-muster-worker")
        self.assertTrue(all("from" in rule for rule in workers["spec"]["ingress"]))

    def test_every_probe_waits_longer_than_the_page_bound(self):
        bound = int(re.search(r"kAnswerBudget\{(\d+)\}", (SOURCE / "daemon/http_server.h").read_text()).group(1))
        for given, expected in (({}, 5), ({"probes": {"timeoutSeconds": 8}}, 8)):
            workloads = [d for d in self.render(merged(VARIANTS["gpu"], given)) if d["kind"] in ("StatefulSet", "DaemonSet")]
            self.assertGreater(len(workloads), 1, "a coordinator and workers")
            for workload in workloads:
                container = self.container(workload)
                for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
                    with self.subTest(workload["metadata"]["name"], probe=probe):
                        self.assertEqual(container[probe].get("timeoutSeconds", 1), expected)
                        self.assertGreater(expected, bound)
        for wrong in (bound, 0, "5"):
            self.assertIn("timeoutSeconds", self.refusal({"probes": {"timeoutSeconds": wrong}}))

    def test_devices_are_requests_and_limits(self):
        resources = self.container(self.one(self.render(VARIANTS["efa"]), "StatefulSet", "demo-muster-efa"))["resources"]
        for kind in ("requests", "limits"):
            self.assertEqual(resources[kind]["nvidia.com/gpu"], 8)
            self.assertEqual(resources[kind]["vpc.amazonaws.com/efa"], 32)
            self.assertEqual(resources[kind]["hugepages-2Mi"], "5120Mi")

    def test_slots_are_gpus_unless_the_values_set_another_number(self):
        def slots(pool):
            args = self.container(self.one(self.render({"pools": {"p": pool}}), "StatefulSet", "demo-muster-p"))["args"]
            return next(argument for argument in args if argument.startswith("--slots="))
        self.assertEqual(slots({}), "--slots=1")
        self.assertEqual(slots(GPU_POOL), "--slots=8")
        self.assertEqual(slots({"slots": 4}), "--slots=4")

    def test_switches_come_from_the_pool_or_each_pods_label(self):
        def switches(pool):
            env = self.container(self.one(self.render({"pools": {"p": pool}}), "StatefulSet", "demo-muster-p"))["env"]
            return next((entry for entry in env if entry["name"] == "MUSTER_WORKER_SWITCHES"), None)
        self.assertEqual(switches({})["valueFrom"], {"fieldRef": {"fieldPath": "metadata.labels['topology.kubernetes.io/zone']"}})
        self.assertIsNone(switches({"switchesLabel": ""}))
        self.assertIsNone(switches({"switchesFromNode": ["a"]}))
        self.assertEqual(switches({"switches": "spine.leaf3"})["value"], "spine.leaf3")
        self.assertEqual(switches({"switchesLabel": "rack"})["valueFrom"], {"fieldRef": {"fieldPath": "metadata.labels['rack']"}})

    def test_only_the_switch_reader_mounts_the_api_token(self):
        documents = self.render(VARIANTS["switches from nodes"])
        spec = self.one(documents, "StatefulSet", "demo-muster-cpu")["spec"]["template"]["spec"]
        self.assertFalse(spec["automountServiceAccountToken"])
        reader = spec["initContainers"][0]
        labels = [argument for argument in reader["args"] if argument.startswith("--label=")]
        self.assertEqual(labels, [f"--label=topology.k8s.aws/network-node-layer-{layer}" for layer in (1, 2)])
        taken = self.muster(*reader["args"], "--help")
        self.assertEqual(taken.returncode, 0, taken.stderr)
        for argument in reader["args"]:
            self.assertIn(argument.split("=")[0], taken.stdout)
        self.assertEqual(reader["image"], spec["containers"][0]["image"])
        self.assertIn("account", [mount["name"] for mount in reader["volumeMounts"]])
        self.assertNotIn("account", [mount["name"] for mount in spec["containers"][0]["volumeMounts"]])
        self.assertEqual(self.one(documents, "ClusterRole", "training-demo-muster-topology")["rules"],
                         [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}])
        self.assertEqual(spec["serviceAccountName"], "demo-muster-topology")
        subjects = self.one(documents, "ClusterRoleBinding", "training-demo-muster-topology")["subjects"]
        self.assertEqual([subject["name"] for subject in subjects], ["demo-muster-topology"])

    def test_p5_pools_read_switches_by_default(self):
        def spec(*more):
            return self.one(self.render({}, "-f", CHART / "values-eks-p5.yaml", *more), "StatefulSet", "demo-muster-p5")["spec"]["template"]["spec"]
        labels = [argument for argument in spec()["initContainers"][0]["args"] if argument.startswith("--label=")]
        self.assertEqual(labels, [f"--label=topology.k8s.aws/network-node-layer-{layer}" for layer in (1, 2, 3)])
        without = spec("--set-json", "pools.p5.switchesFromNode=[]")
        self.assertNotIn("initContainers", without)
        self.assertIn("MUSTER_WORKER_SWITCHES", [entry["name"] for entry in without["containers"][0]["env"]])

    def test_storage_is_mounted_in_workers_only(self):
        documents = self.render(merged(VARIANTS["a claim of its own"], {"pools": {"each": {"kind": "DaemonSet"}}}))
        for kind, name in (("StatefulSet", "demo-muster-cpu"), ("DaemonSet", "demo-muster-each")):
            workload = self.one(documents, kind, name)
            self.assertIn({"name": "storage", "mountPath": "/shared"}, self.container(workload)["volumeMounts"])
            self.assertIn({"name": "storage", "persistentVolumeClaim": {"claimName": "demo-muster-storage"}},
                          workload["spec"]["template"]["spec"]["volumes"])
        coordinator = self.container(self.one(documents, "StatefulSet", "demo-muster-coordinator"))
        self.assertNotIn("storage", [mount["name"] for mount in coordinator["volumeMounts"]])
        claim = self.one(documents, "PersistentVolumeClaim", "demo-muster-storage")
        self.assertEqual(claim["metadata"]["annotations"], {"helm.sh/resource-policy": "keep"})
        self.assertNotIn("annotations", self.one(self.render(VARIANTS["claims that go with it"]), "PersistentVolumeClaim", "demo-muster-storage")["metadata"])

    def test_pool_settings_reach_its_pods(self):
        printed = VARIANTS["everything of a pod"]["pools"]["cpu"]
        workload = self.one(self.render(merged(VARIANTS["everything of a pod"], {"pools": {"cpu": {"sharedMemory": "7Gi"}}})), "StatefulSet", "demo-muster-cpu")
        template = workload["spec"]["template"]
        spec, container = template["spec"], self.container(workload)
        for key in ("tolerations", "affinity", "priorityClassName", "topologySpreadConstraints", "runtimeClassName"):
            self.assertEqual(spec[key], printed[key])
        self.assertEqual(spec["securityContext"]["fsGroup"], 5)
        self.assertTrue(spec["securityContext"]["runAsNonRoot"])
        self.assertEqual(template["metadata"]["labels"]["a"], "b")
        self.assertEqual(template["metadata"]["annotations"], {"c": "d"})
        self.assertIn({"name": "A", "value": "b"}, container["env"])
        self.assertIn("--rank-series=0", container["args"])
        self.assertIn({"name": "data", "mountPath": "/data"}, container["volumeMounts"])
        self.assertIn({"name": "data", "emptyDir": {}}, spec["volumes"])
        self.assertIn({"name": "shm", "mountPath": "/dev/shm"}, container["volumeMounts"])
        self.assertIn({"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "7Gi"}}, spec["volumes"])
        gpu = self.one(self.render(VARIANTS["gpu"]), "StatefulSet", "demo-muster-gpu")
        self.assertEqual(gpu["spec"]["template"]["spec"]["nodeSelector"], GPU_POOL["nodeSelector"])

    def test_monitors_select_their_pods(self):
        documents = self.render(VARIANTS["monitoring"])

        def finds(selector, labels):
            return selector["matchLabels"].items() <= labels.items()
        monitor = self.one(documents, "ServiceMonitor", "demo-muster-coordinator")["spec"]
        services = [d for d in documents if d["kind"] == "Service" and finds(monitor["selector"], d["metadata"]["labels"])]
        self.assertEqual([service["metadata"]["name"] for service in services], ["demo-muster-coordinator-metrics"])
        self.assertEqual([port["name"] for port in services[0]["spec"]["ports"]], [monitor["endpoints"][0]["port"]])
        coordinator = self.one(documents, "StatefulSet", "demo-muster-coordinator")
        self.assertTrue(services[0]["spec"]["selector"].items() <= coordinator["spec"]["template"]["metadata"]["labels"].items())
        monitor = self.one(documents, "PodMonitor", "demo-muster-worker")["spec"]
        workers = self.one(documents, "StatefulSet", "demo-muster-cpu")
        self.assertTrue(finds(monitor["selector"], workers["spec"]["template"]["metadata"]["labels"]))
        self.assertFalse(finds(monitor["selector"], coordinator["spec"]["template"]["metadata"]["labels"]))
        self.assertIn(monitor["podMetricsEndpoints"][0]["port"], [port["name"] for port in self.container(workers)["ports"]])
        # The names by which rules and dashboards identify both daemons.
        scraped = {job["job_name"] for job in yaml.safe_load((SOURCE / "deploy/monitoring/prometheus.yml").read_text())["scrape_configs"]}
        for kind, name in (("ServiceMonitor", "demo-muster-coordinator"), ("PodMonitor", "demo-muster-worker")):
            spec = self.one(documents, kind, name)["spec"]
            self.assertIn((spec.get("endpoints") or spec["podMetricsEndpoints"])[0]["relabelings"][0]["replacement"], scraped)

    def test_ending_pods_have_time_for_a_checkpoint(self):
        spec = self.one(self.render({"pools": {"cpu": {"leaveGraceSeconds": 100}}}), "StatefulSet", "demo-muster-cpu")["spec"]["template"]["spec"]
        self.assertIn("--leave-grace=100", spec["containers"][0]["args"])
        self.assertGreater(spec["terminationGracePeriodSeconds"], 100)

    def test_pods_have_no_rights_and_are_not_root(self):
        documents = self.render(VARIANTS["gpu"])
        self.assertFalse([d["kind"] for d in documents if "Role" in d["kind"]])
        for workload in (d for d in documents if d["kind"] == "StatefulSet"):
            spec = workload["spec"]["template"]["spec"]
            self.assertFalse(spec["automountServiceAccountToken"])
            self.assertTrue(spec["securityContext"]["runAsNonRoot"])
            self.assertEqual(spec["containers"][0]["securityContext"]["capabilities"], {"drop": ["ALL"]})

    def test_stateful_set_pools_have_a_disruption_budget(self):
        values = {"pools": {"each": {"kind": "DaemonSet"}, "gpu": GPU_POOL, "free": {"maxUnavailable": ""}}}
        budgets = [d["metadata"]["name"] for d in self.render(values) if d["kind"] == "PodDisruptionBudget"]
        self.assertEqual(budgets, ["demo-muster-cpu", "demo-muster-gpu"])

    def test_several_coordinators_share_etcd_and_only_the_leader_is_reached(self):
        documents = self.render(VARIANTS["three coordinators"])
        spec = self.one(documents, "StatefulSet", "demo-muster-coordinator")["spec"]
        self.assertEqual((spec["replicas"], spec["podManagementPolicy"], spec["updateStrategy"]), (3, "Parallel", {"type": "OnDelete"}))
        container = spec["template"]["spec"]["containers"][0]
        for argument in ("--etcd=https://etcd-0.etcd:2379,https://etcd-1.etcd:2379", "--etcd-prefix=/training/demo",
                         "--advertise=$(POD_NAME).demo-muster-coordinator-pods:7070", "--etcd-key=/etc/muster/etcd/tls.key"):
            self.assertIn(argument, container["args"])
        self.assertEqual([variable["name"] for variable in container["env"]], ["POD_NAME"])
        self.assertEqual(container["readinessProbe"]["periodSeconds"], 1)
        self.assertIn({"name": "etcd", "mountPath": "/etc/muster/etcd", "readOnly": True}, container["volumeMounts"])
        apart = spec["template"]["spec"]["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"][0]["podAffinityTerm"]
        self.assertEqual(apart["topologyKey"], "kubernetes.io/hostname")
        self.assertLessEqual(apart["labelSelector"]["matchLabels"].items(), spec["template"]["metadata"]["labels"].items())
        self.assertFalse(self.one(documents, "Service", "demo-muster-coordinator")["spec"]["publishNotReadyAddresses"])

        documents = self.render(VARIANTS["one coordinator with etcd"])
        spec = self.one(documents, "StatefulSet", "demo-muster-coordinator")["spec"]
        self.assertIn("--etcd-prefix=/fleet", spec["template"]["spec"]["containers"][0]["args"])
        self.assertEqual(spec["updateStrategy"]["type"], "RollingUpdate")
        self.assertTrue(self.one(documents, "Service", "demo-muster-coordinator")["spec"]["publishNotReadyAddresses"])

    def test_cert_manager_signs_the_requested_names(self):
        documents = self.render(VARIANTS["cert-manager"])
        certificate = self.one(documents, "Certificate", "demo-muster-coordinator")
        self.assertIn("muster.example.com", certificate["spec"]["dnsNames"])
        self.assertEqual(certificate["spec"]["ipAddresses"], ["127.0.0.1", "10.1.2.3"])
        self.assertIn("demo-muster-coordinator.training.svc", certificate["spec"]["dnsNames"])
        pod = self.one(documents, "StatefulSet", "demo-muster-coordinator")["spec"]["template"]["spec"]
        self.assertIn(certificate["spec"]["secretName"], [v["secret"]["secretName"] for v in pod["volumes"] if "secret" in v])
        other = self.render(VARIANTS["cert-manager's issuer"])
        self.assertEqual([d["metadata"]["name"] for d in other if d["kind"] in ("Issuer", "Certificate")], ["demo-muster-coordinator"])

    def test_rules_and_dashboards_equal_those_of_deploy(self):
        documents = self.render(VARIANTS["monitoring"])
        groups = {g["name"]: g for g in self.one(documents, "PrometheusRule", "demo-muster")["spec"]["groups"]}
        for path in (SOURCE / "deploy/monitoring/rules").glob("*.yml"):
            for group in yaml.safe_load(path.read_text())["groups"]:
                self.assertEqual(groups[group["name"]], group)
        for path in (SOURCE / "deploy/monitoring/dashboards").glob("*.json"):
            data = self.one(documents, "ConfigMap", f"demo-muster-dashboard-{path.stem}")["data"]
            self.assertEqual(data[path.name], path.read_text())


class Commands(HelmCase):
    """The first commands of docs/kubernetes.md, run as they are written there."""

    def commands(self):
        block = (SOURCE / "docs/kubernetes.md").read_text().split("```bash\n", 1)[1].split("```", 1)[0]
        return [shlex.split(line, comments=True) for line in block.replace("\\\n", " ").splitlines()]

    def test_jobs_fit_the_pool_and_write_to_shared_storage(self):
        install = next(words for words in self.commands() if words[:2] == ["helm", "install"])
        workload = self.one(self.render({}, *install[install.index("--set"):]), "StatefulSet", "demo-muster-cpu")
        worker = self.container(workload)
        slots = next(int(argument.split("=")[1]) for argument in worker["args"] if argument.startswith("--slots="))
        shared = next(mount["mountPath"] for mount in worker["volumeMounts"] if mount["name"] == "storage")
        submitted = [words[2:] for words in self.commands() if words[:2] == ["muster", "submit"]]
        self.assertEqual(len(submitted), 2)
        for words in submitted:
            words = [word for word in words if word != "--follow"]
            objects = json.loads(self.muster("k8s", "render", "--image", "r", "--insecure", "--json", "--k8s-name", "a", "--mount", f"a:{shared}",
                                             *words, check=0, cwd=SOURCE).stdout)["items"]
            spec = json.loads(objects[0]["data"]["job.json"])
            self.assertEqual(spec["nodes"] * spec["ranks_per_node"], 4)
            self.assertLessEqual(spec["nodes"], workload["spec"]["replicas"])
            self.assertLessEqual(spec["ranks_per_node"], slots)
            self.assertTrue(spec["output_directory"].startswith(shared + "/"), spec["output_directory"])


class Notes(HelmCase):
    def notes(self, values):
        """Returns the notes of `helm install`, rendered into an object because `helm template`
        omits them.
        """
        chart = self.dir / "muster"
        if not chart.exists():
            shutil.copytree(CHART, chart)
            (chart / "templates/NOTES.txt").rename(chart / "notes.txt")
            (chart / "templates/notes.yaml").write_text(
                '{apiVersion: v1, kind: ConfigMap, metadata: {name: notes}, data: {notes: {{ tpl (.Files.Get "notes.txt") . | quote }}}}')
        result = self.run_helm("template", "demo", chart, "--namespace", "training", "--kube-version", kube_tools.KUBERNETES_VERSION,
                               "--show-only", "templates/notes.yaml", values=self.with_secrets(values))
        self.assertEqual(result.returncode, 0, result.stderr)
        return yaml.safe_load(result.stdout)["data"]["notes"]

    def test_notes_name_the_secrets_to_create(self):
        self.assertIn("wait for the Secrets muster-tls and muster-tokens; deploy/make-secrets.sh makes them.", self.notes({}))
        notes = self.notes(VARIANTS["cert-manager"])
        self.assertIn("wait for the Secret muster-tokens;", notes)
        self.assertIn("get secret demo-muster-tls -o", notes)
        self.assertIn("cert-manager leaves its Secrets behind, unless it is configured to own them: demo-muster-tls and demo-muster-ca.", notes)
        self.assertIn("configured to own them: demo-muster-tls.", self.notes(VARIANTS["cert-manager's issuer"]))
        notes = self.notes(VARIANTS["inside alone"])
        self.assertNotIn("ecret", notes)
        self.assertIn("port-forward service/demo-muster-coordinator 7070", notes)

    def test_notes_name_what_an_uninstall_leaves(self):
        self.assertIn("leaves the claim state-demo-muster-coordinator-0 (jobs and incidents) behind. To delete it with all data:", self.notes({}))
        both = self.notes(VARIANTS["a claim of its own"])
        self.assertIn("leaves the claims state-demo-muster-coordinator-0 (jobs and incidents) and demo-muster-storage (data and checkpoints) behind", both)
        self.assertIn("delete pvc -l app.kubernetes.io/name=muster,app.kubernetes.io/instance=demo", both)
        for name in ("claims that go with it", "no workers, no volume"):
            self.assertIn("helm uninstall demo -n training leaves nothing behind.", self.notes(VARIANTS[name]))
        self.assertIn("it forgets its jobs", self.notes(VARIANTS["no workers, no volume"]))
        self.assertIn("delete\ntheir pods one after the other", self.notes(VARIANTS["three coordinators"]))


class Refusals(HelmCase):
    def test_contradictory_values_are_refused_with_a_reason(self):
        pool = {"pools": {"p": {}}}
        cases = [
            ({"coordinator": {"replicas": 3}}, "several coordinators need a common store; name the members of etcd in coordinator.etcd.endpoints"),
            ({"coordinator": {"etcd": {"secretName": "etcd"}}}, "coordinator.etcd.endpoints is empty"),
            ({"coordinator": {"etcd": {"secretName": "etcd", "endpoints": ["http://etcd:2379"]}}}, "certificates need https://"),
            ({"coordinator": {"etcd": {"moveState": True}}}, "moveState is true: it needs coordinator.etcd.endpoints"),
            ({"coordinator": {"replicas": 3, "etcd": {"moveState": True, "endpoints": ["http://etcd:2379"]}}}, "one replica (others would begin without jobs)"),
            ({"coordinator": {"workerLeaseMs": 1000}}, "must be at least twice heartbeatIntervalMs"),
            ({"image": {"repository": ""}}, "set the repository of your Muster image"),
            ({"tls": {"mode": "off"}, "coordinator": {"service": {"type": "LoadBalancer"}}}, "an API without TLS is not served beyond the cluster"),
            ({"tls": {"mode": "off"}, "networkPolicy": {"enabled": False}}, "every pod of the cluster could run jobs"),
            ({"tls": {"mode": "off"}, "networkPolicy": {"clients": [{"namespaceSelector": {}}]}}, "without TLS callers need no credentials"),
            ({"tls": {"mode": "secret"}}, "tls.mode is secret and tls.secretName is empty"),
            ({"tls": {"mode": "chart", "secretName": "mine"}}, "tls.secretName is mine and tls.mode is chart: set tls.mode to secret"),
            ({"tls": {"mode": "certManager", "secretName": "mine"}}, "tls.secretName is mine and tls.mode is certManager"),
            ({"tls": {"mode": "off"}, "tokens": {"secretName": "mine"}}, "tokens are only sent over TLS"),
            ({"tls": {"mode": "secret", "secretName": "mine", "extraNames": ["a.example.com"]}}, "put the names into your own certificate"),
            ({"fullnameOverride": "m" * 40, "pools": {"p5-48xlarge-spot": {}}}, "has 57 characters, and it may have 52"),
            ({"coordinator": {"service": {"loadBalancerSourceRanges": ["10.0.0.0/8"]}}}, "is for the type LoadBalancer"),
            (merged(pool, {"pools": {"p": {"gpus": 8}}}), "pools.p requests devices (gpus 8, efa 0) and names no node pool"),
            (merged(pool, {"pools": {"p": {**GPU_POOL, "efa": 4}}}), "pools.p has efa 4 and no hugepages2Mi"),
            (merged(pool, {"pools": {"p": {**GPU_POOL, "slots": 16}}}), "slots 16 and gpus 8"),
            ({"poolDefaults": {"hugepages2Mi": "1Gi", "resources": {"requests": {"memory": None}}}}, "has hugepages2Mi and no memory"),
            (merged(pool, {"pools": {"p": {"kind": "DaemonSet", "workDir": {"claim": {"size": "1Gi"}}}}}), "its pods have no claims of their own"),
            (merged(pool, {"pools": {"p": {"workDir": {"claim": {"size": "1Gi"}, "hostPath": "/x"}}}}), "both workDir.hostPath and workDir.claim"),
            (merged(pool, {"pools": {"p": {"kind": "DaemonSet", "replicas": 4}}}), "leave replicas unset"),
            (merged(pool, {"pools": {"p": {"domainFromNode": "a"}}}), "pools.p has domainFromNode without switchesFromNode"),
            (merged(pool, {"pools": {"p": {"switches": "a", "switchesFromNode": ["b"]}}}), "pools.p has switches and switchesFromNode"),
            (merged(pool, {"pools": {"p": {**GPU_POOL, "hugepages2Mi": "1Gi", "env": [{"name": "FI_EFA_USE_HUGE_PAGE", "value": "0"}]}}}),
             "which has no use with FI_EFA_USE_HUGE_PAGE=0"),
            (merged(pool, {"pools": {"p": {"resources": {"limits": {"nvidia.com/gpu": 8}}}}}), "pools.p.resources.limits has nvidia.com/gpu 8: give it as gpus of the pool"),
            (merged(pool, {"pools": {"p": {"gpuResource": "amd.com/gpu", "resources": {"requests": {"amd.com/gpu": 1}}}}}), "requests has amd.com/gpu 1: give it as gpus"),
            (merged(pool, {"pools": {"p": {"resources": {"limits": {"habana.ai/gaudi": 8}}}}}), "has habana.ai/gaudi 8 and the pool names no nodes"),
            (merged(pool, {"pools": {"p": {"nameBy": "node", "replicas": 3}}}), "pools.p has nameBy node and replicas 3, and nothing keeps two of them from one node"),
            (merged(pool, {"pools": {"p": {**GPU_POOL, "nameBy": "node", "replicas": 2}}}), "pools.p has nameBy node and replicas 2, and nothing keeps"),
            (merged(pool, {"pools": {"p": {"nameBy": "node", "replicas": 4, "topologySpreadConstraints": [
                {"maxSkew": 2, "whenUnsatisfiable": "DoNotSchedule", "topologyKey": "kubernetes.io/hostname", "labelSelector": {}}]}}}),
             "pools.p has nameBy node and replicas 4, and nothing"),
            (merged(pool, {"pools": {"p": {**GPU_POOL, "gpuResource": "vpc.amazonaws.com/efa", "efa": 4}}}), "pools.p has gpuResource vpc.amazonaws.com/efa, which is not a GPU"),
            (merged(pool, {"pools": {"p": {**GPU_POOL, "hugepages2Mi": "1Gi", "env": [{"name": "FI_EFA_USE_HUGE_PAGE", "value": "False"}]}}}),
             "pools.p has hugepages2Mi 1Gi, which has no use"),
            ({"storage": {"claimName": "fsx", "mountPath": "/dev//shm"}}, "storage.mountPath is /dev//shm, a folder that"),
            ({"storage": {"claimName": "fsx", "mountPath": "/etc/muster/ca/x"}}, "storage.mountPath is /etc/muster/ca/x, a folder that"),
            ({"storage": {"claimName": "fsx", "mountPath": "/opt/./muster/"}}, "storage.mountPath is /opt/./muster/, which would hide"),
            (merged(pool, {"pools": {"p": {"sharedMemory": "64Gi", "resources": {"limits": {"memory": "8Gi"}}}}}),
             "pools.p has sharedMemory 64Gi and resources.limits.memory 8Gi"),
            *((merged(pool, {"pools": {"p": {"sharedMemory": shared, "resources": {"limits": {"memory": memory}}}}}),
               f"pools.p has sharedMemory {shared} and resources.limits.memory {memory}")
              for shared, memory in (("2Gi", "1000000000000000000n"), ("2Gi", "2000000000000000u"), ("1Ei", "1E"), ("1.1E", "1000P"), ("1.1Ei", "1024Pi"), ("2Ki", "2k"))),
            (merged(pool, {"pools": {"p": {"maxUnavailable": "150%"}}}), "pools.p has maxUnavailable 150%: of all workers at most 100%"),
            ({"storage": {"claimName": "fsx", "mountPath": "/var/lib/muster"}}, "storage.mountPath is /var/lib/muster, a folder that the worker's pod uses itself"),
            ({"storage": {"claimName": "fsx", "mountPath": "/dev/shm/"}}, "storage.mountPath is /dev/shm/, a folder"),
            ({"storage": {"claimName": "fsx", "mountPath": "/opt"}}, "storage.mountPath is /opt, which would hide the programs in image.binDir (/opt/muster/bin)"),
            ({"storage": {"mountPath": "/shared"}}, "there is nothing to mount"),
            ({"storage": {"claimName": "fsx"}}, "storage has claimName and no mountPath"),
            ({"storage": {"claimName": "fsx", "hostPath": "/x", "mountPath": "/shared"}}, "storage has claimName and hostPath"),
            (merged(pool, {"pools": {"p": {"env": [{"name": "MUSTER_WORKER_NAME", "value": "x"}]}}}), "are reserved for the chart"),
        ]
        for values, printed in cases:
            with self.subTest(printed):
                self.assertIn(printed, self.refusal(values))

    def test_spread_and_anti_affinity_must_select_the_pools_pods(self):
        def constraint(selector):
            return {"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "topologyKey": "kubernetes.io/hostname",
                    **({} if selector is None else {"labelSelector": selector})}
        other = {"matchLabels": {"muster-pool": "p5"}}
        for selector in (None, other, {"matchLabels": {"tier": "a", "team": "x"}}, {"matchExpressions": [{"key": "muster-pool", "operator": "NotIn", "values": ["p"]}]},
                         {"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]}, {"matchExpressions": [{"key": "x", "operator": "Exists"}]},
                         {"matchExpressions": [{"key": "x", "operator": "In", "values": ["y"]}]}):
            with self.subTest(selector):
                printed = self.refusal({"pools": {"p": {"podLabels": {"tier": "a"}, "topologySpreadConstraints": [constraint({}), constraint(selector)]}}})
                shown = json.dumps(selector, separators=(",", ":"), sort_keys=True)
                self.assertIn(f"pools.p.topologySpreadConstraints[1] has labelSelector {shown}, which does not match the pool's own pods", printed)
                self.assertIn("give {matchLabels: {muster-pool: p}}", printed)
        for selector in ({}, {"matchLabels": {"muster-pool": "p"}}, {"matchLabels": {"app.kubernetes.io/instance": "demo", "tier": "a"}},
                         {"matchExpressions": [{"key": "muster-pool", "operator": "In", "values": ["o", "p"]}, {"key": "x", "operator": "DoesNotExist"},
                                               {"key": "x", "operator": "NotIn", "values": ["y"]}, {"key": "tier", "operator": "Exists"}]}):
            with self.subTest(selector):
                self.render({"pools": {"p": {"nameBy": "node", "replicas": 2, "podLabels": {"tier": "a"}, "topologySpreadConstraints": [constraint(selector)]}}})
        self.assertIn("'matchlabels' not allowed", self.refusal({"pools": {"p": {"topologySpreadConstraints": [constraint({"matchlabels": {"a": "b"}})]}}}))
        term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": other}
        self.assertIn("and nothing keeps two of them from one node", self.refusal({"pools": {"p": {"nameBy": "node", "replicas": 2, "affinity": {
            "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}}}))

    def test_apparent_contradictions_are_accepted(self):
        apart = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"muster-pool": "p"}}}
        by_node = {"nameBy": "node", "replicas": 3}
        for pool in ({**by_node, "replicas": 1}, {"kind": "DaemonSet", "nameBy": "node"},
                     {**by_node, **GPU_POOL, "topologySpreadConstraints": [{"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", **apart}]},
                     {**by_node, "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}}},
                     {"sharedMemory": "8Gi", "resources": {"limits": {"memory": "8589934592"}}}, {"sharedMemory": "1Ei", "resources": {"limits": {"memory": "1024Pi"}}}, {"sharedMemory": "1G", "resources": {"limits": {"memory": "1e9"}}}, {"sharedMemory": "1E9", "resources": {"limits": {"memory": "1G"}}},
                     {"nodeSelector": {"a": "b"}, "resources": {"limits": {"habana.ai/gaudi": 8}}}, {"maxUnavailable": "100%"}):
            with self.subTest(pool):
                self.render({"pools": {"p": pool}})
        self.render({"storage": {"claimName": "fsx", "mountPath": "/optional"}})

    def test_null_values_count_as_absent(self):
        for values in ({"pools": {"p": {"nameBy": "node", "affinity": {"podAntiAffinity": None}}}},
                       *({"poolDefaults": {key: None}} for key in ("affinity", "topologySpreadConstraints", "resources", "env")),
                       {"poolDefaults": {"resources": {"limits": None, "requests": None}}},
                       *({"storage": {key: None}} for key in ("mountPath", "claimName", "create")),
                       {"storage": {"create": None, "claimName": "fsx", "mountPath": "/shared"}}):
            with self.subTest(values):
                self.render(values)

    def test_schema_names_unknown_keys_and_wrong_types(self):
        for values, printed in [
                ({"coordinater": {}}, "coordinater"), ({"coordinator": {"replica": 1}}, "replica"), ({"pools": {"p": {"gpu": 8}}}, "gpu"),
                ({"pools": {"p": {"gpus": "eight"}}}, "/pools/p/gpus"), ({"pools": {"P": {}}}, "'P'"),
                ({"tls": {"mode": "maybe"}}, "/tls/mode"), ({"coordinator": {"service": {"type": "ExternalName"}}}, "/coordinator/service/type"),
                ({"pools": {"p": {"sharedMemory": "much"}}}, "/pools/p/sharedMemory"),
                ({"storage": {"create": {"size": "1TB"}}}, "/storage/create/size"), ({"coordinator": {"replicas": 0}}, "/coordinator/replicas"),
                ({"coordinator": {"etcd": {"endpoints": ["etcd:2379"]}}}, "/coordinator/etcd/endpoints/0")]:
            with self.subTest(printed):
                self.assertIn(printed, self.refusal(values))


class Files(HelmCase):
    def test_fuji_job_matches_kubernetes_schemas_and_the_original(self):
        documents = list(yaml.safe_load_all((SOURCE / "deploy/eks-fuji.yaml").read_text()))
        schemas = self.schemas()
        for document in documents:
            self.assertEqual(schemas.errors(document), [])
        container = self.container(self.one(documents, "Job", "fuji-3b"))
        self.assertEqual(container["resources"]["limits"]["nvidia.com/gpu"], 8)
        self.assertIn("axlearn.common.launch_trainer_main", container["args"])
        self.assertIn({"name": "CONFIG", "value": "fuji-3B-v3-flash-single-host"}, container["env"])
        # The folder, command and flags of the original job.
        self.assertEqual(container["workingDir"], "/opt/axlearn")
        flags = next(entry["value"] for entry in container["env"] if entry["name"] == "XLA_FLAGS").split(" ")
        self.assertEqual(len(flags), 13)
        self.assertIn("--xla_gpu_enable_command_buffer=", flags)
        self.assertIn("--xla_disable_hlo_passes=rematerialization", flags)
        options = container["args"][:container["args"].index("--")]
        leave = next(int(option.split("=")[1]) for option in options if option.startswith("--leave-seconds="))
        pod = self.one(documents, "Job", "fuji-3b")["spec"]["template"]["spec"]
        self.assertGreater(pod["terminationGracePeriodSeconds"], leave + 5)
        result = self.muster(*options, "--help")
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_fuji_on_the_p5_pool_runs_the_same_program_on_all_gpus(self):
        text = (SOURCE / "docs/kubernetes.md").read_text().replace("\\\n", " ")
        words = next(shlex.split(line) for line in text.splitlines() if line.startswith("muster submit") and "fuji" in line)
        objects = json.loads(self.muster("k8s", "render", "--image", "r", "--insecure", "--json", "--mount", "fsx:/fsx",
                                         *[word for word in words[2:] if word != "--follow"], check=0).stdout)["items"]
        spec = json.loads(objects[0]["data"]["job.json"])
        pool = yaml.safe_load((CHART / "values-eks-p5.yaml").read_text())
        self.assertEqual((spec["nodes"], spec["ranks_per_node"], spec["gpus_per_rank"]), (1, 1, pool["pools"]["p5"]["gpus"]))
        self.assertTrue(spec["output_directory"].startswith(pool["storage"]["mountPath"] + "/"))
        job = self.container(self.one(list(yaml.safe_load_all((SOURCE / "deploy/eks-fuji.yaml").read_text())), "Job", "fuji-3b"))
        alone = [word.replace("$(CONFIG)", "fuji-3B-v3-flash-single-host").replace("$(TRAINER_DIR)", "/fsx/fuji-3B")
                 for word in job["args"][job["args"].index("--") + 1:]]
        self.assertEqual(spec["command"], alone)
        self.assertEqual(spec["working_directory"], job["workingDir"])


if __name__ == "__main__":
    unittest.main()
