"""Tests of tests/gpu/run.sh with a fake package: programs that only write a report, and a
compute-sanitizer that only exits. Tests of CMake's messages without CUDA.
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest

SCRIPT = pathlib.Path(os.environ["MUSTER_SOURCE_DIR"]) / "tests/gpu/run.sh"
LIBRARIES = {"device": "a GPU; backend: cuda, cuBLASLt, cuDNN", "cuBLASLt": "13.1.0, /lib/libcublasLt.so.13", "cuDNN": "9.19.0, /lib/libcudnn.so.9",
             "NCCL": "2.28.9, /lib/libnccl.so.2"}


def report(*tests, **properties):
    """Returns a report in GoogleTest's format."""
    return {"tests": len(tests), "failures": sum("failures" in test for test in tests), "disabled": 0, **properties,
            "testsuites": [{"name": "Suite", "tests": len(tests), "testsuite": list(tests)}]}


def test(name, result="COMPLETED", **more):
    return {"name": name, "file": "f.cc", "line": 1, "status": "RUN", "result": result, "timestamp": "", "time": "0s", "classname": "Suite", **more}


class GpuScript(unittest.TestCase):
    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="muster-gpu-script-"))
        self.addCleanup(shutil.rmtree, self.dir)
        (self.dir / "carried" / "lib").mkdir(parents=True)
        (self.dir / "carried" / "commit").write_text("c0ffee\n")
        (self.dir / "path").mkdir()  # hides the tools of this machine's CUDA toolkit
        for tool in ("bash", "cat", "dirname", "git", "grep", "mkdir", "mktemp", "rm", "sed", "sleep", "tail", "tee", "timeout"):
            (self.dir / "path" / tool).symlink_to(shutil.which(tool))
        # PATH may have a version manager's script, which needs other tools.
        (self.dir / "path/python3").symlink_to(sys.executable)
        self.program("gpu_ops_test", report(test("Adds"), test("Large", "SKIPPED", skipped=[{"message": "no room"}]), **LIBRARIES,
                                            notes="built-in kernels compute this\nand that\n"))
        self.program("gpu_model_test", report(test("Learns")))
        self.program("gpu_training_test", report(test("Fits", planned_bytes="100")))

    def executable(self, path, text):
        path.write_text("#!/bin/bash\n" + text)
        path.chmod(0o755)

    def program(self, name, output, status=0, dies=(), hangs=(), after=0):
        """Creates a program with the report's tests, which writes a report of those that its filter
        selects. It exits with `status` in a test of `dies`, sleeps in one of `hangs`, and exits
        with `after` after its report.
        """
        path = self.dir / "carried" / name
        path.write_text(f"#!{sys.executable}\nimport json, sys, time\nREPORT, STATUS, DIES, HANGS, AFTER = {output!r}, {status}, {list(dies)}, {list(hangs)}, {after}\n" + '''
if STATUS == 77:
    sys.exit(77)
flags = dict(word.lstrip("-").split("=", 1) for word in sys.argv[1:] if "=" in word)
if "--gtest_list_tests" in sys.argv:
    for suite in REPORT["testsuites"]:
        print(suite["name"] + ".")
        for test in suite["testsuite"]:
            print("  " + test["name"])
    sys.exit(0)
if "gtest_flagfile" not in flags:
    sys.exit(0)
chosen = open(flags["gtest_flagfile"]).read().strip().split("=", 1)[1].split(":")
for suite in REPORT["testsuites"]:
    suite["testsuite"] = [test for test in suite["testsuite"] if f"{suite['name']}.{test['name']}" in chosen]
    for test in suite["testsuite"]:
        name = f"{suite['name']}.{test['name']}"
        print(f"[ RUN      ] {name}", flush=True)
        if name in DIES:
            sys.exit(STATUS)
        if name in HANGS:
            time.sleep(60)
        print(f"[       OK ] {name} (1 ms)", flush=True)
json.dump(REPORT, open(flags["gtest_output"].removeprefix("json:"), "w"))
sys.exit(AFTER or (1 if any("failures" in test for suite in REPORT["testsuites"] for test in suite["testsuite"]) else 0))
''')
        path.chmod(0o755)

    def sanitizer(self, text):
        self.executable(self.dir / "path" / "compute-sanitizer", text)

    def run_script(self, *options, check=0):
        """Returns (lines of its output, results.json)."""
        with tarfile.open(self.dir / "carried.tar.xz", "w:xz") as packed:
            packed.add(self.dir / "carried", arcname=".")
        unpacked = self.dir / "unpacked"
        unpacked.mkdir(exist_ok=True)
        ended = subprocess.run([SCRIPT, "--carried", self.dir / "carried.tar.xz", "--out", self.dir / "out", *map(str, options)], capture_output=True,
                               text=True, timeout=100, env={**os.environ, "PATH": str(self.dir / "path"), "TMPDIR": str(unpacked)})
        self.assertEqual(ended.returncode, check, ended.stdout + ended.stderr)
        self.assertEqual(list(unpacked.iterdir()), [], "it leaves what it has unpacked")
        results = self.dir / "out" / "results.json"
        return ended.stdout.splitlines(), json.loads(results.read_text()) if results.exists() else None

    def test_counts_skipped_tests_separately(self):
        self.sanitizer('[ "$1" = --tool ] && echo "========= COMPUTE-SANITIZER"\n')
        output, results = self.run_script()
        self.assertEqual(output[-1], "6 passed, 0 failed, 1 skipped")
        self.assertEqual((results["passed"], results["failed"], results["skipped"]), (6, 0, 1))
        self.assertEqual(results["programs"]["gpu_ops_test"]["Suite"], {"Adds": "passed", "Large": "skipped"})
        self.assertEqual(results["compute-sanitizer"], {"memcheck": "passed", "racecheck": "passed", "initcheck": "passed"})
        self.assertEqual(results["measured"], {"Suite.Fits": {"planned_bytes": "100"}})
        # Few files, so that results are easy to copy from another machine.
        self.assertEqual(sorted(path.suffix for path in (self.dir / "out").iterdir()), [".json", ".jsonl"] + 6 * [".log"])
        self.assertEqual((results["commit"], results["device"]), ("c0ffee", LIBRARIES["device"]))
        self.assertEqual(results["notes"], ["built-in kernels compute this", "and that"])
        self.assertEqual(results["libraries"], {name: LIBRARIES[name] for name in ("cuBLASLt", "cuDNN", "NCCL")})

    def test_skips_a_missing_sanitizer(self):
        output, results = self.run_script()
        self.assertEqual(output[-1], "3 passed, 0 failed, 4 skipped")
        self.assertEqual(results["compute-sanitizer"]["memcheck"], "skipped: no compute-sanitizer in PATH")

    def test_a_missing_library_is_a_failure(self):
        self.program("gpu_ops_test", report(test("Adds"), **{**LIBRARIES, "cuDNN": ""}))
        output, _ = self.run_script(check=1)
        self.assertEqual(output[-1], "3 passed, 1 failed, 3 skipped")
        self.assertIn("not found or not used, and so not tested: cuDNN; install them", "\n".join(output))
        output, results = self.run_script("--own-kernels")
        self.assertEqual(output[-1], "3 passed, 0 failed, 3 skipped")
        self.assertEqual(results["libraries"]["cuDNN"], "")
        self.program("gpu_ops_test", report(test("Adds"), **{**LIBRARIES, "device": "a GPU; backend: cuda, built-in GEMMs"}))
        output, _ = self.run_script(check=1)
        self.assertIn("not found or not used, and so not tested: cuBLASLt, cuDNN; install them", "\n".join(output))

    def test_counts_failures_however_a_program_ends(self):
        self.program("gpu_ops_test", report(test("Adds", failures=[{"failure": "1 is not 2"}]), **LIBRARIES))
        self.program("gpu_model_test", report(test("Learns")), after=134)
        self.program("gpu_training_test", report(test("Fits")), status=139, dies=["Suite.Fits"])
        output, results = self.run_script(check=1)
        self.assertEqual(output[-1], "1 passed, 3 failed, 3 skipped")
        self.assertIn("FAILED gpu_ops_test Suite.Adds: 1 is not 2", output)
        self.assertIn("FAILED gpu_model_test at the end of Suite.Learns: the process ended with status 134 after its tests", output)
        self.assertTrue(any(line.startswith("FAILED gpu_training_test Suite.Fits: ended the process with status 139") for line in output), output)
        self.assertEqual(results["programs"]["gpu_ops_test"]["Suite"], {"Adds": "failed"})

    def test_a_crash_leaves_the_other_tests(self):
        names = [f"Test{i:02}" for i in range(40)]
        self.program("gpu_model_test", report(*map(test, names)), status=134, dies=["Suite.Test07", "Suite.Test08", "Suite.Test39"])
        output, results = self.run_script(check=1)
        self.assertEqual(output[-1], "39 passed, 3 failed, 4 skipped")
        outcomes = results["programs"]["gpu_model_test"]["Suite"]
        self.assertEqual(sorted(outcomes), names)
        self.assertEqual([name for name, what in outcomes.items() if what == "failed"], ["Test07", "Test08", "Test39"])

    def test_runs_last_failures_first(self):
        # failed.txt names a Losses.OfSlices/15.
        suite = {"name": "Shapes/Losses", "testsuite": [{**test(f"OfSlices/{i}"), "classname": "Losses"} for i in range(17)]}
        self.program("gpu_ops_test", {**report(test("Adds"), **LIBRARIES), "testsuites": [suite]})
        self.run_script()
        rows = [json.loads(line) for line in (self.dir / "out" / "tests.jsonl").read_text().splitlines()]
        self.assertEqual([row["test"] for row in rows if "test" in row][0], "Shapes/Losses.OfSlices/15")
        self.assertEqual(sum("test" in row for row in rows), 17 + 2)

    def test_sanitizer_findings_are_failures(self):
        self.sanitizer('echo "========= COMPUTE-SANITIZER"; [ "$2" != racecheck ] || { echo "========= Error: a race"; exit 1; }\n')
        output, _ = self.run_script(check=1)
        self.assertEqual(output[-1], "5 passed, 1 failed, 1 skipped")
        self.assertTrue(any(line.startswith("compute-sanitizer racecheck: failed: see ") for line in output), output)

    def test_the_time_is_bounded(self):
        self.sanitizer('echo "========= COMPUTE-SANITIZER"; [ "$2" != memcheck ] || echo "========= Invalid read"; [ "$2" = initcheck ] || sleep 60\n')
        output, results = self.run_script("--seconds", 12, check=1)
        # before its time was over
        self.assertRegex(results["compute-sanitizer"]["memcheck"], "^failed: see ")
        self.assertRegex(results["compute-sanitizer"]["racecheck"], r"^skipped: it was not over after 1\d s$")
        self.assertEqual(output[-1], "4 passed, 1 failed, 2 skipped")
        self.program("gpu_model_test", report(test("Learns"), test("Sleeps"), test("Waits")), hangs=["Suite.Sleeps"])
        began = time.monotonic()
        output, results = self.run_script("--seconds", 9, check=1)
        self.assertLess(time.monotonic() - began, 20)
        self.assertTrue(any(line.startswith("FAILED gpu_model_test Suite.Sleeps: was not over when the time was") for line in output), output)
        self.assertEqual(results["programs"]["gpu_model_test"]["Suite"]["Learns"], "passed")

    BENCH = 'echo "{\\"device\\": \\"NVIDIA H200\\"}"; echo "{\\"part\\": \\"$1\\", \\"row\\": 1}"\n'

    def rows(self, name):
        return [json.loads(line) for line in (self.dir / "out" / name).read_text().splitlines()]

    def test_retains_rows_however_a_part_ends(self):
        self.executable(self.dir / "carried" / "gpu_bench", self.BENCH + '[ "$1" != attention ] || sleep 60\n[ "$1" != products ]\n')
        with self.assertRaisesRegex(AssertionError, r"gpu_bench has not measured all of: products \(status 1\) attention \(status 124\) collectives \(no time is left\)"):
            self.run_script("--bench", "--seconds", 14)
        self.assertEqual([row["part"] for row in self.rows("bench.jsonl") if "part" in row], ["training", "products", "attention"])
        self.assertEqual(json.loads((self.dir / "out" / "machine.json").read_text())["commit"], "c0ffee")
        self.executable(self.dir / "carried" / "gpu_bench", 'exit 77\n')
        output, _ = self.run_script("--bench", check=77)
        self.assertEqual(output[-1], "no GPU here: nothing was measured")

    def test_all_runs_every_part(self):
        self.executable(self.dir / "carried" / "gpu_bench", self.BENCH)
        kernels = [("adam_kernel<float>(int)", 1), ("nvjet_a(int)", 2000), ("rope_kernel<Bf16>(Rope)", 500), ("adam_kernel<float>(int)", 1000)]
        csv = "".join(f'"{name}","ns","{ns},000"\n' for name, ns in kernels)
        self.executable(self.dir / "path" / "ncu", 'log=\n'
                        'while [ $# -gt 0 ]; do case $1 in --log-file) log=$2; shift ;; */gpu_bench) break ;; esac; shift; done\n'
                        f"cat > \"$log\" <<'END'\n==PROF== text\n\"Kernel Name\",\"Metric Unit\",\"Metric Value\"\n{csv}END\nexec \"$@\"\n")
        self.sanitizer('echo "========= COMPUTE-SANITIZER"\n')
        output, results = self.run_script("--all", "--seconds", 120)
        self.assertEqual(output[-1], "6 passed, 0 failed, 1 skipped")
        self.assertEqual([row["part"] for row in self.rows("bench.jsonl") if "part" in row], ["training", "products", "attention", "collectives"])
        self.assertIn("PyTorch: skipped: python3 has none with a GPU", output)
        table = json.loads((self.dir / "out" / "kernels.json").read_text())
        self.assertEqual([(row["kind"], row["calls"], round(row["ms"], 6)) for row in table["kernels"]], [("products", 1, 2.0), ("optimizer", 1, 1.0), ("RoPE", 1, 0.5)])
        self.assertEqual(table["device"], "NVIDIA H200")
        # 16,384 tokens of 24 heads of 64, in and out, in both directions of 12 layers, at 4.8 TB/s.
        self.assertAlmostEqual(table["kernels"][2]["floor_ms"], 2 * 12 * 16384 * 2 * 12 * 64 * 4 / 4.8e9)
        self.assertIn("3.50 ms of kernels in a step, 3 calls", "\n".join(output))

    def test_reports_an_incomplete_package(self):
        (self.dir / "carried" / "gpu_ops_test").unlink()
        with self.assertRaisesRegex(AssertionError, "carried.tar.xz has no gpu_ops_test: make it with --pack"):
            self.run_script()

    def test_without_a_gpu_exits_with_77(self):
        self.program("gpu_ops_test", report(), status=77)
        output, results = self.run_script(check=77)
        self.assertEqual(output[-1], "no GPU here: nothing was tested")
        self.assertIsNone(results)


