"""tests/gpu/run.sh on what --pack would have carried: programs that only write a report, and a compute-sanitizer that only ends. And what cmake says where
there is no CUDA."""
import json
import os
import pathlib
import shutil
import subprocess
import tarfile
import tempfile
import unittest

SCRIPT = pathlib.Path(os.environ["MUSTER_SOURCE_DIR"]) / "tests/gpu/run.sh"
LIBRARIES = {"device": "a GPU; backend: cuda, cuBLASLt, cuDNN", "cuBLASLt": "13.1.0, /lib/libcublasLt.so.13", "cuDNN": "9.19.0, /lib/libcudnn.so.9",
             "NCCL": "2.28.9, /lib/libnccl.so.2"}


def report(*tests, **properties):
    """As GoogleTest writes it."""
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
        (self.dir / "path").mkdir()  # without what a toolkit of this machine's may have
        for tool in ("bash", "cat", "dirname", "git", "grep", "mkdir", "mktemp", "python3", "rm", "sed", "sleep", "tail", "timeout", "tr"):
            (self.dir / "path" / tool).symlink_to(shutil.which(tool))
        self.program("gpu_ops_test", report(test("Adds"), test("Large", "SKIPPED", skipped=[{"message": "no room"}]), **LIBRARIES,
                                            notes="own kernels compute this\nand that\n"))
        self.program("gpu_model_test", report(test("Learns")))
        self.program("gpu_training_test", report(test("Fits", planned_bytes="100")))

    def executable(self, path, text):
        path.write_text("#!/bin/bash\n" + text)
        path.chmod(0o755)

    def program(self, name, said, status=0, first=""):
        """One that writes this report and ends with the status; without a report it only ends."""
        write = "" if said is None else f"cat > \"${{1#--gtest_output=json:}}\" <<'END'\n{json.dumps(said)}\nEND\n"
        self.executable(self.dir / "carried" / name, f"{first}\n[[ $1 == --gtest_output=json:* ]] || exit 0\n{write}exit {status}\n")

    def sanitizer(self, text):
        self.executable(self.dir / "path" / "compute-sanitizer", text)

    def run_script(self, *options, check=0):
        """(the lines that it says, results.json)"""
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

    def test_counts_what_was_skipped_apart(self):
        self.sanitizer('[ "$1" = --tool ] && echo "========= COMPUTE-SANITIZER"\n')
        said, results = self.run_script()
        self.assertEqual(said[-1], "6 passed, 0 failed, 1 skipped")
        self.assertEqual((results["passed"], results["failed"], results["skipped"]), (6, 0, 1))
        self.assertEqual(results["programs"]["gpu_ops_test"]["Suite"], {"Adds": "passed", "Large": "skipped"})
        self.assertEqual(results["compute-sanitizer"], {"memcheck": "passed", "racecheck": "passed", "initcheck": "passed"})
        self.assertEqual(results["measured"], {"Suite.Fits": {"planned_bytes": "100"}})
        # A lent machine sends few files back.
        self.assertEqual(sorted(path.suffix for path in (self.dir / "out").iterdir()), [".json"] + 6 * [".log"])
        self.assertEqual((results["commit"], results["device"]), ("c0ffee", LIBRARIES["device"]))
        self.assertEqual(results["notes"], ["own kernels compute this", "and that"])
        self.assertEqual(results["libraries"], {name: LIBRARIES[name] for name in ("cuBLASLt", "cuDNN", "NCCL")})

    def test_a_machine_without_a_sanitizer_has_skipped_it(self):
        said, results = self.run_script()
        self.assertEqual(said[-1], "3 passed, 0 failed, 4 skipped")
        self.assertEqual(results["compute-sanitizer"]["memcheck"], "skipped: no compute-sanitizer in PATH")

    def test_a_library_that_is_missing_is_a_failure(self):
        self.program("gpu_ops_test", report(test("Adds"), **{**LIBRARIES, "cuDNN": ""}))
        said, _ = self.run_script(check=1)
        self.assertEqual(said[-1], "3 passed, 1 failed, 3 skipped")
        self.assertIn("not found or not used, and so not tested: cuDNN; install them", "\n".join(said))
        said, results = self.run_script("--own-kernels")
        self.assertEqual(said[-1], "3 passed, 0 failed, 3 skipped")
        self.assertEqual(results["libraries"]["cuDNN"], "")
        self.program("gpu_ops_test", report(test("Adds"), **{**LIBRARIES, "device": "a GPU; backend: cuda, own products"}))
        said, _ = self.run_script(check=1)
        self.assertIn("not found or not used, and so not tested: cuBLASLt, cuDNN; install them", "\n".join(said))

    def test_failures_are_counted_however_a_program_ends(self):
        self.program("gpu_ops_test", report(test("Adds", failures=[{"failure": "1 is not 2"}]), **LIBRARIES), status=1)
        self.program("gpu_model_test", report(test("Learns")), status=134)  # after its tests
        self.program("gpu_training_test", None, status=139)
        said, results = self.run_script(check=1)
        self.assertEqual(said[-1], "1 passed, 3 failed, 3 skipped")
        self.assertIn("gpu_model_test ended with status 134, which no test has counted", said)
        self.assertIn("gpu_training_test ended with status 139 before its tests were over", said)
        self.assertEqual(results["programs"]["gpu_ops_test"]["Suite"], {"Adds": "failed"})

    def test_what_ends_a_program_leaves_its_other_tests(self):
        self.program("gpu_model_test", report(test("Learns")), first='[[ $2 == *Suite.Dies* ]] || {\n'
                     'printf "[ RUN      ] Suite.Lives\n[       OK ] Suite.Lives (1 ms)\n[ RUN      ] Suite.Dies\n"; exit 134; }')
        said, results = self.run_script(check=1)
        self.assertEqual(said[-1], "4 passed, 1 failed, 4 skipped")
        self.assertEqual(results["programs"]["gpu_model_test"]["Suite"], {"Learns": "passed", "Lives": "passed", "Dies": "failed"})

    def test_what_the_sanitizer_finds_is_a_failure(self):
        self.sanitizer('echo "========= COMPUTE-SANITIZER"; [ "$2" != racecheck ] || { echo "========= Error: a race"; exit 1; }\n')
        said, _ = self.run_script(check=1)
        self.assertEqual(said[-1], "5 passed, 1 failed, 1 skipped")
        self.assertTrue(any(line.startswith("compute-sanitizer racecheck: failed: see ") for line in said), said)

    def test_the_time_is_bounded(self):
        self.sanitizer('echo "========= COMPUTE-SANITIZER"; [ "$2" != memcheck ] || echo "========= Invalid read"; [ "$2" = initcheck ] || sleep 60\n')
        said, results = self.run_script("--seconds", 32, check=1)
        self.assertRegex(results["compute-sanitizer"]["memcheck"], "^failed: see ")  # before its time was over
        self.assertRegex(results["compute-sanitizer"]["racecheck"], r"^skipped: it was not over after 1\d s$")
        self.assertEqual(said[-1], "4 passed, 1 failed, 2 skipped")
        self.program("gpu_model_test", report(test("Learns")), first="sleep 60")
        said, _ = self.run_script("--seconds", 6, check=1)
        self.assertTrue(any(line.startswith("gpu_model_test was not over after ") for line in said), said)
        self.assertEqual(said[-1], "2 passed, 1 failed, 4 skipped")

    def test_a_part_that_is_not_measured_takes_nothing_from_the_others(self):
        self.executable(self.dir / "carried" / "gpu_bench", 'echo "{\\"device\\": \\"a GPU\\", \\"$1\\": [1]}"\n[ "$1" != attention ]\n')
        with self.assertRaisesRegex(AssertionError, r"gpu_bench has not measured: attention \(status 1\)"):
            self.run_script("--bench")
        bench = json.loads((self.dir / "out" / "bench.json").read_text())
        self.assertEqual({name: bench.get(name) for name in ("device", "commit", "products", "attention", "training", "collectives")},
                         {"device": "a GPU", "commit": "c0ffee", "products": [1], "attention": None, "training": [1], "collectives": [1]})
        self.assertEqual([path.name for path in (self.dir / "out").iterdir()], ["bench.json"])
        self.executable(self.dir / "carried" / "gpu_bench", 'exit 77\n')
        said, _ = self.run_script("--bench", check=77)
        self.assertEqual(said, ["no GPU here: nothing was measured"])

    def test_what_was_not_packed_is_said(self):
        (self.dir / "carried" / "gpu_ops_test").unlink()
        with self.assertRaisesRegex(AssertionError, "carried.tar.xz has no gpu_ops_test: make it with --pack"):
            self.run_script()

    def test_without_a_gpu_nothing_is_tested(self):
        self.program("gpu_ops_test", None, status=77)
        said, results = self.run_script(check=77)
        self.assertEqual(said[-1], "no GPU here: nothing was tested")
        self.assertIsNone(results)


