#!/usr/bin/env python3
"""Minimal Debian systems in folders, by debootstrap, for tests of what runs on an empty machine.

`python3 tests/e2e/userlands.py` makes the missing ones; its exit status is 1 if one cannot be made.
"""
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys

import kube_tools

SUITES = ("bookworm", "trixie")
# The packages of Debian 12 that those of deploy/debs.sh depend on.
DEPENDENCIES = """adduser libabsl20220623 libdnnl2 libdw1 libfmt9 libgloo0 libgomp1 libgoogle-perftools4 libgrpc++1.51 libgrpc29 libhwloc15 libhwy1
    libcjose0 libpcre2-8-0 libprometheus-cpp-core1.0 libprotobuf32 libsentencepiece0 libsimdjson14 libspdlog1.10-fmt9 libsqlite3-0 libssl3 libutf8proc2
    libyaml-cpp0.7 libzstd1 python3 zlib1g""".split()
MAKE_SECONDS = 240  # it takes a minute
APART = ("unshare", "--mount", "--pid", "--fork", "--kill-child")
# Runs a command in a folder as the root of its file system, with its own processes and mounts.
ENTER = """set -e
mount -t proc proc "$0/proc"
mount --rbind /dev "$0/dev"
exec chroot "$0" "$@"
"""


def userland(suite):
    """Returns the folder of a Debian with the packages that each Debian has. Tests must not write
    to it.
    """
    target = kube_tools.CACHE / f"userland-{suite}"

    if os.geteuid() != 0 or subprocess.run([*APART, "true"], capture_output=True, timeout=20).returncode != 0:
        raise kube_tools.Missing("no root here that may mount")

    def make():
        if shutil.which("debootstrap") is None:
            raise kube_tools.Missing("no debootstrap here")
        partial = target.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        mirror = os.environ.get("MUSTER_DEBIAN_MIRROR", "http://deb.debian.org/debian")
        # Its mounts and processes end with it.
        subprocess.run([*APART, "debootstrap", "--variant=minbase", suite, partial, mirror], check=True, capture_output=True, timeout=MAKE_SECONDS)
        shutil.rmtree(partial / "var/cache/apt")
        partial.rename(target)

    return kube_tools.once(f"userland {suite}", target, make)


def with_dependencies():
    """Returns the folder of a Debian 12 that has the packages on which Muster's packages depend."""
    # A folder that an earlier version made may lack packages.
    target = kube_tools.CACHE / f"userland-dependencies-{hashlib.sha256(' '.join(DEPENDENCIES).encode()).hexdigest()[:12]}"
    base = userland("bookworm")

    def make():
        partial = target.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        subprocess.run(["cp", "-a", base, partial], check=True, timeout=120)
        shutil.copyfile("/etc/resolv.conf", partial / "etc/resolv.conf")
        for words in (["update"], ["install", "-y", "--no-install-recommends", *DEPENDENCIES], ["clean"]):
            run_in(partial, "apt-get", *words, env={"DEBIAN_FRONTEND": "noninteractive", **proxies()}, check=True, timeout=MAKE_SECONDS)
        shutil.rmtree(partial / "var/lib/apt/lists")
        partial.rename(target)

    return kube_tools.once("userland with dependencies", target, make)


def proxies():
    return {name: value for name, value in os.environ.items() if name.lower() in ("http_proxy", "https_proxy", "no_proxy")}


def copy_of(source, folder):
    """Copies a folder of userland() or with_dependencies(), which tests then may write to."""
    subprocess.run(["cp", "-a", source, folder], check=True, timeout=120)
    return folder


def run_in(root, *words, env=None, around=(), **options):
    """Runs a command in a copy, in /tmp, without this process's environment. `around`: a command
    that runs the rest of its arguments on this system.
    """
    inside = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", **(env or {})}
    return subprocess.run([*around, *APART, "bash", "-c", ENTER, str(root), "/usr/bin/env", "-i", "-C", "/tmp",
                           *(f"{name}={value}" for name, value in inside.items()), *map(str, words)],
                          capture_output=True, text=True, **options)


def main():
    try:
        for suite in SUITES:
            print(userland(suite))
        print(with_dependencies())
    except (kube_tools.Missing, subprocess.SubprocessError, OSError) as error:
        print(error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
