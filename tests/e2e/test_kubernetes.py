"""The chart on a real control plane, which admits, places, upgrades, evicts and removes its
objects. Pods do not run.
"""
import base64
import json
import re
import shutil
import subprocess
import time
import unittest

from harness import SOURCE, wait_until
from helm_case import CHART, GPU_POOL, OTHERS, VARIANTS, merged
from kube_case import NAMESPACE, ClusterCase


# Objects that exist in every namespace.
BEFORE = ["ConfigMap kube-root-ca.crt", "ServiceAccount default"]
STATE = "state-demo-muster-coordinator-0"


class ControlPlane(ClusterCase):
    def left(self):
        """Returns the namespace's objects that a release may have created, except pods, which
        nothing removes here.
        """
        self.cluster.kubectl("-n", NAMESPACE, "delete", "pods", "--all", "--force", "--grace-period=0")
        kinds = ("statefulsets,daemonsets,services,networkpolicies,poddisruptionbudgets,configmaps,persistentvolumeclaims,serviceaccounts,secrets,"
                 "roles,rolebindings,controllerrevisions,endpointslices,leases")
        found = [f"{item['kind']} {item['metadata']['name']}" for item in self.cluster.get("-n", NAMESPACE, kinds)["items"]]
        roles = self.cluster.get("clusterroles,clusterrolebindings", "-l", "app.kubernetes.io/name=muster")["items"]
        return sorted(found + [f"{item['kind']} {item['metadata']['name']}" for item in roles])

    def test_installed_upgraded_and_removed(self):
        values = {"pools": {"cpu": {"replicas": 2}, "there": {"replicas": 1, "switchesFromNode": ["topology.kubernetes.io/zone"]}}}
        notes = self.helm_release("install", values)
        self.assertIn("pool cpu: 2 worker(s), 1 rank(s) each", notes)
        self.wait_for_placement(2, "cpu")
        first = self.cluster.get("-n", NAMESPACE, "statefulsets", "demo-muster-coordinator")["metadata"]["generation"]
        secrets = self.cluster.get("-n", NAMESPACE, "secrets", "demo-muster-tls", "demo-muster-tokens")["items"]
        self.helm_release("upgrade", merged(values, {"pools": {"cpu": {"replicas": 3}, "each": {"kind": "DaemonSet"}}}))
        self.wait_for_placement(3, "cpu")
        self.wait_for_placement(len(self.cluster.nodes), "each")
        again = self.cluster.get("-n", NAMESPACE, "statefulsets", "demo-muster-coordinator")["metadata"]["generation"]
        self.assertEqual(first, again, "more workers are no reason to restart the coordinator")
        retained = self.cluster.get("-n", NAMESPACE, "secrets", "demo-muster-tls", "demo-muster-tokens")["items"]
        self.assertEqual([secret["data"] for secret in retained], [secret["data"] for secret in secrets])
        self.helm_release("uninstall")
        wait_until(lambda: self.left() == [*BEFORE[:1], f"PersistentVolumeClaim {STATE}", *BEFORE[1:]], 60, "the coordinator's jobs, and nothing else")
        self.assertIn(f"leaves the claim {STATE} (jobs and incidents) behind", notes)
        self.run_noted_command(notes)
        wait_until(lambda: self.left() == BEFORE, 60, "what was there before, and nothing else")

    def test_jobs_are_moved_to_etcd_before_there_are_several_coordinators(self):
        self.helm_release("install", {})
        etcd = {"endpoints": ["http://etcd.other:2379"]}
        refused = self.run_helm("upgrade", "demo", CHART, "--namespace", NAMESPACE, "--kubeconfig", self.cluster.kubeconfig,
                                values={"coordinator": {"replicas": 3, "etcd": etcd}})
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn("upgrade first with coordinator.etcd.moveState=true and coordinator.replicas=1", refused.stderr)
        self.helm_release("upgrade", {"coordinator": {"etcd": {**etcd, "moveState": True}}})
        pod = self.cluster.get("-n", NAMESPACE, "statefulsets", "demo-muster-coordinator")["spec"]["template"]["spec"]
        move = pod["initContainers"][0]
        self.assertEqual(move["args"], ["--move-state-to-etcd", *pod["containers"][0]["args"]])
        self.assertEqual((move["env"], move["volumeMounts"]), (pod["containers"][0]["env"], pod["containers"][0]["volumeMounts"]))
        self.helm_release("upgrade", {"coordinator": {"replicas": 3, "etcd": etcd}})

    def run_noted_command(self, notes):
        """Returns the command in NOTES that deletes the volumes."""
        command = next(line for line in notes.splitlines() if " delete pvc " in line).split()
        self.assertEqual(command[0], "kubectl")
        self.cluster.kubectl(*command[1:], "--wait=false")

    def test_volumes_are_deleted_if_the_release_requests_it(self):
        values = {"storage": {"mountPath": "/shared", "create": {"size": "1Gi", "storageClassName": "nowhere"}},
                  "coordinator": {"persistence": {"storageClassName": "nowhere"}}}
        notes = self.helm_release("install", values)
        self.assertIn(f"leaves the claims {STATE} (jobs and incidents) and demo-muster-storage (data and checkpoints) behind", notes)
        wait_until(lambda: f"PersistentVolumeClaim {STATE}" in self.left(), 60, "the coordinator's claim")
        notes = self.helm_release("upgrade", merged(values, {"storage": {"create": {"keep": False}}, "coordinator": {"persistence": {"keep": False}}}))
        self.assertIn("leaves nothing behind", notes)

        def is_owned():
            claim = self.cluster.get("-n", NAMESPACE, "persistentvolumeclaims", STATE)
            return [owner["name"] for owner in claim["metadata"].get("ownerReferences", [])] == ["demo-muster-coordinator"]
        wait_until(is_owned, 60, "the claim that goes with its StatefulSet")
        self.helm_release("uninstall")
        wait_until(lambda: self.left() == BEFORE, 60, "what was there before, and nothing else")

    def test_release_creates_its_secrets_in_a_new_namespace(self):
        result = self.run_helm("install", "demo", CHART, "--namespace", "fresh", "--create-namespace", "--kubeconfig", self.cluster.kubeconfig, values={})
        self.assertEqual(result.returncode, 0, result.stderr)
        names = [item["metadata"]["name"] for item in self.cluster.get("-n", "fresh", "secrets", "-l", "app.kubernetes.io/name=muster")["items"]]
        self.assertEqual(names, ["demo-muster-tls", "demo-muster-tokens"])

    def test_script_renews_the_releases_secrets_and_an_upgrade_keeps_them(self):
        self.helm_release("install", {})
        own = ("--tls", "demo-muster-tls", "--tokens", "demo-muster-tokens")
        first = self.value_of("demo-muster-tls", "ca.crt").strip()
        for what in ("certificate", "worker"):
            self.make_secrets(*own, "--renew", what)
        renewed = [self.cluster.get("-n", NAMESPACE, "secret", name)["data"] for name in ("demo-muster-tls", "demo-muster-tokens")]
        self.assertIn(first, self.value_of("demo-muster-tls", "ca.crt"))
        self.helm_release("upgrade", {"pools": {"cpu": {"replicas": 2}}})
        self.assertEqual([self.cluster.get("-n", NAMESPACE, "secret", name)["data"] for name in ("demo-muster-tls", "demo-muster-tokens")], renewed)

    def test_namespace_admin_installs_it_but_cannot_grant_access_to_nodes(self):
        self.cluster.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "person", "namespace": NAMESPACE}},
                           {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "person", "namespace": NAMESPACE},
                            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin"},
                            "subjects": [{"kind": "ServiceAccount", "name": "person", "namespace": NAMESPACE}]})
        config = json.loads(self.cluster.kubeconfig.read_text())
        config["users"][0]["user"]["token"] = self.cluster.kubectl("-n", NAMESPACE, "create", "token", "person").stdout.strip()
        person = self.dir / "person"
        person.write_text(json.dumps(config))
        person.chmod(0o600)
        for pool, code in (({"switchesFromNode": ["topology.kubernetes.io/zone"]}, 1), ({}, 0)):
            result = self.run_helm("upgrade", "--install", "demo", CHART, "--namespace", NAMESPACE, "--kubeconfig", person, values={"pools": {"cpu": pool}})
            self.assertEqual(result.returncode, code, result.stderr)
            self.assertEqual("clusterroles" in result.stderr, code == 1, result.stderr)

    def test_node_reader_account_reads_only_nodes(self):
        layers = [f"topology.k8s.aws/network-node-layer-{layer}" for layer in (1, 2)]
        self.cluster.kubectl("label", "node", "node1", *(f"{layer}=nn-{layer[-1]}" for layer in layers))
        self.helm_release("install", {"pools": {"cpu": {"switchesFromNode": layers}}})
        reader = self.one(self.cluster.get("-n", NAMESPACE, "statefulsets")["items"], "StatefulSet", "demo-muster-cpu")["spec"]["template"]["spec"]
        account = self.dir / "account"
        account.mkdir()
        (account / "ca.crt").write_text(self.cluster.get("-n", NAMESPACE, "configmap", "kube-root-ca.crt")["data"]["ca.crt"])
        arguments = [argument.replace("$(NODE)", "node1").replace("/run/muster", str(self.dir)).replace("/var/run/secrets/kubernetes.io/serviceaccount", str(account))
                     for argument in reader["initContainers"][0]["args"]]
        env = {**self.env, "KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(self.cluster.port)}
        for name, code in (("demo-muster-worker", 2), (reader["serviceAccountName"], 0)):
            (account / "token").write_text(self.cluster.kubectl("-n", NAMESPACE, "create", "token", name).stdout)
            result = self.muster(*arguments, env=env)
            self.assertEqual(result.returncode, code, result.stderr)
            self.assertEqual('nodes "node1" is forbidden' in result.stderr, code != 0, result.stderr)
        self.assertEqual((self.dir / "switches").read_text(), "nn-1.nn-2\n")
        for verb, what in (("get", "pods"), ("list", "nodes"), ("update", "nodes"), ("get", "secrets"), ("*", "*")):
            answer = self.cluster.kubectl("auth", "can-i", verb, what, "-n", NAMESPACE, check=False,
                                         *("--as", f"system:serviceaccount:{NAMESPACE}:{reader['serviceAccountName']}"))
            self.assertEqual(answer.stdout.strip(), "no", (verb, what))

    def test_every_variant_is_admitted(self):
        rendered = {name: self.render(values) for name, values in VARIANTS.items()}
        rendered["p5"] = self.render({}, "-f", CHART / "values-eks-p5.yaml")
        for name, documents in rendered.items():
            with self.subTest(name):
                built_in = [d for d in documents if not OTHERS.match(d["apiVersion"])]
                result = self.cluster.apply(*built_in, options=("-n", NAMESPACE, "--dry-run=server", "--validate=strict"), check=False)
                self.assertEqual(result.returncode, 0, result.stderr)
                # "restricted" forbids folders of the host
                if name not in ("daemon set", "a shared folder of the nodes"):
                    self.assertNotIn("PodSecurity", result.stderr)

    def test_accounts_have_no_permissions(self):
        self.helm_release("install", {})
        for account in ("demo-muster-coordinator", "demo-muster-worker"):
            for verb, what in (("get", "pods"), ("list", "secrets"), ("create", "pods"), ("get", "nodes"), ("*", "*")):
                answer = self.cluster.kubectl("auth", "can-i", verb, what, "-n", NAMESPACE, check=False,
                                             *("--as", f"system:serviceaccount:{NAMESPACE}:{account}"))
                self.assertEqual(answer.stdout.strip(), "no", (account, verb, what))

    def test_gpu_pool_waits_for_nodes_with_gpus(self):
        self.helm_release("install", {"pools": {"cpu": None, "gpu": GPU_POOL}})

        def why():
            conditions = [c for pod in self.pods("gpu") for c in pod["status"].get("conditions", []) if c["type"] == "PodScheduled"]
            return conditions and conditions[0].get("message", "")
        wait_until(lambda: "didn't match Pod's node affinity/selector" in (why() or ""), 60, "the scheduler's reason")
        self.cluster.add_node("gpu1", **{"nvidia.com/gpu": "8"})
        self.cluster.kubectl("label", "node", "gpu1", "pool=gpu")
        self.assertEqual(self.wait_for_placement(1, "gpu")[0]["spec"]["nodeName"], "gpu1")

    def test_drain_evicts_one_worker_at_a_time_and_daemon_sets_do_not_block_it(self):
        self.helm_release("install", {"pools": {"cpu": {"replicas": 3}, "each": {"kind": "DaemonSet"}}})
        for pool in ("cpu", "each"):
            for pod in self.wait_for_placement(3, pool):
                self.cluster.report_running(pod["metadata"]["name"], NAMESPACE)

        def allowed():
            return self.cluster.get("-n", NAMESPACE, "poddisruptionbudgets", "demo-muster-cpu").get("status", {}).get("disruptionsAllowed")
        wait_until(lambda: allowed() == 1, 60, "the budget")
        self.assertEqual(self.evict("demo-muster-cpu-0").returncode, 0)
        wait_until(lambda: allowed() == 0, 60, "the budget's end")
        refused = self.evict("demo-muster-cpu-1")
        self.assertIn("disruption budget", refused.stderr)
        for pod in self.pods("each"):
            self.assertEqual(self.evict(pod["metadata"]["name"]).returncode, 0)

    def test_idle_workers_do_not_block_a_drain_while_the_coordinator_is_down(self):
        self.helm_release("install", {"pools": {"cpu": {"replicas": 3}}})
        for pod in self.wait_for_placement(3, "cpu"):
            self.cluster.report_running(pod["metadata"]["name"], NAMESPACE, ready=False)

        def counted():
            status = self.cluster.get("-n", NAMESPACE, "poddisruptionbudgets", "demo-muster-cpu").get("status", {})
            return (status.get("expectedPods"), status.get("currentHealthy")) == (3, 0)
        wait_until(counted, 60, "the budget")
        for n in range(3):
            self.assertEqual(self.evict(f"demo-muster-cpu-{n}").returncode, 0)

    def test_upgrade_replaces_a_coordinator_that_never_started(self):
        self.helm_release("install", {"image": {"tag": "wrong"}})

        def image():
            found = [item["spec"]["containers"][0]["image"] for item in self.cluster.get("-n", NAMESPACE, "pods")["items"]
                     if item["metadata"]["name"] == "demo-muster-coordinator-0" and "deletionTimestamp" not in item["metadata"]]
            return found[0] if found else None
        wait_until(lambda: (image() or "").endswith(":wrong"), 60, "the pod")
        self.helm_release("upgrade", {"image": {"tag": "right"}})
        wait_until(lambda: (image() or "").endswith(":right"), 60, "the corrected pod")

    def report_waiting(self, pod, reason, message):
        """Sets the status that a kubelet reports for a pod whose container cannot be started yet.
        """
        self.cluster.kubectl("-n", NAMESPACE, "patch", "pod", pod, "--subresource=status", "--type=merge", "-p", json.dumps({"status": {
            "phase": "Pending", "containerStatuses": [{"name": "worker", "image": "registry.example/muster:0.1.0", "imageID": "", "ready": False,
                                                       "restartCount": 0, "state": {"waiting": {"reason": reason, "message": message}}}]}}))

    def report_event(self, pod, reason, message):
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        self.cluster.apply({"apiVersion": "v1", "kind": "Event", "metadata": {"name": f"{pod}.{reason.lower()}", "namespace": NAMESPACE},
                            "involvedObject": {"apiVersion": "v1", "kind": "Pod", "name": pod, "namespace": NAMESPACE}, "type": "Warning",
                            "reason": reason, "message": message, "firstTimestamp": now, "lastTimestamp": now, "count": 1,
                            "source": {"component": "kubelet"}})

    def why(self):
        return self.muster("status", "--why", "-n", NAMESPACE, env=self.cluster.env, check=0).stdout

    def test_status_reports_why_pods_do_not_run(self):
        self.assertIn("0 of 0 pods", self.why())
        self.cluster.apply({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "small", "namespace": NAMESPACE},
                            "spec": {"hard": {"pods": "4"}}})
        self.helm_release("install", {"coordinator": {"persistence": {"storageClassName": "nowhere"}},
                                 "pools": {"cpu": {"replicas": 2}, "gpu": GPU_POOL, "wide": {"replicas": 6}}})
        wait_until(lambda: "exceeded quota" in self.why(), 60, "the quota")
        self.assertRegex(self.why(), r"StatefulSet demo-muster-\w+ has \d of \d pods: .*exceeded quota: small")
        self.cluster.kubectl("-n", NAMESPACE, "delete", "resourcequota", "small")
        self.cluster.kubectl("-n", NAMESPACE, "scale", "statefulset", "demo-muster-wide", "--replicas=0")
        self.wait_for_placement(2, "cpu")
        wait_until(lambda: "pod demo-muster-gpu-0 is not scheduled: 0/3 nodes are available" in self.why(), 60, "the scheduler's reason")
        wait_until(lambda: "claim state-demo-muster-coordinator-0 has no volume: storageclass" in self.why(), 60, "the claim")
        self.report_waiting("demo-muster-cpu-0", "ContainerCreating", "")
        self.report_event("demo-muster-cpu-0", "FailedMount", 'MountVolume.SetUp failed for volume "ca" : secret "muster-tls" not found')
        self.report_waiting("demo-muster-cpu-1", "ImagePullBackOff", 'Back-off pulling image "registry.example/muster:0.1.0"')
        printed = self.why()
        self.assertIn('pod demo-muster-cpu-0 waits for a volume: MountVolume.SetUp failed for volume "ca" : secret "muster-tls" not found', printed)
        self.assertIn("pod demo-muster-cpu-1 cannot pull the image registry.example/muster:0.1.0 of worker (ImagePullBackOff)", printed)
        for pod in self.pods("cpu"):
            self.cluster.report_running(pod["metadata"]["name"], NAMESPACE)
        printed = json.loads(self.muster("status", "--why", "-n", NAMESPACE, "--json", env=self.cluster.env, check=0).stdout)["kubernetes"]
        self.assertEqual(printed["ready"], 2)
        # An unknown job fails the command, but the report on pods is still printed.
        both = self.muster("status", "1", "--why", "-n", NAMESPACE, "--coordinator", "127.0.0.1:9", env=self.cluster.env)
        self.assertNotEqual(both.returncode, 0)
        self.assertIn("demo-muster-gpu-0 is not scheduled", both.stdout)
        self.assertIn("no coordinator answers", both.stderr)

    def test_fuji_job_is_admitted_and_status_reports_why_it_does_not_run(self):
        # NAMESPACE forbids its image, which runs as root
        self.cluster.kubectl("apply", "--validate=strict", "-f", SOURCE / "deploy/eks-fuji.yaml")

        def why():
            return self.muster("status", "--why", "-n", "default", env=self.cluster.env, check=0).stdout
        wait_until(lambda: re.search(r"pod fuji-3b-\w+ is not scheduled", why()), 60, "the scheduler's reason")
        self.assertIn("claim fuji-checkpoints has no volume", why())

    def test_status_with_access_to_pods_only(self):
        self.helm_release("install", {"pools": {"cpu": None, "gpu": GPU_POOL}})
        self.cluster.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "person", "namespace": NAMESPACE}},
                           {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "sees", "namespace": NAMESPACE}, "rules": [
                               {"apiGroups": ["", "apps", "batch"], "verbs": ["list"],
                                "resources": ["pods", "statefulsets", "daemonsets", "jobs", "persistentvolumeclaims"]}]},
                           {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "sees", "namespace": NAMESPACE},
                            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "sees"},
                            "subjects": [{"kind": "ServiceAccount", "name": "person", "namespace": NAMESPACE}]})
        token = self.cluster.kubectl("-n", NAMESPACE, "create", "token", "person").stdout.strip()
        config = json.loads(self.cluster.kubeconfig.read_text())
        config["users"][0]["user"]["token"] = token
        (self.dir / "person").write_text(json.dumps(config))
        (self.dir / "person").chmod(0o600)
        result = self.muster("status", "--why", "-n", NAMESPACE, env={**self.cluster.env, "KUBECONFIG": str(self.dir / "person")}, check=0)
        self.assertIn("demo-muster-gpu-0", result.stdout)
        self.assertIn("cannot list resource \"events\"", result.stderr)
        result = self.muster("status", "--why", "-n", "default", env={**self.cluster.env, "KUBECONFIG": str(self.dir / "person")})
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("cannot query Kubernetes", result.stderr)

    def test_existing_secrets_stay_unchanged(self):
        self.make_secrets()
        before = self.cluster.get("-n", NAMESPACE, "secrets", "muster-tls", "muster-tokens")
        self.assertEqual(sorted(before["items"][0]["data"]), ["ca.crt", "tls.crt", "tls.key"])
        self.assertEqual(sorted(before["items"][1]["data"]), ["admin", "submitter", "viewer", "worker"])
        self.assertEqual(self.make_secrets().count("is there already"), 2)
        self.assertEqual(self.cluster.get("-n", NAMESPACE, "secrets", "muster-tls", "muster-tokens")["items"], before["items"])

    def value_of(self, secret, key):
        return base64.b64decode(self.cluster.get("-n", NAMESPACE, "secret", secret)["data"][key]).decode()

    def openssl(self, *arguments, text=None):
        return subprocess.run(["openssl", *map(str, arguments)], input=text, capture_output=True, text=True, timeout=20, check=True).stdout

    def test_renewed_certificate_and_token_are_valid_beside_the_previous_ones(self):
        self.make_secrets("muster.example.com", "10.1.2.3")
        names = self.openssl("x509", "-noout", "-ext", "subjectAltName", text=self.value_of("muster-tls", "tls.crt"))
        for name in ("DNS:demo-muster-coordinator.training.svc.cluster.local", "DNS:muster.example.com", "IP Address:10.1.2.3", "DNS:localhost"):
            self.assertIn(name, names)
        first, token = self.value_of("muster-tls", "tls.crt"), self.value_of("muster-tokens", "submitter").strip()
        authority = self.value_of("muster-tls", "ca.crt").strip()
        others = {role: self.value_of("muster-tokens", role) for role in ("worker", "viewer", "admin")}
        self.make_secrets("--renew", "certificate")
        self.make_secrets("--renew", "submitter")
        second = self.value_of("muster-tls", "tls.crt")
        self.assertNotEqual(first, second)
        self.assertEqual(self.openssl("x509", "-noout", "-ext", "subjectAltName", text=second), names, "the names that it had")
        both = self.value_of("muster-tls", "ca.crt")
        self.assertEqual(both.count("BEGIN CERTIFICATE"), 2)
        self.assertIn(authority, both)
        for number, certificate in enumerate((first, second)):
            (self.dir / "ca.crt").write_text(both)
            (self.dir / f"{number}.crt").write_text(certificate)
            self.assertIn("OK", self.openssl("verify", "-CAfile", self.dir / "ca.crt", self.dir / f"{number}.crt"))
        lines = self.value_of("muster-tokens", "submitter").split()
        self.assertEqual((len(lines), lines[1]), (2, token))
        self.assertEqual({role: self.value_of("muster-tokens", role) for role in others}, others)
        self.make_secrets("--renew", "submitter")
        self.assertNotIn(token, self.value_of("muster-tokens", "submitter"), "two tokens, not three")

    def test_only_tokens_are_created_beside_an_existing_certificate(self):
        self.make_secrets("--tokens-only")
        names = [item["metadata"]["name"] for item in self.cluster.get("-n", NAMESPACE, "secrets")["items"]]
        self.assertEqual(names, ["muster-tokens"])

    def test_another_chart_version_keeps_the_pods(self):
        values = {"image": {"tag": "1"}, "coordinator": {"persistence": {"enabled": False}}, "pools": {"cpu": {"replicas": 2}}}
        self.helm_release("install", values)
        self.wait_for_placement(2, "cpu")
        before = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in self.pods()}
        next_chart = self.dir / "muster"
        shutil.copytree(CHART, next_chart)
        text = (next_chart / "Chart.yaml").read_text()
        (next_chart / "Chart.yaml").write_text(text.replace("ersion: 0.1.0", "ersion: 0.2.0"))
        self.helm_release("upgrade", values, chart=next_chart)

        def is_reconciled():
            sets = self.cluster.get("-n", NAMESPACE, "statefulsets")["items"]
            return all(s["status"].get("observedGeneration") == s["metadata"]["generation"]
                       and s["metadata"]["labels"]["helm.sh/chart"] == "muster-0.2.0" for s in sets)
        wait_until(is_reconciled, 60, "the controller to reconcile both sets")
        self.assertEqual({pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in self.pods() if "deletionTimestamp" not in pod["metadata"]}, before)

    def test_coordinators_volume_outlives_the_release_and_is_reused(self):
        values = {"coordinator": {"persistence": {"storageClassName": "manual"}},
                  "storage": {"mountPath": "/shared", "create": {"size": "1Gi", "storageClassName": "manual"}}}
        self.cluster.apply(*({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": {
            "capacity": {"storage": size}, "accessModes": [mode], "storageClassName": "manual", "hostPath": {"path": f"/tmp/{name}"}}}
            for name, size, mode in (("state", "10Gi", "ReadWriteOnce"), ("shared", "1Gi", "ReadWriteMany"))))

        def claims():
            return {item["metadata"]["name"]: item["metadata"]["uid"] for item in self.cluster.get("-n", NAMESPACE, "persistentvolumeclaims")["items"]
                    if item["status"].get("phase") == "Bound"}
        self.helm_release("install", values)
        wait_until(lambda: len(claims()) == 2, 60, "both claims")
        before = claims()
        self.assertEqual(sorted(before), ["demo-muster-storage", "state-demo-muster-coordinator-0"])
        self.helm_release("uninstall")
        wait_until(lambda: not self.cluster.get("-n", NAMESPACE, "statefulsets")["items"], 60, "the end of the release")
        self.assertEqual(claims(), before)
        self.cluster.kubectl("-n", NAMESPACE, "delete", "pods", "--all", "--force", "--grace-period=0")
        self.helm_release("install", values)
        self.wait_for_placement(1, "cpu")
        self.assertEqual(claims(), before)

    def test_shrunk_pool_releases_its_claims(self):
        self.cluster.apply(*({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": f"work{n}"}, "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "manual", "hostPath": {"path": f"/tmp/work{n}"}}}
            for n in range(2)))
        pool = {"replicas": 2, "workDir": {"claim": {"size": "1Gi", "storageClassName": "manual"}}}
        values = {"coordinator": {"persistence": {"enabled": False}}, "pools": {"cpu": pool}}
        self.helm_release("install", values)
        self.wait_for_placement(2, "cpu")
        self.helm_release("upgrade", merged(values, {"pools": {"cpu": {"replicas": 1}}}))
        leaving = "demo-muster-cpu-1"

        def is_leaving():
            return any(pod["metadata"]["name"] == leaving and "deletionTimestamp" in pod["metadata"] for pod in self.pods("cpu"))
        wait_until(is_leaving, 60, "the last worker's shutdown")
        # as its kubelet would report
        self.cluster.kubectl("-n", NAMESPACE, "delete", "pod", leaving, "--force", "--grace-period=0")

        def claims():
            return [item["metadata"]["name"] for item in self.cluster.get("-n", NAMESPACE, "persistentvolumeclaims")["items"]
                    if "deletionTimestamp" not in item["metadata"]]
        wait_until(lambda: claims() == ["work-demo-muster-cpu-0"], 60, "the claim's end")


if __name__ == "__main__":
    unittest.main()
