#!/usr/bin/env python3
"""An S3 server for tests: Versity's gateway in front of a folder, built from its Go module.

`python3 tests/e2e/store_tools.py` builds it if it is missing; its exit status is 1 if it cannot be
built.
"""
import os
import socket
import subprocess
import sys
import time

import kube_tools

VERSION = "v1.8.0"
MODULE = f"github.com/versity/versitygw/cmd/versitygw@{VERSION}"
USER, PASSWORD = "muster-test", "only-for-tests"


def gateway():
    """Returns the program's path. Building it takes 2 to 4 minutes on two cores."""
    target = kube_tools.CACHE / f"bin-versitygw-{VERSION}" / "versitygw"
    return kube_tools.once("versitygw", target, lambda: kube_tools.go("install", "-ldflags=-s -w", MODULE, GOBIN=str(target.parent)))


class Server:
    """A server on loopback. Its buckets are the folders of `folder`."""

    def __init__(self, folder):
        self.folder = folder
        self.process = None
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]

    def start(self):
        environment = {"PATH": os.environ["PATH"], "ROOT_ACCESS_KEY": USER, "ROOT_SECRET_KEY": PASSWORD}
        self.process = subprocess.Popen([gateway(), "--port", f"127.0.0.1:{self.port}", "posix", self.folder], env=environment,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 20
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                if time.monotonic() > deadline or self.process.poll() is not None:
                    raise
                time.sleep(0.05)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def environment(self):
        return {"AWS_ACCESS_KEY_ID": USER, "AWS_SECRET_ACCESS_KEY": PASSWORD, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}"}


def main():
    return kube_tools.report((("versitygw", gateway),))


if __name__ == "__main__":
    sys.exit(main())
