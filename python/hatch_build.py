"""Adds the parts of the wheel that are not in this folder.

- The version, from the project's CMakeLists.txt.
- `muster/v1`, the messages of the API, which grpcio-tools generates from proto/.
- `muster/progress.py`, which is progress/muster_progress.py.
- `muster/_bundle`, the folder of an unpacked bundle that MUSTER_BUNDLE names, and console commands
  for its programs. Without MUSTER_BUNDLE the wheel has the Python package alone, for any platform;
  it then uses the `muster` of the PATH.

deploy/wheel.sh calls it.
"""
import os
import pathlib
import re
import shutil
import tempfile
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

SOURCE = pathlib.Path(__file__).resolve().parent.parent
API = "muster/v1/muster.proto"
# The oldest C library with which the bundle's programs run; see deploy/bundle.sh.
PLATFORM_TAG = "py3-none-manylinux_2_34_x86_64"
PROGRAMS = ("muster", "muster-coordinator", "muster-worker", "muster-trainer", "muster-text", "muster-serve")
# Not needed beside the Python package.
OMITTED = ("README", "share/muster/progress/muster_progress.py")


def bundle() -> str:
    return os.environ.get("MUSTER_BUNDLE", "")


class CustomMetadataHook(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        found = re.search(r"^project\(muster VERSION ([0-9.]+)", (SOURCE / "CMakeLists.txt").read_text(encoding="utf-8"), re.M)
        if found is None:
            raise ValueError(f"{SOURCE}/CMakeLists.txt has no line project(muster VERSION …)")
        metadata["version"] = found[1]
        if bundle():
            metadata["scripts"] = {name: f"muster._programs:{name.replace('-', '_')}" for name in PROGRAMS}


class CustomBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        from grpc_tools import protoc

        self._generated = pathlib.Path(tempfile.mkdtemp(prefix="muster-wheel-"))
        words = ["protoc", f"-I{SOURCE / 'proto'}", f"--python_out={self._generated}", f"--pyi_out={self._generated}", API]
        if protoc.main(words) != 0:
            raise ValueError(f"protoc could not translate proto/{API}")
        folder = self._generated / "muster" / "v1"
        (folder / "__init__.py").write_text("")
        files = build_data["force_include"]
        for path in sorted(folder.iterdir()):
            files[str(path)] = f"muster/v1/{path.name}"
        files[str(SOURCE / "progress" / "muster_progress.py")] = "muster/progress.py"
        files[str(SOURCE / "LICENSE")] = "muster/LICENSE"
        if bundle():
            build_data["tag"] = PLATFORM_TAG
            build_data["pure_python"] = False
            self._add_bundle(pathlib.Path(bundle()), files)

    @staticmethod
    def _add_bundle(home: pathlib.Path, files: dict[str, str]) -> None:
        missing = [name for name in PROGRAMS if not (home / "bin" / name).is_file()]
        if missing:
            raise ValueError(f"MUSTER_BUNDLE={home}: it has no bin/{missing[0]}; the folder of an unpacked bundle is required")
        for path in sorted(home.rglob("*")):
            name = str(path.relative_to(home))
            if path.is_file() and name not in OMITTED:
                files[str(path)] = f"muster/_bundle/{name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        shutil.rmtree(self._generated, ignore_errors=True)
