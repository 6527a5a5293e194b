"""Tests that run in a network namespace of their own, in which they may drop packets."""
import ctypes
import os
import shutil
import subprocess
import unittest

from harness import MusterTest

CLONE_NEWNET = 0x40000000


@unittest.skipUnless(os.geteuid() == 0 and shutil.which("iptables") and shutil.which("ip"), "needs root, iptables and iproute2")
class OwnNetworkTest(MusterTest):
    def setUp(self):
        super().setUp()
        libc = ctypes.CDLL(None, use_errno=True)
        before = os.open("/proc/self/ns/net", os.O_RDONLY)
        if libc.unshare(CLONE_NEWNET) != 0:
            os.close(before)
            self.skipTest(f"no network namespace: {os.strerror(ctypes.get_errno())}")
        self.addCleanup(os.close, before)
        self.addCleanup(libc.setns, before, CLONE_NEWNET)
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
