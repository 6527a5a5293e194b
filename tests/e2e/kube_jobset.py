"""The controller of JobSets on a test's control plane, with its webhooks, which set defaults and
refuse invalid objects that the API alone accepts.
"""
import base64
import subprocess

import kube_build
import kube_tools
from harness import wait_until
from slurm_cluster import free_ports


def why_not():
    """Returns why the controller cannot run here; empty if it can."""
    try:
        kube_build.jobset()
        kube_tools.custom_kinds()
    except kube_tools.Missing as missing:
        return str(missing)
    return ""


def start(cluster, yaml):
    """Starts the controller on a running `cluster`. Webhooks are called by URL, because a control
    plane without nodes routes no Service.
    """
    folder = cluster.dir / "jobset"
    folder.mkdir()
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", str(folder / "tls.key"),
                    "-out", str(folder / "tls.crt"), "-days", "2", "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"],
                   check=True, capture_output=True, timeout=60)
    webhook, health = free_ports(2)
    (folder / "config.yaml").write_text(yaml.safe_dump({
        "apiVersion": "config.jobset.x-k8s.io/v1alpha1", "kind": "Configuration", "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False}, "webhook": {"port": webhook, "host": "127.0.0.1", "certDir": str(folder)},
        "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"}, "metrics": {"bindAddress": "0"}}))
    cluster.kubectl("apply", "--server-side", "-f", kube_tools.custom_kinds() / "jobset.x-k8s.io_jobsets.yaml")
    wait_until(lambda: cluster.kubectl("get", "jobsets", check=False).returncode == 0, 60, "the kind JobSet")
    cluster.run_daemon("jobset", kube_build.jobset(), f"--config={folder}/config.yaml", f"--kubeconfig={cluster.kubeconfig}")
    wait_until(lambda: subprocess.run(["curl", "-sf", f"http://127.0.0.1:{health}/readyz"], capture_output=True, timeout=20).returncode == 0, 60,
               "the controller of JobSets")
    authority = base64.b64encode((folder / "tls.crt").read_bytes()).decode()
    documents = [d for d in yaml.safe_load_all(kube_build.JOBSET_WEBHOOKS.read_text()) if d]
    for document in documents:
        document["metadata"]["name"] = f"jobset-{document['metadata']['name']}"
        for hook in document["webhooks"]:
            hook["clientConfig"] = {"url": f"https://127.0.0.1:{webhook}{hook['clientConfig']['service']['path']}", "caBundle": authority}
            if hook["name"].endswith("pod.kb.io"):  # as in the controller's kustomization
                hook["objectSelector"] = {"matchExpressions": [{"key": "jobset.sigs.k8s.io/jobset-name", "operator": "Exists"}]}
    cluster.apply(*documents)
