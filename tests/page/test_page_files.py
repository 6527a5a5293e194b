"""The files of the page: vendored libraries, sizes, types, and constructs that must not occur."""
import gzip
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import unittest
import urllib.request

import api_schema
import fake_coordinator
import fleet_data

PAGE = pathlib.Path(__file__).resolve().parents[2] / "coordinator" / "page"
VENDOR = PAGE / "vendor"
COMPRESSED_BYTES_MAX = 300_000
LINES_MAX = 400
# Ways to parse a text as HTML or as a program, and to bypass the content security policy.
FORBIDDEN = re.compile(r"innerHTML|outerHTML|insertAdjacentHTML|dangerouslySetInnerHTML|document\.write|DOMParser|createContextualFragment|srcdoc|\beval\b|new Function\b|setTimeout\(\s*[\"'`]|cssText|setAttribute\(")
FOREIGN = re.compile(r"""(?:https?:)?//[a-z0-9.-]+\.[a-z]{2,}""")


def digest(data):
    return hashlib.sha256(data).hexdigest()


def modules():
    return sorted(PAGE.glob("js/**/*.js"))


class Files(unittest.TestCase):
    def test_vendored_files_are_those_of_their_packages(self):
        libraries = json.loads((VENDOR / "vendor.json").read_text())["libraries"]
        named = {"vendor.json"}
        for one in libraries:
            data = (VENDOR / one["file"]).read_bytes()
            self.assertEqual(digest(data), one["sha256"], one["file"])
            for original, replacement in one["replaced"]:
                self.assertEqual(data.count(replacement.encode()), 1)
                data = data.replace(replacement.encode(), original.encode())
            self.assertEqual(digest(data), one["sha256_in_package"], one["file"])
            self.assertIn(one["version"], one["file"])
            self.assertIn("Licen", (VENDOR / one["licence_file"]).read_text())
            named |= {one["file"], one["licence_file"]}
        self.assertEqual({path.name for path in VENDOR.iterdir()}, named)

    def test_page_is_small(self):
        loaded = [path for path in PAGE.rglob("*") if path.suffix in (".html", ".js", ".css", ".svg")]
        total = sum(len(gzip.compress(path.read_bytes(), 9)) for path in loaded)
        self.assertLess(total, COMPRESSED_BYTES_MAX)

    def test_all_modules_are_preloaded_and_reachable(self):
        index = (PAGE / "index.html").read_text()
        preloaded = set(re.findall(r'<link rel="modulepreload" href="([^"]+)">', index))
        self.assertEqual(preloaded | {"js/main.js"}, {str(path.relative_to(PAGE)) for path in PAGE.rglob("*.js")})
        reached, open_paths = set(), [PAGE / "js" / "main.js"]
        while open_paths:
            path = open_paths.pop()
            if path in reached:
                continue
            reached.add(path)
            open_paths += [(path.parent / name).resolve() for name in re.findall(r'from ?"(\.[^"]+)"', path.read_text())]
        self.assertEqual(reached, {path for path in PAGE.rglob("*.js")})

    def test_no_module_parses_texts_or_contacts_other_hosts(self):
        for path in modules():
            text = path.read_text()
            name = str(path.relative_to(PAGE))
            self.assertLessEqual(text.count("\n"), LINES_MAX, name)
            self.assertIsNone(FORBIDDEN.search(text), name)
            self.assertIsNone(FOREIGN.search(text), name)
            self.assertTrue(text.startswith("// "), f"{name} begins with a comment that states its purpose")

    def test_page_has_no_inline_script_or_style(self):
        index = (PAGE / "index.html").read_text()
        self.assertEqual(re.findall(r"<script(?![^>]*src=)|<style|\sstyle=|\son\w+=", index), [])
        for sheet in PAGE.glob("css/*.css"):
            self.assertIsNone(re.search(r"@import|url\(", sheet.read_text()), sheet.name)

    def test_types_are_consistent(self):
        compiler = os.environ.get("MUSTER_TSC") or shutil.which("tsc")
        if not compiler:
            raise unittest.SkipTest("no TypeScript: `npm install -g typescript`, or name its tsc in MUSTER_TSC")
        done = subprocess.run([compiler, "-p", str(pathlib.Path(__file__).with_name("tsconfig.json")), "--pretty", "false"], capture_output=True, text=True, check=False)
        found = [line for line in done.stdout.splitlines() if re.match(r"\S*coordinator/page/js/", line)]
        self.assertEqual(found, [])
        # The libraries have findings, which shows that the compiler has read the files.
        self.assertIn("coordinator/page/vendor/", done.stdout)

    def test_made_up_objects_follow_the_api(self):
        if not api_schema.DOCUMENT.exists():
            raise unittest.SkipTest(f"no {api_schema.DOCUMENT}")
        schema = api_schema.ApiSchema()
        coordinator = fake_coordinator.FakeCoordinator(fleet_data.FleetData())
        self.addCleanup(coordinator.stop)
        paths = {"session": "session", "fleet": "fleet", "fleet/history": "fleet/history", "nodes": "nodes", "nodes/{node}": "nodes/gpu-0011", "incidents": "incidents", "incidents/{incident}": "incidents/12", "jobs/{job}": "jobs/1",
                 "jobs/{job}/history": "jobs/1/history", "jobs/{job}/metrics": "jobs/1/metrics", "jobs/{job}/placement": "jobs/1/placement"}
        for path, address in paths.items():
            with self.subTest(path):
                with urllib.request.urlopen(f"{coordinator.url}api/v1/{address}", timeout=20) as answer:
                    value = json.load(answer)
                self.assertEqual(list(schema.problems(value, schema.of_answer(f"/api/v1/{path}"))), [])
        row = {"$ref": "#/components/schemas/JobRow"}
        self.assertEqual([problem for one in coordinator.data.rows.values() for problem in schema.problems(one, row)], [])
        self.assertEqual(list(schema.problems(coordinator.data.log_chunks(-1)[0], {"$ref": "#/components/schemas/LogChunk"})), [])
        self.assertNotEqual(list(schema.problems({"id": "7"}, row)), [])


if __name__ == "__main__":
    unittest.main()
