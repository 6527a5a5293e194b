"""The Debian packages of this build: made by deploy/debs.sh, checked by lintian and
systemd-analyze, and installed, used, upgraded and purged in the folder of a minimal Debian 12.

No systemd runs there: tests/e2e/units_stand_in.py starts the units' command lines as their users.
"""
import pathlib
import shutil
import subprocess
import tempfile
import unittest

import kube_tools
import userlands
from harness import BIN, SOURCE, MusterTest

DAEMONS = ("coordinator", "worker")
# The exposure that `systemd-analyze security` computes, times ten: ranks are users' programs, which
# use devices and write anywhere.
EXPOSURE = {"coordinator": 20, "worker": 50}
# Runs a script in a network of its own, with the units' default ports.
OWN_NETWORK = ("unshare", "--net", "bash", "-c", 'ip link set lo up && exec "$@"', "bash")

SCENARIO = """
set -e
units() { systemctl show --property MainPID --value muster-$1.service; }
until_found() { for _ in $(seq 600); do "${@:2}" 2>&1 | grep -q "$1" && return; sleep 0.1; done; "${@:2}"; cat /tmp/*.log; exit 1; }
dpkg -i /tmp/old/*.deb
echo "enabled $(ls /etc/systemd/system/*/ | grep muster | xargs)"
echo "users $(stat -c %U /var/lib/muster /var/lib/muster-worker | xargs) $(stat -c %a /var/lib/muster /var/lib/muster-worker | xargs)"
until_found "registered with" cat /tmp/muster-worker.service.log
cat > /tmp/program.sh << 'END'
#!/bin/sh
id -un
while [ ! -e /tmp/go ]; do sleep 0.05; done
echo done
END
chmod 755 /tmp/program.sh
muster submit --ranks 1 -- /tmp/program.sh
until_found RUNNING muster status 1
coordinator=$(units coordinator) worker=$(units worker)
echo "OPTIONS=\\"--listen 127.0.0.1:7070 --http 127.0.0.1:7071 --log-level debug\\"" > /etc/muster/coordinator.conf
echo "--- upgrade"
dpkg -i /tmp/new/*.deb
echo "--- upgraded"
[ "$(units worker)" = "$worker" ] && echo "the worker runs on"
[ "$(units coordinator)" != "$coordinator" ] && echo "the coordinator restarted"
grep -c -e "--log-level debug" /etc/muster/coordinator.conf
touch /tmp/go
until_found SUCCEEDED muster status 1
muster logs 1
echo "--- upgrade without ranks"
dpkg -i /tmp/old/muster-worker_*.deb /tmp/old/muster_*.deb 2>&1
[ "$(units worker)" != "$worker" ] && echo "the worker restarted"
echo "--- remove"
dpkg -r muster-worker muster-coordinator muster
[ "$(units worker)$(units coordinator)" = 00 ] && echo "both are stopped"
ls /etc/muster /var/lib/muster/muster.db
dpkg -P muster-worker muster-coordinator muster
! getent passwd muster muster-worker
"""


