"""`muster admin`: copies of the state that a coordinator starts from, and the doctor's checks."""
import json
import os
import pathlib
import shutil
import signal
import stat
import subprocess
import threading
import unittest
import urllib.request

from harness import BIN, MusterTest, wait_until


class Admin(MusterTest):
    def submit(self, name):
        words = ("submit", "--json", "--name", name, "--restarts", 3, "--", "sleep", 100000)
        return json.loads(self.muster(*words, check=0).stdout)["id"]

    def running(self, job, attempt):
        def condition():
            record = self.job(job)
            self.assertNotIn(record["state"], ("FAILED", "CANCELLED"), record)
            return record if (record["state"], record["attempt"]) == ("RUNNING", attempt) else None
        return wait_until(condition, 60, f"attempt {attempt} of job {job}")

    def stop(self, process):
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=30)

    def test_backup_is_restored(self):
        coordinator = self.start_coordinator()
        self.start_worker(coordinator, slots=2)
        job = self.submit("saved")
        self.running(job, 1)
        copy = self.dir / "copy.db"
        copy.write_text("an earlier copy")
        made = json.loads(self.muster("admin", "backup", "--out", copy, "--json", check=0).stdout)
        self.assertEqual((made["file"], made["bytes"]), (str(copy), copy.stat().st_size))
        self.assertEqual(stat.S_IMODE(copy.stat().st_mode), 0o600)
        wait_until(lambda: "backup.tmp" not in os.listdir(self.dir / "state"), 30, "the coordinator removes its copy")
        later = self.submit("lost")
        self.running(later, 1)
        self.stop(coordinator)

        for path in (self.dir / "state").glob("muster.db*"):
            path.rename(self.dir / path.name)
        (self.dir / "state/muster.db").write_bytes(copy.read_bytes())
        coordinator = self.start_coordinator(listen=coordinator.address)
        # The copy has another store id, so the worker stops the ranks of the lost state, and the
        # job starts again.
        record = self.running(job, 2)
        self.assertEqual([fault["kind"] for fault in record["faults"]], ["rank died"])
        jobs = json.loads(self.muster("list", "--json", check=0).stdout)["jobs"]
        self.assertEqual([job["spec"]["name"] for job in jobs], ["saved"])
        self.assertEqual(self.submit("new"), later)
        self.muster("cancel", job, "--force", check=0)

    def test_backup_names_what_is_wrong(self):
        self.start_coordinator()
        result = self.muster("admin", "backup", "--out", self.dir)
        self.assertEqual(result.returncode, 2)
        self.assertIn("is a folder: name a file in it", result.stderr)
        result = self.muster("admin", "backup", "--out", self.dir / "no/copy.db")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn(f"{self.dir}/no/copy.db.partial: No such file or directory", result.stderr)

    def functions(self, file, *options):
        """Returns pprof's table of a profile. `go` stores the pprof that it builds in its cache."""
        env = {**os.environ, "GOCACHE": str(pathlib.Path.home() / ".cache/go-build")}
        result = subprocess.run(["go", "tool", "pprof", "-top", "-cum", *options, str(file)], capture_output=True, text=True,
                                timeout=150, env=env)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    @unittest.skipUnless(shutil.which("go"), "go tool pprof is not installed")
    def test_profiles_of_a_busy_coordinator_open_in_pprof(self):
        coordinator = self.start_coordinator()
        stop = threading.Event()

        def load():
            while not stop.is_set():
                with urllib.request.urlopen(f"http://127.0.0.1:{coordinator.ports['http_port']}/metrics", timeout=20) as page:
                    page.read()
        thread = threading.Thread(target=load)
        thread.start()
        try:
            cpu, heap = self.dir / "cpu.pb", self.dir / "heap.pb"
            first = self.start(BIN / "muster", "admin", "profile", "--seconds", "3", "--out", cpu)
            wait_until(lambda: "requests a profile" in self.output(coordinator), 30, "the first profile")
            second = self.muster("admin", "profile", "--seconds", "1", "--out", self.dir / "other.pb")
            self.assertIn("another profile is in progress", second.stderr)
            self.assertNotEqual(second.returncode, 0)
            self.assertFalse((self.dir / "other.pb").exists())
            self.assertEqual(first.wait(timeout=60), 0, self.output(first))
        finally:
            stop.set()
            thread.join()
        self.assertIn("muster::coordinator::ShellMetrics::render", self.functions(cpu))
        self.muster("admin", "profile", "--heap", "--out", heap, check=0)
        self.assertIn("Type: inuse_space", self.functions(heap))
        self.assertEqual(stat.S_IMODE(heap.stat().st_mode), 0o600)

    def test_profile_names_what_is_wrong(self):
        self.start_coordinator()
        for seconds in ("0.5", "301", "x"):
            result = self.muster("admin", "profile", "--seconds", seconds, "--out", self.dir / "cpu.pb")
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertIn("--seconds", result.stderr)
            self.assertIn(seconds, result.stderr)
            self.assertIn("300", result.stderr)
        result = self.muster("admin", "profile", "--heap", "--seconds", 5, "--out", self.dir / "heap.pb")
        self.assertEqual(result.returncode, 2, result.stderr)
        # A limit of file sizes stands for a full disk.
        command = [str(BIN / "muster"), "admin", "profile", "--heap", "--out", str(self.dir / "full.pb")]
        result = subprocess.run(["bash", "-c", 'ulimit -f 0; "$@"', "-", *command], capture_output=True, text=True, timeout=60,
                                env=self.env, check=False)
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("full.pb.partial: ", result.stderr)
        self.assertEqual([file.name for file in self.dir.glob("full.pb*")], [])

    def test_doctor_finds_problems_and_their_end(self):
        coordinator = self.start_coordinator()
        result = self.muster("admin", "doctor")
        self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
        self.assertIn("PROBLEM  workers: no worker is registered", result.stdout)
        self.start_worker(coordinator)
        wait_until(lambda: "no worker" not in self.muster("admin", "doctor").stdout, 30, "the worker")
        versions = self.muster("version", "--check", check=0).stdout
        self.assertRegex(versions, r"(?m)^ok +version: coordinator (\S+), this program \1$")
        self.assertRegex(versions, r"(?m)^ok +worker versions: that of the coordinator$")
        self.assertIn("no coordinator answers", self.muster("version", "--check", "--coordinator", "127.0.0.1:1", check=3).stderr)
        self.muster("node", "exclude", "node0", "--reason", "fan", check=0)
        checks = json.loads(self.muster("admin", "doctor", "--json", check=1).stdout)["checks"]
        # The disk of the machine that runs the test may be nearly full.
        wrong = {check["check"] for check in checks if not check["ok"]} - {"disk"}
        self.assertEqual(wrong, {"nodes"}, checks)
        self.muster("node", "admit", "node0", check=0)
        checks = json.loads(self.muster("admin", "doctor", "--json").stdout)["checks"]
        self.assertEqual([check for check in checks if not check["ok"] and check["check"] != "disk"], [])
        self.assertEqual({check["check"] for check in checks},
                         {"version", "core", "disk", "clock", "certificate", "descriptors", "worker versions", "connections", "nodes"})


if __name__ == "__main__":
    unittest.main()
