#!/usr/bin/env python3
"""Kubernetes' control plane, built from its Go modules: minutes once, so tests find it and do not build it.

`tests/e2e/kube_build.py` builds what is missing and says what there is; its status is 77 where it cannot be had.
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
    """A module beside Kubernetes', with its own versions: its packages are then built from published modules."""
    module = json.loads(kube_tools.go("mod", "download", "-json", f"k8s.io/kubernetes@v{kube_tools.KUBERNETES_VERSION}"))
    text = (pathlib.Path(module["Dir"]) / "go.mod").read_text()
    published = f"v0.{kube_tools.KUBERNETES_VERSION.split('.', 1)[1]}"
    text = re.sub(r"^module .*", "module example.invalid/build", text, count=1, flags=re.M)
    text = re.sub(r"=> \./staging/src/(k8s\.io/[a-z-]+)", rf"=> \1 {published}", text)
    (folder / "go.mod").write_text(f"{text}\nrequire k8s.io/kubernetes v{kube_tools.KUBERNETES_VERSION}\n")
    (folder / "go.sum").write_bytes((pathlib.Path(module["Dir"]) / "go.sum").read_bytes())


def built(target):
    """Builds programs that take minutes; tests do not build them."""
    if target.exists():
        return target
    raise kube_tools.Missing(f"no {target.name} here: tests/e2e/kube_build.py builds it")


def kubernetes_path(program):
    """kube-apiserver, kube-controller-manager or kube-scheduler."""
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
            # `go install` refuses a module that replaces others by folders; one that requires it may.
            (pathlib.Path(folder) / "go.mod").write_text(f"module example.invalid/build\ngo 1.24\nrequire go.etcd.io/etcd/server/v3 v{ETCD_VERSION}\n")
            kube_tools.go("build", "-mod=mod", "-ldflags", "-s -w", "-o", str(target), "go.etcd.io/etcd/server/v3", cwd=folder)
    return kube_tools.once("etcd", target, build)


def jobset_module():
    name, version, _, _ = kube_tools.CUSTOM_KINDS[0]
    return pathlib.Path(json.loads(kube_tools.go("mod", "download", "-json", f"{name}@{version}"))["Dir"])


JOBSET_PATH = kube_tools.CACHE / "bin" / f"jobset-{kube_tools.CUSTOM_KINDS[0][1]}"
JOBSET_WEBHOOKS = JOBSET_PATH.parent / f"{JOBSET_PATH.name}.webhooks.yaml"


def build_jobset():
    """The controller of JobSets, with the webhooks' description beside it."""
    target = JOBSET_PATH

    def build():
        target.parent.mkdir(parents=True, exist_ok=True)
        module = jobset_module()
        with tempfile.TemporaryDirectory() as folder:
            # A copy, because Go writes into a module that it builds.
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
            return 77  # what CTest and tests/run.sh take for skipped
    return 0


if __name__ == "__main__":
    sys.exit(main())
