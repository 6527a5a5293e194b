"""Common parts of tests that render the chart with helm, or expect helm to refuse it."""
import json
import os
import re
import subprocess
import tempfile

import kube_schema
import kube_tools
from harness import SOURCE, MusterTest

try:
    import yaml
except ImportError:
    yaml = None

CHART = SOURCE / "helm/muster"
# Kinds that a control plane without extensions does not have.
OTHERS = re.compile(r"^(cert-manager\.io|monitoring\.coreos\.com|jobset\.x-k8s\.io)/")
IMAGE = {"image": {"repository": "registry.example/muster"}}
TLS_SECRET, TOKENS_SECRET = "muster-tls", "muster-tokens"
GPU_POOL = {"gpus": 8, "nodeSelector": {"pool": "gpu"}}
# Values of clusters besides the defaults.
VARIANTS = {
    "default": {},
    "gpu": {"pools": {"gpu": GPU_POOL}},
    "efa": {"pools": {"efa": {**GPU_POOL, "efa": 32, "hugepages2Mi": "5120Mi"}}},
    "daemon set": {"pools": {"each": {"kind": "DaemonSet", "workDir": {"hostPath": "/mnt/nvme"}, "updateStrategy": "OnDelete"}}},
    "claims": {"pools": {"cpu": {"workDir": {"claim": {"size": "1Ti", "storageClassName": "fast"}}, "maxUnavailable": "25%"}}},
    "everything of a pod": {"pools": {"cpu": {
        "tolerations": [{"key": "a", "operator": "Exists"}], "affinity": {"nodeAffinity": {}}, "priorityClassName": "high",
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
                                       "labelSelector": {"matchLabels": {"app.kubernetes.io/component": "worker"}}}],
        "runtimeClassName": "nvidia", "podLabels": {"a": "b"}, "podAnnotations": {"c": "d"}, "switches": "spine.leaf3",
        "podSecurityContext": {"fsGroup": 5}, "env": [{"name": "A", "value": "b"}], "extraArgs": ["--rank-series=0"],
        "extraVolumes": [{"name": "data", "emptyDir": {}}], "extraVolumeMounts": [{"name": "data", "mountPath": "/data"}]}}},
    "everything of the coordinator": {"coordinator": {
        "persistence": {"enabled": True, "storageClassName": "fast"}, "nodeSelector": {"a": "b"}, "tolerations": [{"operator": "Exists"}],
        "affinity": {"nodeAffinity": {}}, "priorityClassName": "high", "podAnnotations": {"a": "b"}, "extraArgs": ["--hang-floor-seconds=60"]},
        "image": {"repository": "r", "digest": "sha256:" + "0" * 64, "pullSecrets": [{"name": "s"}]},
        "serviceAccount": {"coordinatorAnnotations": {"a": "b"}, "workerAnnotations": {"a": "b"}}, "fullnameOverride": "m"},
    "pools that YAML would take for numbers": {"pools": {"1": {}, "1e3": {}}},
    "no workers, no volume": {"pools": {"cpu": None}, "coordinator": {"persistence": {"enabled": False}}},
    "shared storage": {"storage": {"mountPath": "/shared", "claimName": "fsx", "subPath": "team"}},
    "a claim of its own": {"storage": {"mountPath": "/shared", "create": {"size": "1Ti", "storageClassName": "efs", "volumeName": "v"}}},
    "claims that go with it": {"storage": {"mountPath": "/shared", "create": {"size": "1Ti", "keep": False}}, "coordinator": {"persistence": {"keep": False}}},
    "a shared folder of the nodes": {"storage": {"mountPath": "/shared", "hostPath": "/mnt/shared"}},
    "switches from nodes": {"pools": {"cpu": {"switchesFromNode": ["topology.k8s.aws/network-node-layer-1", "topology.k8s.aws/network-node-layer-2"], "domainFromNode": "nvidia.com/gpu.clique"}}},
    "cert-manager": {"tls": {"mode": "certManager", "extraNames": ["muster.example.com", "10.1.2.3"]}},
    "cert-manager's issuer": {"tls": {"mode": "certManager", "certManager": {"issuerRef": {"name": "corp", "kind": "ClusterIssuer"}}}},
    "inside alone": {"tls": {"mode": "off"}},
    "load balancer": {"coordinator": {"service": {"type": "LoadBalancer", "loadBalancerSourceRanges": ["10.0.0.0/8"],
                                                  "annotations": {"a": "b"}}}},
    "three coordinators": {"coordinator": {"replicas": 3, "etcd": {"endpoints": ["https://etcd-0.etcd:2379", "https://etcd-1.etcd:2379"],
                                                                   "secretName": "etcd"}}},
    "one coordinator with etcd": {"coordinator": {"etcd": {"endpoints": ["http://etcd:2379"], "prefix": "/fleet"}}},
    "a coordinator that moves to etcd": {"coordinator": {"etcd": {"endpoints": ["https://etcd:2379"], "secretName": "etcd", "moveState": True}}},
    "no policy": {"networkPolicy": {"enabled": False}},
    "monitoring": {"monitoring": {"podMonitor": {"enabled": True, "labels": {"release": "p"}}, "serviceMonitor": {"enabled": True},
                                  "prometheusRule": {"enabled": True}, "dashboards": {"enabled": True, "annotations": {"folder": "x"}}}},
}


