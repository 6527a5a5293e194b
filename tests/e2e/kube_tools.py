#!/usr/bin/env python3
"""Kubernetes' tools for tests: found on this machine, or built from their Go modules into a folder
that later runs use.

`python3 tests/e2e/kube_tools.py` builds what is missing and prints what there is.
"""
import contextlib
import fcntl
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

CACHE = pathlib.Path(os.environ.get("MUSTER_TEST_TOOLS") or pathlib.Path.home() / ".cache/muster-tests")
HELM = "helm.sh/helm/v3/cmd/helm@v3.20.2"
KUBERNETES_VERSION = "1.36.3"
# Modules whose kinds the chart and `muster k8s render` write: module, version, folder of its
# schemas, and the schemas used.
CUSTOM_KINDS = [
    ("sigs.k8s.io/jobset", "v0.10.1", "config/components/crd/bases", ["jobset.x-k8s.io_jobsets"]),
    ("github.com/prometheus-operator/prometheus-operator", "v0.85.0", "example/prometheus-operator-crd",
     [f"monitoring.coreos.com_{kind}" for kind in ("podmonitors", "servicemonitors", "prometheusrules")]),
    ("github.com/cert-manager/cert-manager", "v1.21.2", "deploy/crds",
     ["cert-manager.io_certificates", "cert-manager.io_issuers"]),
]
BUILD_SECONDS = 540  # helm takes 100 s on two cores
# After a failed build, later tests of the same run do not try again.
FAILURE_SECONDS = 3600


class Missing(Exception):
    """A tool that is unavailable here, with the reason."""


@contextlib.contextmanager
def only_one():
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / "lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def once(name, target, make):
    """Returns `target`; `make` creates it if it does not exist. A failure is remembered for an
    hour.
    """
    if target.exists():
        return target
    with only_one():
        failure = CACHE / f"{name}.failed"
        if target.exists():
            return target
        if failure.exists() and time.time() - failure.stat().st_mtime < FAILURE_SECONDS:
            raise Missing(failure.read_text())
        try:
            make()
        except (OSError, subprocess.SubprocessError) as error:
            printed = getattr(error, "stderr", None) or ""
            reason = f"no {name} here: {error} {printed[-300:]}".strip()
            failure.write_text(reason)
            raise Missing(reason) from error
        failure.unlink(missing_ok=True)
        return target


def go(*arguments, cwd=None, **environment):
    """Runs the `go` command within the time for a build. Returns its output."""
    if shutil.which("go") is None:
        raise OSError("Go, which builds it, is not installed")
    return subprocess.run(["go", *arguments], check=True, capture_output=True, text=True, timeout=BUILD_SECONDS, cwd=cwd,
                          env={**os.environ, "GOFLAGS": "-p=2 -buildvcs=false", "GOWORK": "off", "CGO_ENABLED": "0", **environment}).stdout


def helm():
    return once("helm", CACHE / "bin/helm", lambda: go("install", HELM, GOBIN=str(CACHE / "bin")))


def swagger():
    """Returns the schema of each kind in Kubernetes' API description."""
    target = CACHE / f"swagger-{KUBERNETES_VERSION}.json"

    def fetch():
        module = json.loads(go("mod", "download", "-json", f"k8s.io/kubernetes@v{KUBERNETES_VERSION}"))
        beside = target.with_suffix(".new")
        shutil.copyfile(pathlib.Path(module["Dir"]) / "api/openapi-spec/swagger.json", beside)
        beside.rename(target)
    return once("swagger", target, fetch)


def custom_kinds():
    """Returns the folder with the schemas of the kinds that are not part of Kubernetes."""
    marker = "-".join(version for _, version, _, _ in CUSTOM_KINDS)
    target = CACHE / f"kinds-{marker}"

    def fetch():
        beside = target.with_suffix(".new")
        shutil.rmtree(beside, ignore_errors=True)
        beside.mkdir(parents=True)
        for module, version, folder, names in CUSTOM_KINDS:
            found = pathlib.Path(json.loads(go("mod", "download", "-json", f"{module}@{version}"))["Dir"]) / folder
            for name in names:
                shutil.copyfile(found / f"{name}.yaml", beside / f"{name}.yaml")
        beside.rename(target)
    return once("descriptions of kinds", target, fetch)


def report(tools):
    """Prints where each tool is, or why it is missing. `tools`: (name, function that finds it).
    Returns the exit status: 1 if any is missing.
    """
    status = 0
    for name, find in tools:
        try:
            print(f"{name}: {find()}")
        except Missing as missing:
            print(missing, file=sys.stderr)
            status = 1
    return status


def main():
    return report((("helm", helm), ("the API's description", swagger), ("other kinds' descriptions", custom_kinds)))


if __name__ == "__main__":
    sys.exit(main())
