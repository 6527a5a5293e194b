#!/usr/bin/env python3
"""Writes the contents of an image or a bundle as SPDX 2.3: Muster, the distribution's packages that
own its libraries, and NVIDIA's wheels. Copies the licences of all of them.

Usage: deploy/sbom.py ROOT SHARE LIST     ROOT is the folder of all files; LIST has the path that
each library was copied from, one per line. Writes SHARE/sbom.spdx.json and SHARE/licenses.
"""
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

SOURCE = pathlib.Path(__file__).resolve().parents[1]
# Packages whose headers are compiled into the programs: a file of each.
HEADERS = ("/usr/include/nlohmann/json.hpp", "/usr/include/CLI/CLI.hpp", "/usr/include/xxhash.h", "/usr/include/boost/asio.hpp")
COMMON_LICENCES = pathlib.Path("/usr/share/common-licenses")


def muster_version():
    return re.search(r"project\(muster VERSION ([0-9.]+)", (SOURCE / "CMakeLists.txt").read_text()).group(1)


def distribution():
    """Returns "debian" or "ubuntu"."""
    return re.search(r'^ID="?([a-z]+)', pathlib.Path("/etc/os-release").read_text(), re.M).group(1)


def names_of(path):
    """Returns the paths by which a package may list the file: with a merged /usr, /lib is a link to
    /usr/lib.
    """
    real = os.path.realpath(path)
    return (real, re.sub("^/usr/", "/", real), path)


def owners_of(paths):
    """Returns {path: (package, version)} of the paths that a package has installed. Uses two
    queries, because each reads dpkg's whole database.
    """
    if not paths:
        return {}
    requested = sorted({name for path in paths for name in names_of(path)})
    # fails if any path belongs to no package
    found = subprocess.run(["dpkg-query", "-S", *requested], capture_output=True, text=True).stdout
    packages = {name: line.split(",")[0] for line, name in (line.rsplit(": ", 1) for line in found.splitlines() if ": " in line)}
    known = sorted(set(packages.values()))
    listed = subprocess.run(["dpkg-query", "-W", "-f", "${binary:Package} ${Version}\n", *known], capture_output=True, text=True, check=True).stdout if known else ""
    versions = dict(line.split() for line in listed.splitlines())
    owners = {path: next((packages[name] for name in names_of(path) if name in packages), None) for path in paths}
    return {path: (owner.split(":")[0], versions[owner]) for path, owner in owners.items() if owner}


def wheel_of(path):
    """Returns (name, version) of the wheel whose list of files has
    .../nvidia/PACKAGE/lib/libname.so; None if no wheel has it.
    """
    parts = pathlib.Path(path).parts
    if "nvidia" not in parts:
        return None
    folder = pathlib.Path(*parts[:parts.index("nvidia")])
    relative = str(pathlib.Path(path).relative_to(folder))
    for record in folder.glob("nvidia*.dist-info/RECORD"):
        if any(line.split(",")[0] == relative for line in record.read_text().splitlines()):
            name, version = record.parent.name.removesuffix(".dist-info").split("-", 1)
            return name.replace("_", "-").lower(), version  # the form of PyPI and of purls
    return None


def package(name, version, source, download="NOASSERTION"):
    text = re.sub(r"[^A-Za-z0-9.-]", "-", f"{source}-{name}")
    return {"SPDXID": f"SPDXRef-{text}", "name": name, "versionInfo": version, "downloadLocation": download, "filesAnalyzed": False,
            "licenseConcluded": "NOASSERTION", "licenseDeclared": "NOASSERTION", "copyrightText": "NOASSERTION",
            "externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": f"pkg:{source}/{name}@{version}"}]}


SOURCES = """The libraries of the distribution are unchanged, except that names of libraries, search paths and
required versions of the C library were edited in their headers of ELF. Their sources are those of
the distribution's packages:

"""


def copy_licences(owners, libraries, folder):
    """Copies the licences of packages and wheels to one folder for each of them."""
    for name in sorted({owner for owner, _ in owners.values()}):
        licence = pathlib.Path("/usr/share/doc", name, "copyright")
        if licence.is_file():  # some images of distributions have none
            (folder / name).mkdir(parents=True)
            shutil.copyfile(licence, folder / name / "copyright")
    texts = "".join(path.read_text(errors="replace") for path in folder.rglob("copyright"))
    for name in sorted(set(re.findall(r"common-licenses/([A-Za-z]+(?:-[0-9]+(?:\.[0-9]+)*)?)", texts))):
        if (COMMON_LICENCES / name).is_file():
            (folder / "common-licenses").mkdir(exist_ok=True)
            shutil.copyfile(COMMON_LICENCES / name, folder / "common-licenses" / name)
    sources = [f"apt-get source {name}={version}" for name, version in sorted(set(owners.values()))]
    (folder / "SOURCES").write_text(SOURCES + "\n".join(sources) + "\n")
    page = SOURCE / "coordinator/page/vendor"
    for licence in sorted(page.glob("LICENSE.*")):
        shutil.copyfile(licence, folder / licence.name)
    for library in libraries:
        parts = pathlib.Path(library).parts
        top = pathlib.Path(*parts[:parts.index("nvidia")])
        name = wheel_of(library)[0]
        found = top.glob(f"{name.replace('-', '_')}-*.dist-info/**/*")
        for licence in sorted(path for path in found if path.is_file() and path.name.lower().startswith("licen")):
            (folder / name).mkdir(parents=True, exist_ok=True)
            shutil.copyfile(licence, folder / name / licence.name)


def contents_hash(root):
    digest = hashlib.sha256()
    for path in sorted(p for p in root.rglob("*") if p.is_file()):
        digest.update(str(path.relative_to(root)).encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def main():
    root, share = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    libraries = pathlib.Path(sys.argv[3]).read_text().splitlines()
    packages, unknown = {}, []
    wheels = {library: wheel_of(library) for library in libraries}
    owners = owners_of([library for library in libraries if not wheels[library]])
    for library in libraries:
        if wheel := wheels[library]:
            packages["pypi", *wheel] = package(*wheel, "pypi")
        elif owner := owners.get(library):
            packages["deb", *owner] = package(*owner, f"deb/{distribution()}")
        else:
            unknown.append(library)
    if unknown:
        print(f"deploy/sbom.py: no package has {', '.join(unknown)}", file=sys.stderr)
        return 1
    owners |= owners_of([header for header in HEADERS if os.path.exists(header)])
    for owner in owners.values():
        packages["deb", *owner] = package(*owner, f"deb/{distribution()}")
    for item in json.loads((SOURCE / "coordinator/page/vendor/vendor.json").read_text())["libraries"]:
        packages["npm", item["package"], item["version"]] = package(item["package"], item["version"], "npm")
    copy_licences(owners, [library for library in libraries if wheels[library]], share / "licenses")
    own = package("muster", muster_version(), "generic")
    everything = [own, *(packages[key] for key in sorted(packages))]
    digest = contents_hash(root)
    made = int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))
    document = {
        "spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": f"muster-{muster_version()}",
        "documentNamespace": f"https://muster.invalid/sbom/{digest}",
        "creationInfo": {"created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(made)), "creators": ["Tool: muster-sbom"]},
        "packages": everything,
        "relationships": [{"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES", "relatedSpdxElement": own["SPDXID"]},
                          *({"spdxElementId": own["SPDXID"], "relationshipType": "DEPENDS_ON", "relatedSpdxElement": item["SPDXID"]}
                            for item in everything[1:])]}
    output = share / "sbom.spdx.json"
    output.write_text(json.dumps(document, indent=1) + "\n")
    print(f"{len(everything)} packages in {output.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
