#!/usr/bin/env python3
"""Minimal Debian systems in folders, by debootstrap, for tests of what runs on an empty machine.

`python3 tests/e2e/userlands.py` makes the missing ones; its exit status is 1 if one cannot be made.
"""
import os
import pathlib
import shutil
import subprocess
import sys

import kube_tools

SUITES = ("bookworm", "trixie")
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


def copy_of(suite, folder):
    subprocess.run(["cp", "-a", userland(suite), folder], check=True, timeout=120)
    return folder


def run_in(root, *words, env=None, **options):
    """Runs a command in a copy, in /tmp, without this process's environment."""
    inside = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", **(env or {})}
    return subprocess.run([*APART, "bash", "-c", ENTER, str(root), "/usr/bin/env", "-i", "-C", "/tmp",
                           *(f"{name}={value}" for name, value in inside.items()), *map(str, words)],
                          capture_output=True, text=True, **options)


def main():
    try:
        for suite in SUITES:
            print(userland(suite))
    except (kube_tools.Missing, subprocess.SubprocessError, OSError) as error:
        print(error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
