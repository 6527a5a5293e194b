"""The bundle: an archive of the programs of this build, used in folders that have only a minimal
Debian. This machine unpacks it, because a minimal Debian has no zstd.
"""
import hashlib
import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import kube_tools
import userlands
from harness import BIN, SOURCE, STEP_LINE, MusterTest
from python_tools import python_or_skip

VERSION = subprocess.run([BIN / "muster", "version"], capture_output=True, text=True, check=True).stdout.split()[1]
NAME = f"muster-{VERSION}-linux-x86_64"
TRAIN = ("muster", "run", "base.yml", "model_name=llama2-tiny", "run_name=first", "steps=2", "--ranks", "2")


def make_bundle(out):
    return subprocess.run([SOURCE / "deploy/bundle.sh", "--bin", BIN, "--out", out, "--level", "1"], capture_output=True, text=True, timeout=300)


class Bundle(MusterTest):
    @classmethod
    def setUpClass(cls):
        for program in ("patchelf", "strip", "readelf", "gcc", "zstd"):
            if shutil.which(program) is None:
                raise unittest.SkipTest(f"no {program} here")
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="muster-bundle-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        made = make_bundle(cls.folder)
        if "no package has" in made.stderr:
            # in a build with Arrow's wheel
            raise unittest.SkipTest(f"libraries here are from no package: {made.stderr}")
        assert made.returncode == 0, made.stderr
        cls.archive = cls.folder / f"{NAME}.tar.zst"
        subprocess.run(["tar", "-C", cls.folder, "--zstd", "-xf", cls.archive], check=True, timeout=60)
        cls.home = cls.folder / NAME

    def installed_in(self, suite):
        """Returns a copy of a Debian with the bundle in /opt."""
        try:
            root = userlands.copy_of(userlands.userland(suite), self.dir / suite)
        except kube_tools.Missing as error:
            self.skipTest(str(error))
        subprocess.run(["tar", "-C", root / "opt", "--zstd", "-xf", self.archive], check=True, timeout=60)
        return root

    def run_in(self, root, *words, check=(0,), **env):
        result = userlands.run_in(root, *words, env={"PATH": f"/opt/{NAME}/bin:/usr/bin:/bin", **env}, timeout=150)
        self.assertIn(result.returncode, check, f"{words}\n{result.stdout}\n{result.stderr}")
        return result

    def trains_in(self, suite):
        root = self.installed_in(suite)
        before = {path for path in root.rglob("*") if not path.is_relative_to(root / "tmp")}
        output = self.run_in(root, *TRAIN).stdout
        self.assertEqual([step[0] for step in STEP_LINE.findall(output)], ["0", "1"])
        self.assertIn("did you mean muster run?", self.run_in(root, "muster", "rnu", check=(2,)).stderr)
        self.assertIn("127.0.0.1:7070", self.run_in(root, "muster", "list", check=(1,)).stderr)
        # Whether the clock is synchronized, and how much memory there is, depends on the machine.
        checks = {each["check"]: each for each in json.loads(self.run_in(root, "muster", "doctor", "--json", check=(0, 1)).stdout)["checks"]}
        self.assertIn("Debian GNU/Linux", checks["system"]["text"])
        self.assertIn("0 GPUs" if checks["GPUs"]["ok"] else "NVIDIA", checks["GPUs"]["text"].replace("no GPUs", "0 GPUs"))
        for name in ("cores", "memory test", "writing", "loopback", "clock", "cache"):
            self.assertTrue(checks[name]["ok"], checks[name])
        self.assertIn("rclone", checks["programs"]["text"])
        # The commands of other projects' scripts use the programs of their bundle.
        helped = userlands.run_in(root, f"/opt/{NAME}/share/muster/scripts/run_base_config_multinode.sh", "--help", timeout=60)
        self.assertNotIn("there is no", helped.stdout + helped.stderr)
        refused = self.run_in(root, "muster", "doctor", "--folder", "/none", check=(2,))
        self.assertIn("--folder /none: there is no such folder", refused.stderr)
        # Only the user's cache remains after the folder is removed.
        shutil.rmtree(root / "opt" / NAME)
        after = {path for path in root.rglob("*") if not path.is_relative_to(root / "tmp")}
        left = {str(path.relative_to(root)) for path in after - before}
        self.assertEqual({path for path in left if not path.startswith("root/.cache")}, set())

    def test_trains_on_an_empty_debian_12(self):
        self.trains_in("bookworm")

    def test_trains_on_an_empty_debian_13(self):
        self.trains_in("trixie")

    def test_programs_start_with_an_older_c_library(self):
        # The libraries use the functions of libmuster-compat.so, also to handle exceptions.
        root = self.installed_in("bookworm")
        self.assertEqual(len(STEP_LINE.findall(self.run_in(root, *TRAIN).stdout)), 2)
        # These commands catch exceptions of libraries.
        (root / "tmp/bad.yml").write_text("a: [1\n")
        refused = self.run_in(root, "muster", "plan", "bad.yml", check=(2,), LD_DEBUG="bindings", LD_DEBUG_OUTPUT="/tmp/bindings")
        self.assertIn("bad.yml", refused.stderr)
        bindings = "".join(path.read_text(errors="replace") for path in (root / "tmp").glob("bindings.*"))
        found = re.findall(r"libgcc_s\.so\.1 \[0\] to (\S*) \[0\]: normal symbol `_dl_find_object'", bindings)
        self.assertEqual([pathlib.Path(path).name for path in found], ["libmuster-compat.so"])
        self.assertIn("--ranks", self.run_in(root, "muster", "run", "base.yml", "--ranks", "many", check=(2,)).stderr)

    def test_no_file_needs_a_newer_c_library_than_documented(self):
        files = [path for folder in ("bin", "lib") for path in (self.home / folder).iterdir()]
        self.assertGreater(len(files), 50)
        for path in files:
            listed = subprocess.run(["readelf", "--wide", "-V", path], capture_output=True, encoding="utf-8", errors="replace", timeout=30).stdout
            for name in re.findall(r"Name: (GLIBC_\S+)  Flags: ", listed):
                numbers = re.fullmatch(r"GLIBC_2\.(\d+)(\.\d+)?", name)
                self.assertTrue(numbers, f"{path.name} needs {name}")
                self.assertLessEqual(int(numbers[1]), 34, f"{path.name} needs {name}")
        self.assertIn("glibc 2.34", (self.home / "README").read_text())

    def test_two_bundles_have_the_same_bits(self):
        again = self.dir / "again"
        again.mkdir()
        made = make_bundle(again)
        self.assertEqual(made.returncode, 0, made.stderr)
        digests = [hashlib.sha256(path.read_bytes()).hexdigest() for path in (self.archive, again / self.archive.name)]
        self.assertEqual(*digests)
        self.assertEqual((again / f"{self.archive.name}.sha256").read_text(), f"{digests[0]}  {self.archive.name}\n")

    def test_wrappers_presets_pages_and_licences_are_there(self):
        share = self.home / "share"
        env = {**self.env, "PATH": "/usr/bin:/bin", "HOME": str(self.dir)}
        refused = subprocess.run([share / "muster/slurm/launch_base_config.sub"], capture_output=True, text=True, env=env, cwd=self.dir, timeout=60)
        self.assertIn("not in a Slurm job", refused.stderr)
        shown = subprocess.run([self.home / "bin/muster", "config", "show", "base.yml", "model_name=llama2-7b"], capture_output=True, text=True, env=env, cwd=self.dir, timeout=60)
        self.assertEqual(shown.returncode, 0, shown.stderr)
        pages = {path.name for path in (share / "man/man1").iterdir()}
        self.assertLessEqual({"muster.1.gz", "muster-run.1.gz", "muster-slurm-submit.1.gz", "muster-coordinator.1.gz"}, pages)
        if shutil.which("man"):
            texts = {}
            for name in pages:
                shown = subprocess.run(["man", "--warnings", "-l", share / "man/man1" / name], capture_output=True, text=True, env={**env, "MANWIDTH": "100", "LC_ALL": "C"}, timeout=60)
                self.assertEqual(shown.stderr, "", name)
                texts[name] = shown.stdout
            self.assertRegex(texts["muster-checkpoint.1.gz"], r"muster-checkpoint - Save a checkpoint of a running job now")
            self.assertRegex(texts["muster-checkpoint.1.gz"], r"\n +muster checkpoint 7 --no-wait\n")
        completed = subprocess.run(["bash", "-c", f"source {share}/bash-completion/completions/muster && complete -p muster"], capture_output=True, text=True, timeout=30)
        self.assertIn("_muster", completed.stdout)
        licences = {path.name for path in (share / "muster/licenses").iterdir()}
        bill = (share / "muster/sbom.spdx.json").read_text()
        packages = set(re.findall(r"pkg:deb/[a-z]+/([^@]+)@", bill))
        self.assertNotIn("libc6", packages)
        self.assertIn("pkg:npm/preact@", bill)
        self.assertLessEqual({"nlohmann-json3-dev", "libstdc++6"}, packages)
        self.assertIn("apt-get source libdw1=", (share / "muster/licenses/SOURCES").read_text())
        self.assertTrue((share / "muster/licenses/common-licenses/LGPL-2.1").is_file())
        # NCCL must find the system's library of this name, which finds its drivers.
        self.assertEqual([path.name for path in self.home.glob("lib/libibverbs*")], [])
        self.assertLessEqual({name for name in packages if os.path.exists(f"/usr/share/doc/{name}/copyright")}, licences)

    def test_wheel_of_the_bundle_trains_and_leaves_nothing(self):
        if importlib.util.find_spec("ensurepip") is None:
            self.skipTest("no module ensurepip in this Python, which makes virtual environments: install python3-venv")
        env = {**self.env, "PYTHON": python_or_skip("grpc_tools")}
        made = subprocess.run([SOURCE / "deploy/wheel.sh", "--bundle", self.archive, "--out", self.dir], capture_output=True, text=True, env=env, timeout=300)
        self.assertEqual(made.returncode, 0, made.stderr)
        wheel = self.dir / f"muster_train-{VERSION}-py3-none-manylinux_2_34_x86_64.whl"
        home = self.dir / "venv"
        subprocess.run([sys.executable, "-m", "venv", home], check=True, timeout=120)
        before = sorted(home.rglob("*"))
        pip = [home / "bin/python", "-m", "pip", "--quiet", "--no-input", "--disable-pip-version-check"]
        subprocess.run([*pip, "install", "--no-deps", "--no-index", "--no-compile", wheel], check=True, timeout=120)
        env = {**self.env, "PATH": "/usr/bin:/bin", "HOME": str(self.dir)}
        trained = subprocess.run([home / "bin" / TRAIN[0], *TRAIN[1:]], capture_output=True, text=True, env=env, cwd=self.dir, timeout=150)
        self.assertEqual([step[0] for step in STEP_LINE.findall(trained.stdout)], ["0", "1"], trained.stdout + trained.stderr)
        for program in ("muster-coordinator", "muster-worker", "muster-trainer", "muster-text", "muster-serve"):
            helped = subprocess.run([home / "bin" / program, "--help"], capture_output=True, text=True, env=env, timeout=60)
            self.assertEqual(helped.returncode, 0, helped.stderr)
            self.assertIn("muster", helped.stdout)
        # Ranks report their progress without gRPC.
        code = "import muster.progress, sys; assert muster.progress.begin() is False; assert 'grpc' not in sys.modules"
        subprocess.run([home / "bin/python", "-B", "-c", code], check=True, env=env, timeout=60)
        subprocess.run([*pip, "uninstall", "--yes", "muster-train"], check=True, timeout=60)
        left = set(home.rglob("*")) - set(before)
        self.assertEqual({path for path in left if "__pycache__" not in path.parts}, set())

    def test_wheel_refuses_bad_input(self):
        script = SOURCE / "deploy/wheel.sh"
        for words, complaint in ((["--ouch"], "unknown argument '--ouch'"), (["--out", self.dir / "none"], "there is no such folder"),
                                 (["--bundle", self.dir / "none"], "there is no such file"), (["--pure", "--bin", BIN], "omit --bundle and --bin"),
                                 (["--bin"], "--bin needs a value")):
            refused = subprocess.run([script, *words], capture_output=True, text=True, timeout=60)
            self.assertEqual(refused.returncode, 2)
            self.assertIn(complaint, refused.stderr)

    def test_bad_input_is_refused(self):
        script = SOURCE / "deploy/bundle.sh"
        for words, complaint in ((["--level", "0"], "--level 0: a number from 1 to 19 is required"), (["--ouch"], "unknown argument '--ouch'"),
                                 (["--out", self.dir / "none"], "there is no such folder"), (["--bin", self.dir], "there is no program muster"),
                                 (["--cuda", self.dir], "no complete folder of deploy/install-cuda.sh")):
            refused = subprocess.run([script, *words], capture_output=True, text=True, timeout=60)
            self.assertEqual(refused.returncode, 2)
            self.assertIn(complaint, refused.stderr)
        self.assertEqual(list(self.dir.iterdir()), [])


if __name__ == "__main__":
    unittest.main()
