"""The image: collects its folder from the programs of this build, makes its last stages with
buildah, without a daemon, and runs the programs in it.

tests/image.sh tests the stages before.
"""
import json
import os
import pathlib
import shutil
import stat
import subprocess
import unittest

from harness import BIN, SOURCE, MusterTest

CONTAINERFILE = SOURCE / "deploy/image/Containerfile"
PROGRAMS = ("muster", "muster-coordinator", "muster-serve", "muster-text", "muster-trainer", "muster-worker")
USER = 64000


class Image(MusterTest):
    def setUp(self):
        for program in ("buildah", "patchelf", "strip"):
            if shutil.which(program) is None:
                self.skipTest(f"no {program} here")
        if os.geteuid() != 0:
            self.skipTest("an image's folder is root's to make")
        super().setUp()

    def try_to_collect(self, *cuda):
        root = self.dir / "built/rootfs"
        root.parent.mkdir(exist_ok=True)
        return root, subprocess.run([str(SOURCE / "deploy/image/collect.sh"), str(BIN), str(root), *map(str, cuda)], capture_output=True, text=True, timeout=120)

    def collect(self, *cuda):
        root, result = self.try_to_collect(*cuda)
        if "no package has" in result.stderr:
            # in a build with Arrow's wheel
            self.skipTest(f"libraries here are from no package: {result.stderr}")
        self.assertEqual(result.returncode, 0, result.stderr)
        return root

    def cuda(self, *listed):
        """Makes a folder as deploy/install-cuda.sh does, with stand-ins for libraries. `listed`:
        the files in the wheel's record.
        """
        folder = self.dir / "cuda"
        libraries = folder / "nvidia/cu13/lib"
        libraries.mkdir(parents=True)
        for name in ("libcublasLt.so.13", "libcudart.alt.so.13", "libnvrtc_stub.so.13", "libcublas_static.a"):
            (libraries / name).write_text(name)
        record = folder / "nvidia_cublas-13.1.0.3.dist-info/RECORD"
        record.parent.mkdir()
        record.write_text("".join(f"nvidia/cu13/lib/{name},sha256=x,5\n" for name in listed))
        return folder

    def test_gpu_libraries_are_installed_and_in_the_bill_of_materials(self):
        root = self.collect(self.cuda("libcublasLt.so.13"))
        libraries = root / "opt/muster/lib"
        self.assertEqual((libraries / "libcublasLt.so.13").read_text(), "libcublasLt.so.13")
        self.assertEqual([path.name for path in libraries.iterdir() if "cudart" in path.name or "stub" in path.name or path.suffix == ".a"], [])
        bill = json.loads((root / "opt/muster/share/muster/sbom.spdx.json").read_text())
        purls = [package["externalRefs"][0]["referenceLocator"] for package in bill["packages"] if package["name"] == "nvidia-cublas"]
        self.assertEqual(purls, ["pkg:pypi/nvidia-cublas@13.1.0.3"])

    def test_unknown_gpu_libraries_and_empty_folders_are_refused(self):
        self.collect()  # skips the test if libraries of the programs belong to no package
        shutil.rmtree(self.dir / "built")
        cuda = self.cuda()
        _, result = self.try_to_collect(cuda)
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("no package has " + str(cuda / "nvidia/cu13/lib/libcublasLt.so.13"), result.stderr)
        shutil.rmtree(self.dir / "built")
        (self.dir / "empty").mkdir()
        _, result = self.try_to_collect(self.dir / "empty")
        self.assertEqual(result.returncode, 2)
        self.assertIn("has no libraries", result.stderr)

    def test_nccl_profiler_is_at_its_documented_path_and_self_contained(self):
        root = self.collect()
        path = "/opt/muster/lib/libmuster-nccl-profiler.so"
        self.assertIn(f"NCCL_PROFILER_PLUGIN={path}", (SOURCE / "docs/kubernetes.md").read_text())
        plugin = root / path.lstrip("/")
        self.assertEqual(subprocess.run(["patchelf", "--print-rpath", str(plugin)], capture_output=True, text=True, check=True).stdout.strip(), "")
        # Opened as NCCL does, in a user's process.
        loaded = subprocess.run(["python3", "-c", "import ctypes, sys; ctypes.CDLL(sys.argv[1]).ncclProfiler_v4", str(plugin)], capture_output=True, text=True, timeout=20)
        self.assertEqual(loaded.returncode, 0, loaded.stderr)

    def buildah(self, *arguments, check=True):
        store = ("--storage-driver", "vfs", "--root", f"{self.dir}/storage", "--runroot", f"{self.dir}/run")
        return subprocess.run(["buildah", *store, *map(str, arguments)], capture_output=True, text=True, timeout=300, check=check,
                              env={**self.env, "BUILDAH_ISOLATION": "chroot"})

    def build(self, target):
        return self.buildah("build", "-f", CONTAINERFILE, "--target", target, "-t", f"muster:{target}", "--build-arg", "BASE=scratch",
                            "--build-context", f"build={self.dir}/built", "--timestamp", "0", SOURCE)

    def run_in(self, container, *command):
        return self.buildah("run", container, "--", *command, check=False)

    def test_image_contains_the_programs_and_only_what_they_need(self):
        root = self.collect()
        self.assertEqual(sorted(path.name for path in (root / "opt/muster/bin").iterdir()),
                         sorted([*PROGRAMS, *(["rclone"] if shutil.which("rclone") else [])]))
        files = [path for path in root.rglob("*") if path.is_file() and not path.is_symlink()]
        runnable = {str(path.relative_to(root)) for path in files if path.stat().st_mode & stat.S_IXUSR and "lib" not in path.parts[len(root.parts)]}
        outside = {name for name in runnable if not name.startswith("opt/muster/")}
        self.assertEqual(outside, set(), "no shell, no package manager")
        self.assertFalse([path for path in files if path.stat().st_mode & (stat.S_ISUID | stat.S_ISGID)])
        self.assertLess(sum(path.stat().st_size for path in files), 400 << 20)

    def test_the_bill_of_materials_names_each_librarys_package(self):
        root = self.collect()
        bill = json.loads((root / "opt/muster/share/muster/sbom.spdx.json").read_text())
        self.assertEqual(bill["spdxVersion"], "SPDX-2.3")
        names = {package["name"]: package["versionInfo"] for package in bill["packages"]}
        self.assertEqual(names["muster"], json.loads(self.muster("version", "--json", check=0).stdout)["version"])
        self.assertTrue({"libc6", "libstdc++6", "libsqlite3-0"} <= set(names), names)
        self.assertTrue(all(names.values()))
        system = dict(line.split("=", 1) for line in pathlib.Path("/etc/os-release").read_text().splitlines() if "=" in line)["ID"].strip('"')
        purls = [package["externalRefs"][0]["referenceLocator"] for package in bill["packages"]]
        self.assertIn(f"pkg:deb/{system}/libc6@{names['libc6']}", purls)
        ids = [package["SPDXID"] for package in bill["packages"]]
        self.assertEqual(len(ids), len(set(ids)))
        self.assertEqual(len(bill["relationships"]), len(ids))

    def test_both_variants_are_built_and_run_without_root(self):
        self.collect()
        # buildah 1.28 drops the cpu stage's equal image after the build of the cuda stage
        for target in ("cuda", "cpu"):
            self.build(target)
            config = json.loads(self.buildah("inspect", "--type", "image", f"muster:{target}").stdout)["OCIv1"]["config"]
            self.assertEqual(config["User"], f"{USER}:{USER}")
            self.assertEqual(config["Entrypoint"], ["/opt/muster/bin/muster"])
            self.assertEqual(config["Labels"]["muster.variant"], target)
            self.assertEqual(config["Labels"]["muster.sbom"], "/opt/muster/share/muster/sbom.spdx.json")
            self.assertEqual(config["Labels"]["org.opencontainers.image.version"], self.muster("version", check=0).stdout.split()[1])
            self.assertEqual("NVIDIA_VISIBLE_DEVICES=all" in config["Env"], target == "cuda")
        container = self.buildah("from", "--pull-never", "localhost/muster:cpu").stdout.strip()
        tried = self.run_in(container, "/opt/muster/bin/muster", "version")
        if "unshare" in tried.stderr or "operation not permitted" in tried.stderr:
            self.skipTest(f"no container can be run here: {tried.stderr}")
        self.assertEqual(tried.stdout, self.muster("version", check=0).stdout, tried.stderr)
        for program in PROGRAMS:
            self.assertEqual(self.run_in(container, f"/opt/muster/bin/{program}", "--help").returncode, 0, program)
        self.assertNotEqual(self.run_in(container, "/bin/sh", "-c", "true").returncode, 0)
        # The image alone provides the config, a rank and a checkpoint, and runs as its own user.
        job = self.run_in(container, "/opt/muster/bin/muster", "run", "/opt/muster/share/muster/configs/base.yml", "model_name=llama2-tiny",
                          "run_name=first", "steps=2", "dataset_type=synthetic", "per_device_batch_size=1", "max_target_length=32",
                          "base_output_directory=/var/lib/muster/out", "--ranks", "1")
        self.assertEqual(job.returncode, 0, job.stderr + job.stdout)
        self.assertIn("completed step: 1", job.stdout)
        made = pathlib.Path(self.buildah("mount", container).stdout.strip()) / "var/lib/muster/out/first"
        self.assertEqual(made.stat().st_uid, USER)

    def test_documents_name_the_stages(self):
        lines = CONTAINERFILE.read_text().splitlines()
        self.assertEqual([line for line in lines if line.startswith("FROM ")], ["FROM ${BASE} AS configured", "FROM configured AS build", "FROM scratch AS cpu", "FROM cpu AS cuda"])
        version = json.loads(self.muster("version", "--json", check=0).stdout)["version"]
        self.assertIn(f'org.opencontainers.image.version="{version}"', CONTAINERFILE.read_text())


if __name__ == "__main__":
    unittest.main()
