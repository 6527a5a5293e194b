"""What a kubelet does, as far as the chart's pods need it: runs their containers as processes of this machine.

The test has a network and an /etc/hosts of its own, so each pod has an address that only it binds, and Services are names for their pods. What a
container would see at its mount points and at 0.0.0.0 is put into its arguments in place of them.
"""
import base64
import ctypes
import json
import os
import pathlib
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request

from kube_cluster import die_with_parent

CLONE_NEWNS, CLONE_NEWNET = 0x00020000, 0x40000000
MS_REC, MS_PRIVATE, MS_BIND = 0x4000, 0x40000, 0x1000
POLL_SECONDS = 0.3


def own_network(folder, names):
    """Gives this process, and those that it starts, a loopback with an address for each of `names`, and a hosts file with them. {name: address}."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET | CLONE_NEWNS) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    addresses = {name: f"10.244.0.{index}" for index, name in enumerate(names, 1)}
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True, timeout=20)
    for address in addresses.values():
        subprocess.run(["ip", "address", "add", f"{address}/32", "dev", "lo"], check=True, timeout=20)
    hosts = pathlib.Path(folder) / "hosts"
    hosts.write_text("127.0.0.1 localhost\n" + "".join(f"{address} {name}\n" for name, address in addresses.items()))
    for source, target, flags in ((None, "/", MS_REC | MS_PRIVATE), (str(hosts).encode(), "/etc/hosts", MS_BIND)):
        if libc.mount(source, target.encode(), None, flags, None) != 0:
            raise OSError(ctypes.get_errno(), f"mount {target}")
    return addresses


class Pod:
    def __init__(self, runner, record):
        self.runner = runner
        self.name, self.uid = record["metadata"]["name"], record["metadata"]["uid"]
        self.spec = record["spec"]
        self.container = self.spec["containers"][0]
        self.dir = runner.dir / self.uid
        self.address = runner.addresses[self.name]
        self.volumes = {volume["name"]: self.folder_of(volume) for volume in self.spec.get("volumes", [])}
        self.process, self.starts, self.said, self.kill_at = None, 0, None, None

    def folder_of(self, volume):
        if "persistentVolumeClaim" in volume:
            return self.runner.claims / volume["persistentVolumeClaim"]["claimName"]
        return self.dir / volume["name"]

    def write_volumes(self):
        """Empty folders, and Secrets as they are now, also while the container runs."""
        for volume in self.spec.get("volumes", []):
            folder = self.volumes[volume["name"]]
            folder.mkdir(parents=True, exist_ok=True)
            if "secret" not in volume:
                continue
            data = self.runner.secret(volume["secret"]["secretName"])
            wanted = {item["key"]: item["path"] for item in volume["secret"].get("items", [{"key": key, "path": key} for key in data])}
            for key, path in wanted.items():
                content, target = base64.b64decode(data[key]), folder / path
                if not target.exists() or target.read_bytes() != content:
                    beside = folder / f".{path}"
                    beside.write_bytes(content)
                    beside.rename(target)

    def as_here(self, text, environment):
        for name, value in environment.items():
            text = text.replace(f"$({name})", value)
        flag, _, path = text.partition("=")
        inside = [mount for mount in self.container.get("volumeMounts", []) if path.startswith(mount["mountPath"])]
        if inside:
            mount = max(inside, key=lambda mount: len(mount["mountPath"]))
            text = f"{flag}={self.volumes[mount['name']]}{path[len(mount['mountPath']):]}"
        return text.replace("0.0.0.0:", f"{self.address}:")

    def start(self):
        self.write_volumes()
        fields = {"metadata.name": self.name, "spec.nodeName": self.spec["nodeName"], "status.podIP": self.address}
        environment = {}
        for entry in self.container.get("env", []):
            environment[entry["name"]] = entry["value"] if "value" in entry else fields[entry["valueFrom"]["fieldRef"]["fieldPath"]]
        command = [self.as_here(word, environment) for word in self.container["command"] + self.container["args"]]
        with open(self.runner.dir / f"{self.name}.log", "a") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True, cwd=self.dir,
                                            env={**self.runner.env, **environment}, preexec_fn=die_with_parent)
        self.starts += 1

    def is_ready(self):
        probe = self.container["readinessProbe"]["httpGet"]
        port = next(port["containerPort"] for port in self.container["ports"] if port["name"] == probe["port"])
        try:
            with urllib.request.urlopen(f"http://{self.address}:{port}{probe['path']}", timeout=2) as page:
                return page.status == 200
        except (OSError, urllib.error.URLError):
            return False

    def look(self, record):
        """Returns whether it is over."""
        if "deletionTimestamp" in record["metadata"]:
            return self.end(record["metadata"].get("deletionGracePeriodSeconds", 30))
        if self.process is None or self.process.poll() is not None:
            self.start()
        self.write_volumes()
        ready = "True" if self.is_ready() else "False"
        if self.said != (ready, self.starts):
            self.said = (ready, self.starts)
            self.runner.say(self, ready)
        return False

    def end(self, grace):
        if self.process is None or self.process.poll() is not None:
            return True
        if self.kill_at is None:
            self.kill_at = time.monotonic() + grace
            self.process.send_signal(signal.SIGTERM)
        if time.monotonic() > self.kill_at:
            self.process.kill()
        return False


class PodRunner:
    """Runs the pods of one namespace, of all nodes. start() … stop()."""

    def __init__(self, cluster, folder, env, addresses, namespace):
        self.cluster, self.env, self.addresses, self.namespace = cluster, env, addresses, namespace
        self.dir = pathlib.Path(folder)
        self.claims = self.dir / "claims"
        self.claims.mkdir(parents=True)
        self.pods = {}
        self.trouble = None
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def start(self):
        self.thread.start()
        return self

    def stop(self):
        self.stopped.set()
        self.thread.join()
        for pod in self.pods.values():
            if pod.process is not None:
                pod.process.kill()
                pod.process.wait()

    def run(self):
        while not self.stopped.wait(POLL_SECONDS):
            try:
                self.look()
            except (subprocess.SubprocessError, OSError, KeyError) as error:
                self.trouble = error  # the API may be slow for once; a test that fails shows it

    def look(self):
        for record in self.cluster.get("-n", self.namespace, "pods")["items"]:
            if not record["spec"].get("nodeName"):
                continue
            uid = record["metadata"]["uid"]
            if uid not in self.pods:
                (self.dir / uid).mkdir(exist_ok=True)
                self.pods[uid] = Pod(self, record)
            if self.pods[uid].look(record):
                self.cluster.kubectl("-n", self.namespace, "delete", "pod", record["metadata"]["name"], "--grace-period=0", "--force", "--wait=false")
                del self.pods[uid]

    def secret(self, name):
        return self.cluster.get("-n", self.namespace, "secret", name)["data"]

    def say(self, pod, ready):
        conditions = [{"type": kind, "status": "True"} for kind in ("PodScheduled", "Initialized")]
        conditions += [{"type": kind, "status": ready} for kind in ("ContainersReady", "Ready")]
        status = {"phase": "Running", "podIP": pod.address, "podIPs": [{"ip": pod.address}], "hostIP": "127.0.0.1", "conditions": conditions,
                  "containerStatuses": [{"name": pod.container["name"], "image": pod.container["image"], "imageID": "", "ready": ready == "True",
                                         "started": True, "restartCount": pod.starts - 1, "state": {"running": {}}}]}
        self.cluster.kubectl("-n", self.namespace, "patch", "pod", pod.name, "--subresource=status", "--type=merge", "-p",
                             json.dumps({"status": status}))

    def log(self, name):
        path = self.dir / f"{name}.log"
        return path.read_text() if path.exists() else ""