class CudaOption(unittest.TestCase):
    """What cmake says of MUSTER_CUDA on a machine without a toolkit."""

    def configure(self, *options):
        if pathlib.Path("/usr/local/cuda/bin/nvcc").exists():
            self.skipTest("this machine has CUDA in /usr/local/cuda")
        folder = pathlib.Path(tempfile.mkdtemp(prefix="muster-cuda-option-"))
        self.addCleanup(shutil.rmtree, folder)
        tools = folder / "path"  # without whatever nvcc the machine has
        tools.mkdir()
        for tool in ("make", "cc", "uname"):
            (tools / tool).symlink_to(shutil.which(tool))
        (folder / "CMakeLists.txt").write_text("cmake_minimum_required(VERSION 3.22)\nproject(option NONE)\n"
                                               f"include({SCRIPT.parents[2]}/cmake/MusterCuda.cmake)\nmessage(STATUS \"goes on\")\n")
        environment = {name: value for name, value in os.environ.items() if name != "MUSTER_CUDA_ROOT"}
        ended = subprocess.run([shutil.which("cmake"), "-G", "Unix Makefiles", "-S", folder, "-B", folder / "build", *options], capture_output=True,
                               text=True, timeout=100, env={**environment, "PATH": str(tools)})
        return ended.returncode, " ".join((ended.stdout + ended.stderr).split())

    def test_off_says_how_to_turn_it_on(self):
        status, said = self.configure()
        self.assertEqual(status, 0, said)
        self.assertIn("-- CUDA: off, trainings compute on CPUs; -DMUSTER_CUDA=ON builds the GPU backend", said)
        self.assertIn("-- goes on", said)

    def test_on_without_a_toolkit_is_an_error(self):
        status, said = self.configure("-DMUSTER_CUDA=ON", "-DMUSTER_CUDA_ROOT=")
        self.assertEqual(status, 1, said)
        self.assertIn("MUSTER_CUDA=ON, but there is no nvcc in PATH or in /usr/local/cuda/bin: run deploy/install-cuda.sh FOLDER and configure with "
                      "-DMUSTER_CUDA_ROOT=FOLDER, or leave MUSTER_CUDA off", said)
        status, said = self.configure("-DMUSTER_CUDA=ON", "-DMUSTER_CUDA_ROOT=/nowhere")
        self.assertEqual(status, 1, said)
        self.assertIn("there is no nvcc in MUSTER_CUDA_ROOT=/nowhere: run deploy/install-cuda.sh", said)


if __name__ == "__main__":
    unittest.main()
