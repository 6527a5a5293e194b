"""Runs the containers of Muster's pods as processes of this machine: the parts of a kubelet that
these pods need.

The test has its own network and its own /etc/hosts. So only one pod binds each address, and a
Service is a name for its pods. In arguments and variables of a container, mount points, 0.0.0.0 and
the pod's loopback are replaced by folders and addresses of this machine. Init containers run first,
one after another, until each has exited with 0. Sidecars start before the main container and end
after it. A pod of a Job reports how it ended.
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

from harness import SOURCE
from kube_cluster import die_with_parent

CLONE_NEWNS, CLONE_NEWNET = 0x00020000, 0x40000000
MS_REC, MS_PRIVATE, MS_BIND, MNT_DETACH = 0x4000, 0x40000, 0x1000, 2
POLL_SECONDS = 0.3


def own_network(folder, names):
    """Gives this process and its children a loopback device with an address for each of `names`,
    and a hosts file with them. Returns {name: address}.
    """
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
        if flags == MS_BIND and os.stat(target).st_nlink == 0:
            # the deleted file of the previous test of this process
            libc.umount2(target.encode(), MNT_DETACH)
        if libc.mount(source, target.encode(), None, flags, None) != 0:
            raise OSError(ctypes.get_errno(), f"mount {target}")
    return addresses


class Container:
    """One container of a pod. Usage: start(), then poll() until it has ended."""

    def __init__(self, pod, spec):
        self.pod, self.spec, self.name = pod, spec, spec["name"]
        self.process, self.starts, self.stop_requested = None, 0, False

    def localized(self, text, environment):
        for name, value in environment.items():
            text = text.replace(f"$({name})", value)
        flag, equals, path = text.partition("=") if "=" in text else ("", "", text)
        # The checkout, in any folder, replaces the image's files.
        in_image = pathlib.Path(path).is_relative_to(SOURCE)
        inside = [mount for mount in self.spec.get("volumeMounts", []) if path.startswith(mount["mountPath"]) and not in_image]
        if inside:
            mount = max(inside, key=lambda mount: len(mount["mountPath"]))
            text = f"{flag}{equals}{self.pod.volumes[mount['name']]}{path[len(mount['mountPath']):]}"
        return text.replace("0.0.0.0:", f"{self.pod.address}:").replace("127.0.0.1:", f"{self.pod.address}:")

    def start(self):
        environment = {}
        for entry in self.spec.get("env", []):
            value = entry["value"] if "value" in entry else self.pod.field(entry["valueFrom"]["fieldRef"]["fieldPath"])
            environment[entry["name"]] = self.localized(value, environment)
        command = [self.localized(word, environment) for word in self.spec["command"] + self.spec["args"]]
        with open(self.pod.runner.log_path(self.pod.name, self.name), "a") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True, cwd=self.pod.dir,
                                            env={**self.pod.runner.env, **environment}, preexec_fn=die_with_parent)
        self.starts += 1

    def runs(self):
        return self.process is not None and self.process.poll() is None

    def exit_code(self):
        code = self.process.returncode
        return code if code >= 0 else 128 - code

    def passes(self, probe):
        """Returns whether the startup or readiness probe passes; a running container without that
        probe passes.
        """
        if probe not in self.spec:
            return self.runs()
        page = self.spec[probe]["httpGet"]
        port = page["port"] if isinstance(page["port"], int) else next(
            port["containerPort"] for port in self.spec["ports"] if port["name"] == page["port"])
        try:
            with urllib.request.urlopen(f"http://{self.pod.address}:{port}{page['path']}", timeout=2) as answer:
                return answer.status == 200
        except (OSError, urllib.error.URLError):
            return False

    def terminate(self):
        if self.runs() and not self.stop_requested:
            self.stop_requested = True
            self.process.send_signal(signal.SIGTERM)

    def status(self, ready):
        state = {"waiting": {"reason": "ContainerCreating"}}
        if self.runs():
            state = {"running": {}}
        elif self.process is not None:
            code = self.exit_code()
            state = {"terminated": {"exitCode": code, "reason": "Completed" if code == 0 else "Error"}}
        return {"name": self.name, "image": self.spec["image"], "imageID": "", "ready": ready, "started": self.runs(),
                "restartCount": max(self.starts - 1, 0), "state": state}


class Pod:
    def __init__(self, runner, record):
        self.runner, self.record = runner, record
        self.name, self.uid = record["metadata"]["name"], record["metadata"]["uid"]
        self.spec = record["spec"]
        self.dir = runner.dir / self.uid
        # A Job's pods have random names, but predictable host names.
        self.address = runner.addresses.get(self.name) or runner.addresses[self.spec["hostname"]]
        self.volumes = {volume["name"]: self.folder_of(volume) for volume in self.spec.get("volumes", [])}
        self.first = [Container(self, c) for c in self.spec.get("initContainers", []) if c.get("restartPolicy") != "Always"]
        self.sidecars = [Container(self, c) for c in self.spec.get("initContainers", []) if c.get("restartPolicy") == "Always"]
        self.main = Container(self, self.spec["containers"][0])
        self.reported, self.kill_at = None, None

    def field(self, path):
        if path.startswith("metadata.labels["):
            return self.record["metadata"]["labels"].get(path.split("'")[1], "")
        return {"metadata.name": self.name, "spec.nodeName": self.spec["nodeName"], "status.podIP": self.address}[path]

    def folder_of(self, volume):
        if "persistentVolumeClaim" in volume:
            return self.runner.claims / volume["persistentVolumeClaim"]["claimName"]
        if "hostPath" in volume:
            return pathlib.Path(volume["hostPath"]["path"])
        return self.dir / volume["name"]

    def write_volumes(self):
        """Returns the volume's folder: an empty one, or the current content of a Secret or
        ConfigMap, which follows changes while the container runs.
        """
        for volume in self.spec.get("volumes", []):
            folder = self.volumes[volume["name"]]
            folder.mkdir(parents=True, exist_ok=True)
            if "projected" in volume:
                self.write_account(folder)
                continue
            if "secret" in volume:
                source = volume["secret"]
                data = {key: base64.b64decode(text) for key, text in self.runner.data("secret", source["secretName"]).items()}
            elif "configMap" in volume:
                source = volume["configMap"]
                data = {key: text.encode() for key, text in self.runner.data("configmap", source["name"]).items()}
            else:
                continue
            wanted = {item["key"]: item["path"] for item in source.get("items", [{"key": key, "path": key} for key in data])}
            for key, path in wanted.items():
                target = folder / path
                if not target.exists() or target.read_bytes() != data[key]:
                    beside = folder / f".{path}"
                    beside.write_bytes(data[key])
                    beside.rename(target)

    def write_account(self, folder):
        """Writes the token of the pod's account and the API's authority: Muster's pods project
        nothing else.
        """
        if not (folder / "token").exists():
            (folder / "ca.crt").write_text(self.runner.data("configmap", "kube-root-ca.crt")["ca.crt"])
            (folder / "token").write_text(self.runner.token(self.spec["serviceAccountName"]))

    def is_prepared(self):
        """Returns whether each init container has exited with 0; starts the next one if none runs.
        """
        for container in self.first:
            if container.runs():
                return False
            if container.process is None or container.exit_code() != 0:
                container.start()
                return False
        return True

    def advance(self, record):
        """Returns whether the pod has ended and must be removed."""
        self.record = record
        if "deletionTimestamp" in record["metadata"]:
            return self.end(record["metadata"].get("deletionGracePeriodSeconds", 30))
        if self.phase() in ("Succeeded", "Failed"):
            for sidecar in self.sidecars:
                sidecar.terminate()
            if not any(sidecar.runs() for sidecar in self.sidecars):
                self.report()
            return False
        self.write_volumes()
        if not self.is_prepared():
            return False
        for sidecar in self.sidecars:
            if not sidecar.runs():
                sidecar.start()
        if all(sidecar.passes("startupProbe") for sidecar in self.sidecars) and not self.main.runs():
            self.main.start()
        self.report()
        return False

    def phase(self):
        if self.main.process is None and "deletionTimestamp" in self.record["metadata"] and self.spec["restartPolicy"] == "Never":
            return "Failed"  # before the main container started
        if self.main.process is None or self.main.runs() or self.spec["restartPolicy"] == "Always":
            return "Running"
        return "Succeeded" if self.main.exit_code() == 0 else "Failed"

    def end(self, grace):
        if self.kill_at is None:
            self.kill_at = time.monotonic() + grace
        first = [self.main] if self.main.runs() else self.sidecars
        for container in first:
            container.terminate()
        left = [container for container in (self.main, *self.sidecars, *self.first) if container.runs()]
        if left and time.monotonic() > self.kill_at:
            for container in left:
                container.process.kill()
        if not left and self.spec["restartPolicy"] == "Never":
            self.report()
        return not left

    def report(self):
        phase = self.phase()
        ready = phase == "Running" and self.main.passes("readinessProbe")
        reported = (phase, ready, self.main.starts, self.main.runs())
        if reported == self.reported:
            return
        self.reported = reported
        conditions = [{"type": kind, "status": "True"} for kind in ("PodScheduled", "Initialized")]
        conditions += [{"type": kind, "status": str(ready)} for kind in ("ContainersReady", "Ready")]
        status = {"phase": phase, "podIP": self.address, "podIPs": [{"ip": self.address}], "hostIP": "127.0.0.1", "conditions": conditions,
                  "containerStatuses": [self.main.status(ready)],
                  "initContainerStatuses": [sidecar.status(sidecar.runs()) for sidecar in self.sidecars]}
        for condition in self.record["status"].get("conditions", []):
            if condition["type"] == "DisruptionTarget":
                conditions.append(condition)
        self.runner.report(self.name, status)

    def kill(self):
        for container in (self.main, *self.sidecars, *self.first):
            if container.process is not None:
                container.process.kill()
                container.process.wait()


class PodRunner:
    """Runs the pods of one namespace on all nodes, from start() to stop()."""

    def __init__(self, cluster, folder, env, addresses, namespace):
        self.cluster, self.addresses, self.namespace = cluster, addresses, namespace
        self.env = {**env, "KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(cluster.port)}
        self.dir = pathlib.Path(folder)
        self.claims = self.dir / "claims"
        self.claims.mkdir(parents=True)
        self.pods = {}
        self.finished = set()
        self.last_error = None
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def start(self):
        self.thread.start()
        return self

    def stop(self):
        self.stopped.set()
        self.thread.join()
        for pod in self.pods.values():
            pod.kill()

    def run(self):
        while not self.stopped.wait(POLL_SECONDS):
            try:
                self.advance()
            except (subprocess.SubprocessError, OSError, KeyError) as error:
                self.last_error = error  # the API may be slow once; a failing test prints the error

    def advance(self):
        records = self.cluster.get("-n", self.namespace, "pods")["items"]
        for record in records:
            uid = record["metadata"]["uid"]
            if not record["spec"].get("nodeName") or uid in self.finished:
                continue
            if uid not in self.pods:
                (self.dir / uid).mkdir(exist_ok=True)
                self.pods[uid] = Pod(self, record)
            if self.pods[uid].advance(record):
                self.cluster.kubectl("-n", self.namespace, "delete", "pod", record["metadata"]["name"], "--grace-period=0", "--force", "--wait=false")
                self.forget(uid)
        for uid in set(self.pods) - {record["metadata"]["uid"] for record in records}:
            self.pods[uid].kill()
            self.forget(uid)

    def forget(self, uid):
        self.finished.add(uid)
        del self.pods[uid]

    def data(self, kind, name):
        return self.cluster.get("-n", self.namespace, kind, name)["data"]

    def token(self, account):
        return self.cluster.kubectl("-n", self.namespace, "create", "token", account).stdout.strip()

    def report(self, name, status):
        self.cluster.kubectl("-n", self.namespace, "patch", "pod", name, "--subresource=status", "--type=merge", "-p", json.dumps({"status": status}))

    def log_path(self, pod, container):
        main = {"coordinator", "worker"}
        return self.dir / (f"{pod}.log" if container in main else f"{pod}.{container}.log")

    def log(self, name):
        path = self.dir / f"{name}.log"
        return path.read_text() if path.exists() else ""

    def logs(self, end=3000):
        return "\n".join(f"== {path.name}\n{path.read_text()[-end:]}" for path in sorted(self.dir.glob("*.log"))) + f"\n{self.last_error}"
