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
            "jwt": ("pyjwt==2.10.1", "cryptography==44.0.2"),
            # The tests of the page drive the distribution's Chromium.
            "playwright": ("playwright==1.65.2", "axe-playwright-python==0.1.8"),
             "schemathesis": ("schemathesis==4.32.5",),
            # The build of the wheel, the oldest generator of messages; and what its client needs.
            "grpc_tools": ("hatchling==1.33.0", "grpcio-tools==1.62.3", "setuptools==80.9.0"),
            "grpc": ("grpcio==1.85.3", "protobuf==7.36.2", "prometheus-client==0.26.0", "cloudpickle==3.1.3", "mypy==2.4.1",
                     "types-grpcio==1.85.0.20261028", "types-protobuf==7.35.1.20260906"),
            # For the distribution's PyTorch 1.13, so without the packages that they require.
            "transformers": ("transformers==4.40.2", "tokenizers==0.19.1", "accelerate==0.30.1", "huggingface-hub==0.23.5",
                             "safetensors==0.4.5", "regex==2024.11.6", "pyyaml==6.0.2", "requests==2.32.3", "urllib3==2.2.2",
                             "charset-normalizer==3.4.0", "idna==3.10", "certifi==2024.8.30", "tqdm==4.66.5", "filelock==3.16.1",
                             "packaging==24.2", "fsspec==2024.10.0", "psutil==6.1.0", "pytorch-lightning==2.2.5",
                             "torchmetrics==1.4.2", "lightning-utilities==0.11.9", "typing-extensions==4.12.2", "setuptools==69.5.1")}
# The modules that a Python of this machine must have to be used for a package, if not only that.
MODULES = {"jwt": ("jwt", "cryptography"), "grpc_tools": ("hatchling", "grpc_tools"), "grpc": ("grpc", "google.protobuf", "prometheus_client", "cloudpickle", "mypy"),
           "transformers": ("torch", "transformers", "pytorch_lightning")}
WITHOUT_REQUIREMENTS = ("transformers",)
DISTRIBUTION_PYTHON = "/usr/bin/python3"
INSTALL_SECONDS = 540


def named_python(module):
    """Returns a Python that has the module, or None: that of MUSTER_MODULE_PYTHON or
    MUSTER_PEERS_PYTHON, else this one or the distribution's.
    """
    wanted = MODULES.get(module, (module,))
    found = f"import importlib.util, sys; sys.exit(any(importlib.util.find_spec(each) is None for each in {wanted!r}))"
    for name in (os.environ.get(f"MUSTER_{module.upper()}_PYTHON"), os.environ.get("MUSTER_PEERS_PYTHON"), sys.executable, DISTRIBUTION_PYTHON):
        if name and shutil.which(name) and subprocess.run([name, "-c", found], stderr=subprocess.DEVNULL).returncode == 0:
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
        if module in WITHOUT_REQUIREMENTS:
            command.insert(-1, "--no-deps")
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