class CudaOption(unittest.TestCase):
    """CMake's messages about MUSTER_CUDA on a machine without a CUDA toolkit."""

    def configure(self, *options):
        if pathlib.Path("/usr/local/cuda/bin/nvcc").exists():
            self.skipTest("this machine has CUDA in /usr/local/cuda")
        folder = pathlib.Path(tempfile.mkdtemp(prefix="muster-cuda-option-"))
        self.addCleanup(shutil.rmtree, folder)
        tools = folder / "path"  # hides the machine's nvcc
        tools.mkdir()
        for tool in ("make", "cc", "uname"):
            (tools / tool).symlink_to(shutil.which(tool))
        (folder / "CMakeLists.txt").write_text("cmake_minimum_required(VERSION 3.22)\nproject(option NONE)\n"
                                               f"include({SCRIPT.parents[2]}/cmake/MusterCuda.cmake)\nmessage(STATUS \"continues\")\n")
        environment = {name: value for name, value in os.environ.items() if name != "MUSTER_CUDA_ROOT"}
        ended = subprocess.run([shutil.which("cmake"), "-G", "Unix Makefiles", "-S", folder, "-B", folder / "build", *options], capture_output=True,
                               text=True, timeout=100, env={**environment, "PATH": str(tools)})
        return ended.returncode, " ".join((ended.stdout + ended.stderr).split())

    def test_off_explains_how_to_enable_it(self):
        status, output = self.configure()
        self.assertEqual(status, 0, output)
        self.assertIn("-- CUDA: off, trainings compute on CPUs; -DMUSTER_CUDA=ON builds the GPU backend", output)
        self.assertIn("-- continues", output)

    def test_on_without_a_toolkit_is_an_error(self):
        status, output = self.configure("-DMUSTER_CUDA=ON", "-DMUSTER_CUDA_ROOT=")
        self.assertEqual(status, 1, output)
        self.assertIn("MUSTER_CUDA=ON, but there is no nvcc in PATH or in /usr/local/cuda/bin: run deploy/install-cuda.sh FOLDER and configure with "
                      "-DMUSTER_CUDA_ROOT=FOLDER, or leave MUSTER_CUDA off", output)
        status, output = self.configure("-DMUSTER_CUDA=ON", "-DMUSTER_CUDA_ROOT=/nowhere")
        self.assertEqual(status, 1, output)
        self.assertIn("there is no nvcc in MUSTER_CUDA_ROOT=/nowhere: run deploy/install-cuda.sh", output)


if __name__ == "__main__":
    unittest.main()