def merged(values, more):
    result = dict(values)
    for key, value in more.items():
        result[key] = merged(result[key], value) if isinstance(value, dict) and isinstance(result.get(key), dict) else value
    return result


class HelmCase(MusterTest):
    def setUp(self):
        if yaml is None:
            self.skipTest("no PyYAML here")
        try:
            self.helm = kube_tools.helm()
        except kube_tools.Missing as missing:
            self.skipTest(str(missing))
        super().setUp()

    def run_helm(self, *arguments, values=None):
        given = []
        if values is not None:
            with tempfile.NamedTemporaryFile("w", dir=self.dir, suffix=".yaml", delete=False) as file:
                json.dump(merged(IMAGE, values), file)
            given = ["-f", file.name]
        return subprocess.run([str(self.helm), *map(str, arguments), *given], capture_output=True, text=True, timeout=120,
                              env={**os.environ, "HELM_CACHE_HOME": f"{self.dir}/helm", "HELM_CONFIG_HOME": f"{self.dir}/helm"})

    def with_secrets(self, values):
        """Returns values for rendering without a cluster: they name existing Secrets, because the
        release cannot create them.
        """
        mode = values.get("tls", {}).get("mode")
        given = {} if mode == "off" else {"tokens": {"secretName": TOKENS_SECRET}}
        if mode is None:
            given["tls"] = {"mode": "secret", "secretName": TLS_SECRET}
        return merged(given, values)

    def render(self, values, *arguments):
        result = self.run_helm("template", "demo", CHART, "--namespace", "training", "--kube-version", kube_tools.KUBERNETES_VERSION,
                               *arguments, values=self.with_secrets(values))
        self.assertEqual(result.returncode, 0, result.stderr)
        return [document for document in yaml.safe_load_all(result.stdout) if document]

    def schemas(self):
        """Returns the schemas of all kinds that Muster writes; skips the test if they are
        unavailable.
        """
        try:
            schemas = kube_schema.Schemas(kube_tools.swagger())
            for path in sorted(kube_tools.custom_kinds().glob("*.yaml")):
                schemas.add_custom(yaml.safe_load(path.read_text()))
        except kube_tools.Missing as missing:
            self.skipTest(str(missing))
        return schemas

    def refusal(self, values):
        result = self.run_helm("template", "demo", CHART, "--kube-version", kube_tools.KUBERNETES_VERSION, values=self.with_secrets(values))
        self.assertNotEqual(result.returncode, 0, "this was taken")
        return result.stderr

    def one(self, documents, kind, name):
        found = [d for d in documents if d["kind"] == kind and d["metadata"]["name"] == name]
        self.assertEqual(len(found), 1, [(d["kind"], d["metadata"]["name"]) for d in documents])
        return found[0]

    def container(self, workload):
        return workload["spec"]["template"]["spec"]["containers"][0]
