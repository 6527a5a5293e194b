#!/usr/bin/env python3
"""Builds Kubernetes' control plane from its Go modules. That takes minutes, so tests use it and
never build it.

`tests/e2e/kube_build.py` builds what is missing and prints what there is; its exit status is 77 if
a part cannot be built.
"""
import json
import pathlib
import re
import shutil
import sys
import tempfile

import kube_tools

ETCD_VERSION = "3.6.8"


def write_kubernetes_module(folder):
    """Writes a module with its own versions beside Kubernetes' module, so that published modules
    provide its packages.
    """
    module = json.loads(kube_tools.go("mod", "download", "-json", f"k8s.io/kubernetes@v{kube_tools.KUBERNETES_VERSION}"))
    text = (pathlib.Path(module["Dir"]) / "go.mod").read_text()
    published = f"v0.{kube_tools.KUBERNETES_VERSION.split('.', 1)[1]}"
    text = re.sub(r"^module .*", "module example.invalid/build", text, count=1, flags=re.M)
    text = re.sub(r"=> \./staging/src/(k8s\.io/[a-z-]+)", rf"=> \1 {published}", text)
    (folder / "go.mod").write_text(f"{text}\nrequire k8s.io/kubernetes v{kube_tools.KUBERNETES_VERSION}\n")
    (folder / "go.sum").write_bytes((pathlib.Path(module["Dir"]) / "go.sum").read_bytes())


def built(target):
    """Returns `target`. Raises Missing if it does not exist: tests do not build what takes minutes.
    """
    if target.exists():
        return target
    raise kube_tools.Missing(f"no {target.name} here: tests/e2e/kube_build.py builds it")


def kubernetes_path(program):
    """Returns the path of kube-apiserver, kube-controller-manager or kube-scheduler."""
    return kube_tools.CACHE / f"bin-{kube_tools.KUBERNETES_VERSION}" / program


ETCD_PATH = kube_tools.CACHE / "bin" / f"etcd-{ETCD_VERSION}"


def build_kubernetes(program):
    target = kubernetes_path(program)

    def build():
        target.parent.mkdir(parents=True, exist_ok=True)
        version = "k8s.io/component-base/version"
        minor = kube_tools.KUBERNETES_VERSION.split(".")[1]
        stamp = f"-s -w -X {version}.gitVersion=v{kube_tools.KUBERNETES_VERSION} -X {version}.gitMajor=1 -X {version}.gitMinor={minor}"
        with tempfile.TemporaryDirectory() as folder:
            write_kubernetes_module(pathlib.Path(folder))
            kube_tools.go("build", "-mod=mod", "-ldflags", stamp, "-o", str(target), f"k8s.io/kubernetes/cmd/{program}", cwd=folder)
    return kube_tools.once(program, target, build)


def build_etcd():
    target = ETCD_PATH

    def build():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            # `go install` refuses a module that replaces others by folders. A module that requires
            # it may do so.
            (pathlib.Path(folder) / "go.mod").write_text(f"module example.invalid/build\ngo 1.24\nrequire go.etcd.io/etcd/server/v3 v{ETCD_VERSION}\n")
            kube_tools.go("build", "-mod=mod", "-ldflags", "-s -w", "-o", str(target), "go.etcd.io/etcd/server/v3", cwd=folder)
    return kube_tools.once("etcd", target, build)


def jobset_module():
    name, version, _, _ = kube_tools.CUSTOM_KINDS[0]
    return pathlib.Path(json.loads(kube_tools.go("mod", "download", "-json", f"{name}@{version}"))["Dir"])


JOBSET_PATH = kube_tools.CACHE / "bin" / f"jobset-{kube_tools.CUSTOM_KINDS[0][1]}"
JOBSET_WEBHOOKS = JOBSET_PATH.parent / f"{JOBSET_PATH.name}.webhooks.yaml"


def build_jobset():
    """Builds the controller of JobSets and puts the description of its webhooks beside it."""
    target = JOBSET_PATH

    def build():
        target.parent.mkdir(parents=True, exist_ok=True)
        module = jobset_module()
        with tempfile.TemporaryDirectory() as folder:
            # Use a copy, because Go writes into a module that it builds.
            shutil.copytree(module, f"{folder}/jobset", copy_function=shutil.copyfile)
            kube_tools.go("build", "-ldflags", "-s -w", "-o", str(target), ".", cwd=f"{folder}/jobset")
        shutil.copyfile(module / "config/components/webhook/manifests.yaml", JOBSET_WEBHOOKS)
    return kube_tools.once("jobset", target, build)


def jobset():
    return built(JOBSET_PATH)


CONTROL_PLANE = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")


def kubernetes(program):
    return built(kubernetes_path(program))


def etcd():
    return built(ETCD_PATH)


def main():
    for name, make in [("etcd", build_etcd), *((program, lambda program=program: build_kubernetes(program)) for program in CONTROL_PLANE),
                       ("jobset", build_jobset)]:
        try:
            print(f"{name}: {make()}", flush=True)
        except kube_tools.Missing as missing:
            print(missing, file=sys.stderr)
            return 77  # CTest and tests/run.sh count it as skipped
    return 0


if __name__ == "__main__":
    sys.exit(main())
