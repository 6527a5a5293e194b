"""muster bench device: measures this machine for muster plan."""
import json
import pathlib
import re
import signal
import subprocess
import unittest

from harness import BIN, MARK, TINY, MusterTest, processes_with_mark, wait_gone, wait_until


class BenchDevice(MusterTest):
    def setUp(self):
        super().setUp()
        self.own = self.dir / "own"
        self.own.mkdir()
        (self.own / "base.yml").write_text(pathlib.Path(self.base_yml()).read_text(encoding="utf-8"))

    def files(self):
        return sorted(str(path.relative_to(self.own)) for path in self.own.rglob("*.yml"))

    def test_plans_of_this_machine_have_times(self):
        measured = json.loads(self.muster("bench", "device", "here", "--out", self.own, "--hardware", "cpu", "--json", "--limit", 380, check=0, timeout=400).stdout)
        self.assertEqual(self.files(), ["base.yml", "calibration/muster-here.yml", "topologies/here.yml"])
        ranks = measured["ranks"]
        for key in ("bf16_tflops", "fp32_tflops", "memory_gb_s", "host_gb_s"):
            self.assertGreater(measured["device"][key], 0, key)
        fitted = [step["fitted"] for step in measured["steps"]]
        self.assertIn(False, fitted)
        self.assertIn("kernel_share_adam", measured["constants"])
        again = self.muster("bench", "device", "here", "--out", self.own, check=2)
        self.assertIn("topologies/here.yml exists; choose another name, or replace it with --force", again.stderr)
        words = [self.own / "base.yml", *TINY[:-1], "steps=20", "enable_checkpointing=false"]
        # A plan takes the type of a run here, without dtype.
        shown = json.loads(self.muster("plan", *words, "compile_topology=here-1", "--json", check=0).stdout)
        dtype = "bfloat16" if measured_speed(self.own / "topologies/here.yml") >= 1 else "float32"
        self.assertEqual(shown["config"]["dtype"], dtype)
        self.assertTrue(any(f"dtype is {dtype}, as a run there would choose: on the CPU of compile_topology=here" in one for one in shown["warnings"]))
        self.assertIn("steps of muster measured on", shown["step"]["known"])
        whole = json.loads(self.muster("plan", *words, f"compile_topology=here-{ranks}", "--json", check=0).stdout)
        self.assertGreater(whole["step"]["seconds"], 0)
        # A run compares itself with the plan, for its own number of ranks.
        run = self.muster("run", *words, "compile_topology=here", "run_name=one", f"base_output_directory={self.dir}/out", "--ranks", 1, check=0).stdout
        self.assertAlmostEqual(planned_step(run) / shown["step"]["seconds"], 1, delta=0.01)
        # A run finds the file by the model of its CPU, too.
        unnamed = self.muster("run", *words, "run_name=two", f"base_output_directory={self.dir}/out", "--ranks", 1, check=0).stdout
        self.assertEqual(planned_step(unnamed), planned_step(run))
        plain = self.muster("plan", *words, "compile_topology=here-1", check=0).stdout
        self.assertIn("of the measured peak, ", plain)

    def test_a_plan_for_cpus_takes_the_type_of_a_run_here(self):
        words = [self.base_yml(), *TINY[:-1], "steps=1", "enable_checkpointing=false"]
        shown = json.loads(self.muster("plan", *words, "compile_topology=cpu-1", "--json", check=0).stdout)
        self.muster("run", *words, "run_name=one", f"base_output_directory={self.dir}/out", "--ranks", 1, check=0)
        run = json.loads((self.dir / "out/one/config.json").read_text())
        self.assertEqual(shown["config"]["dtype"], run["dtype"])
        self.assertIn("as a run there would choose: on this machine's CPU (the topology cpu has no bfloat16_speed)", " ".join(shown["warnings"]))

    def test_files_of_others_are_not_replaced(self):
        topologies = self.own / "topologies"
        topologies.mkdir()
        (topologies / "here.yml").write_text("device: CPU\nmemory_mib: 1\ndevices_per_node: 1\n")
        for words, name in ((["h200"], "h200"), (["here", "--out", self.own], "here")):
            refused = self.muster("bench", "device", *words, "--force", "--hardware", "cpu", check=2)
            self.assertIn(f"topologies/{name}.yml is not a file of muster bench device", refused.stderr)
        (topologies / "here.yml").unlink()
        (self.own / "calibration").mkdir()
        (self.own / "calibration/muster-here.yml").write_text("device: CPU\n")
        refused = self.muster("bench", "device", "here", "--out", self.own, "--force", "--hardware", "cpu", check=2)
        self.assertIn("calibration/muster-here.yml is not a file of muster bench device", refused.stderr)
        self.assertEqual(self.files(), ["base.yml", "calibration/muster-here.yml"])

    def test_a_file_in_place_of_a_folder_is_noticed_before_the_measurement(self):
        (self.own / "calibration").write_text("")
        refused = self.muster("bench", "device", "here", "--out", self.own, "--hardware", "cpu", timeout=20)
        self.assertEqual((refused.returncode, refused.stdout), (2, ""), refused.stderr)
        self.assertIn("calibration", refused.stderr)
        self.assertEqual(self.files(), ["base.yml"])

    def test_a_measurement_that_takes_too_long_ends(self):
        """The ranks stop before they measure, so no machine is fast or slow enough to matter."""
        programs = self.dir / "programs"
        programs.mkdir()
        for program in BIN.iterdir():
            (programs / program.name).symlink_to(program)
        (programs / "muster-trainer").unlink()
        (programs / "muster-trainer").write_text(f'#!/bin/bash\n[ "$1" != bench-device ] || kill -STOP $$\nexec {BIN}/muster-trainer "$@"\n')
        (programs / "muster-trainer").chmod(0o755)
        self.env["MUSTER_BIN_DIR"] = str(programs)
        bench = self.start(BIN / "muster", "bench", "device", "here", "--out", self.own, "--hardware", "cpu", "--limit", 10)
        self.assertEqual(bench.wait(timeout=120), 1, self.output(bench))
        self.assertIn("the measurement has not ended after 10 s, and no file was written", bench.err_path.read_text())
        self.assertEqual(self.files(), ["base.yml"])
        self.assertEqual(wait_gone(self.mark, 60), [], "no rank outlives the command")

    def test_ctrl_c_writes_nothing(self):
        bench = self.start(BIN / "muster", "bench", "device", "here", "--out", str(self.own), "--hardware", "cpu")
        children = pathlib.Path(f"/proc/{bench.pid}/task/{bench.pid}/children")
        wait_until(lambda: children.read_text().split(), 60, "the run of the ranks")
        wait_until(self.is_measuring, 60, "the ranks")
        bench.send_signal(signal.SIGINT)
        self.assertEqual(bench.wait(timeout=60), 130, self.output(bench))
        self.assertIn("interrupted; no file was written", bench.err_path.read_text())
        self.assertEqual(self.files(), ["base.yml"])
        self.assertEqual(list(self.own.iterdir()), [self.own / "base.yml"])

    def is_measuring(self):
        return any(is_bench_rank(pid) for pid in processes_with_mark(self.env[MARK]))

    def test_mistakes_are_named(self):
        for words, message in ((["../up"], 'NAME="../up": expected letters, digits'),
                               (["a b"], 'NAME="a b": expected letters'),
                               (["here", "--out", self.dir / "none"], "none: no such folder"),
                               (["here", "--out", self.own, "--ranks", "1000"], "--ranks 1000: must be from 1 to"),
                               (["here", "--out", self.own, "--ranks", "0"], "--ranks"),
                               (["here", "--out", self.own, "--hardware", "tpu"], "--hardware"),
                               (["here", "--out", self.own, "--limit", "5"], "--limit"),
                               ([], "NAME")):
            refused = self.muster("bench", "device", *words)
            self.assertEqual((refused.returncode, refused.stdout), (2, ""), words)
            self.assertIn(message, refused.stderr.replace("name is required", "NAME is required"))
        self.assertEqual(self.files(), ["base.yml"])
        self.assertIn("compile_topology=my-server-2", self.muster("bench", "device", "--help", check=0).stdout)

    def test_a_full_disk_is_noticed_before_the_measurement(self):
        small = self.dir / "small"
        small.mkdir()
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", small], capture_output=True).returncode != 0:
            self.skipTest("mounting a tmpfs needs root")
        self.addCleanup(subprocess.run, ["umount", small])
        with open(small / "filler", "wb", buffering=0) as filler:
            fill(filler)
        full = self.muster("bench", "device", "here", "--out", small, "--hardware", "cpu")
        self.assertEqual(full.returncode, 2, full.stderr)
        self.assertIn("No space left on device", full.stderr)
        self.assertEqual([path.name for path in small.iterdir()], ["filler"])


def fill(file):
    """Writes until the disk is full."""
    try:
        for _ in range(1000):
            file.write(b"x" * 1024)
    except OSError:
        pass


def is_bench_rank(pid):
    try:
        words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return words[0].endswith(b"/muster-trainer") and b"bench-device" in words


def planned_step(output):
    return float(re.search(r"summary: planned step ([\d.e-]+) s, measured", output).group(1))


def measured_speed(topology):
    return float(re.search(r"^bfloat16_speed: ([\d.]+)$", topology.read_text(), re.M).group(1))


if __name__ == "__main__":
    unittest.main()