class DebianPackages(MusterTest):
    @classmethod
    def setUpClass(cls):
        if 'VERSION_ID="12"' not in pathlib.Path("/etc/os-release").read_text():
            raise unittest.SkipTest("packages are for the distribution that builds them, and this is not Debian 12")
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="muster-debs-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        made = subprocess.run([SOURCE / "deploy/debs.sh", "--build", BIN.parent, "--out", cls.folder], capture_output=True, text=True, timeout=300)
        assert made.returncode == 0, made.stderr
        cls.packages = sorted(cls.folder.glob("*.deb"))
        cls.unpacked = {}
        for package in cls.packages:
            name = package.name.split("_")[0]
            cls.unpacked[name] = cls.folder / name
            subprocess.run(["dpkg-deb", "-R", package, cls.unpacked[name]], check=True, timeout=60)

    def test_lintian_finds_no_error(self):
        self.assertEqual(sorted(self.unpacked), ["muster", "muster-coordinator", "muster-worker"])
        if shutil.which("lintian") is None:
            self.skipTest("no lintian here")
        checked = subprocess.run(["lintian", "--fail-on", "error", *self.packages], capture_output=True, text=True, timeout=120)
        self.assertEqual(checked.returncode, 0, checked.stdout)

    def test_units_are_valid_and_hardened(self):
        if shutil.which("systemd-analyze") is None:
            self.skipTest("no systemd-analyze here")
        for daemon in DAEMONS:
            root = self.dir / daemon
            shutil.copytree(self.unpacked[f"muster-{daemon}"], root, symlinks=True)
            for target in pathlib.Path("/lib/systemd/system").glob("*.target"):
                shutil.copy(target, root / "usr/lib/systemd/system")
            unit = root / f"usr/lib/systemd/system/muster-{daemon}.service"
            verified = subprocess.run(["systemd-analyze", "verify", "--man=no", f"--root={root}", f"muster-{daemon}.service"], capture_output=True, text=True, timeout=60)
            complaints = [line for line in verified.stderr.splitlines() if unit.name in line]
            self.assertEqual(complaints, [], verified.stderr)
            exposed = subprocess.run(["systemd-analyze", "security", "--offline=true", "--no-pager", f"--threshold={EXPOSURE[daemon]}", unit], capture_output=True, text=True, timeout=60)
            self.assertEqual(exposed.returncode, 0, exposed.stdout + exposed.stderr)

    @unittest.skipIf(shutil.which("ip") is None, "no iproute2 here")
    def test_install_upgrade_with_a_running_job_and_purge(self):
        try:
            root = userlands.copy_of(userlands.with_dependencies(), self.dir / "root")
        except kube_tools.Missing as error:
            self.skipTest(str(error))
        for folder in ("tmp/old", "tmp/new", "run/systemd/system"):
            (root / folder).mkdir(parents=True)
        shutil.copy(SOURCE / "tests/e2e/units_stand_in.py", root / "usr/bin/systemctl")
        for package in self.packages:
            shutil.copy(package, root / "tmp/old")
        # the same files as a higher version
        for name, folder in self.unpacked.items():
            higher = self.dir / name
            shutil.copytree(folder, higher, symlinks=True)
            control = higher / "DEBIAN/control"
            version = next(line.split()[1] for line in control.read_text().splitlines() if line.startswith("Version:"))
            control.write_text(control.read_text().replace(f"Version: {version}", f"Version: {version}+1").replace(f"(= {version})", f"(= {version}+1)"))
            subprocess.run(["dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "-b", higher, root / f"tmp/new/{name}_{version}+1.deb"], check=True, capture_output=True, timeout=60)
        before = self.files_of(root)
        (root / "tmp/scenario").write_text(SCENARIO)
        ran = userlands.run_in(root, "bash", "/tmp/scenario", timeout=150, around=OWN_NETWORK)
        output = ran.stdout + ran.stderr
        self.assertEqual(ran.returncode, 0, output)
        self.assertIn("enabled muster-coordinator.service muster-worker.service\n", output)
        self.assertIn("users muster muster-worker 700 700\n", output)
        upgrade = ran.stdout.split("--- upgrade\n")[1].split("--- upgraded")[0]
        self.assertIn("muster-worker: ranks are running here, so the worker of version", upgrade)
        self.assertIn("the worker runs on\nthe coordinator restarted\n1\n", ran.stdout)
        self.assertRegex(ran.stdout, r"(?s)muster-worker\n.*done\n--- upgrade without ranks")
        self.assertIn("the worker restarted", ran.stdout)
        self.assertIn("both are stopped\n/var/lib/muster/muster.db\n\n/etc/muster:\ncoordinator.conf\nworker.conf\n", ran.stdout)
        # dpkg's and adduser's own records
        records = ("var/log/", "var/cache/", "etc/shadow-")
        self.assertEqual({path for path in self.files_of(root) - before if not path.startswith(records)}, set())

    def files_of(self, root):
        return {str(path.relative_to(root)) for path in root.rglob("*") if not path.is_relative_to(root / "tmp") and not path.is_relative_to(root / "run")}


if __name__ == "__main__":
    unittest.main()
