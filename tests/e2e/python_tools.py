#!/usr/bin/env python3
"""Python packages for tests: found in a Python of this machine, or installed into a separate
environment that later runs use.

`python3 tests/e2e/python_tools.py` installs what is missing and prints what there is. PyTorch is
not among them, because its wheels take several gigabytes: tests use the distribution's package with
the distribution's Python.
"""
import functools
import os
import shutil
import subprocess
import sys
import unittest

from kube_tools import CACHE, Missing, once, report

# Tested versions. MLflow's server needs most of its 190 MB.
PACKAGES = {"tensorboard": ("tensorboard==2.21.0",), "jax": ("jax==0.6.2", "jaxlib==0.6.2"), "mlflow": ("mlflow==3.17.2",),
            "openai": ("openai==1.109.1",), "py-spy": ("py-spy==0.4.1",),
            # The tests of the page drive the distribution's Chromium.
            "playwright": ("playwright==1.65.2", "axe-playwright-python==0.1.8"),
             "schemathesis": ("schemathesis==4.32.5",)}
DISTRIBUTION_PYTHON = "/usr/bin/python3"
INSTALL_SECONDS = 540


def named_python(module):
    """Returns a Python that has the module, or None: that of MUSTER_MODULE_PYTHON or
    MUSTER_PEERS_PYTHON, else this one or the distribution's.
    """
    found = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({module!r}) is None)"
    for name in (os.environ.get(f"MUSTER_{module.upper()}_PYTHON"), os.environ.get("MUSTER_PEERS_PYTHON"), sys.executable, DISTRIBUTION_PYTHON):
        if name and shutil.which(name) and subprocess.run([name, "-c", found]).returncode == 0:
            return name
    return None


def python_with(module):
    """Returns a Python that has the module, after installing it if necessary. Raises Missing."""
    named = named_python(module)
    if named:
        return named
    if module not in PACKAGES:
        raise Missing(f"no Python with {module}: install the distribution's package, or name one in MUSTER_PEERS_PYTHON")
    target = CACHE / f"python-{PACKAGES[module][0].replace('==', '-')}"

    def install():
        beside = target.with_name(target.name + ".new")
        shutil.rmtree(beside, ignore_errors=True)
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check", "--only-binary=:all:", "--target"]
        subprocess.run([*command, str(beside), *PACKAGES[module]], check=True, capture_output=True, text=True, timeout=INSTALL_SECONDS)
        # The launcher names the final path, because the folder is renamed after the installation.
        launcher = beside / "bin" / "python"
        launcher.parent.mkdir(exist_ok=True)
        launcher.write_text(f'#!/bin/sh\nPYTHONPATH="{target}" exec "{sys.executable}" "$@"\n')
        launcher.chmod(0o755)
        beside.rename(target)
    return str(once(f"Python with {module}", target, install) / "bin/python")


def python_or_skip(module):
    """Returns a Python that has the module; skips the test, or the class from its setUpClass, with
    the reason if there is none.
    """
    try:
        return python_with(module)
    except Missing as missing:
        raise unittest.SkipTest(str(missing)) from None


def main():
    return report((module, functools.partial(python_with, module)) for module in PACKAGES)


if __name__ == "__main__":
    sys.exit(main())
