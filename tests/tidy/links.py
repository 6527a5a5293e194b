#!/usr/bin/env python3
"""Checks that the documentation points at things that exist.

Usage: tests/tidy/links.py [ROOT]      prints one line per finding; exits 1 when there is any
       tests/tidy/links.py --self-test checks that each rule finds what it should

Rules
- A relative link or picture in a Markdown file names a file or folder of the tree, and its anchor a
  heading.
- A page that any file names as `docs/….md` exists.
- A path in backticks on a page about the code (ARCHITECTURE.md, CONTRIBUTING.md, docs/internals,
  docs/howto, docs/decisions) exists if it begins with a folder of the tree.
- In docs/threats.md the last cell of each row with a threat names tests, `FILE below tests/: NAME,
  NAME`, all of which exist, or is "not defended".
"""
import pathlib
import re
import subprocess
import sys
import tempfile
import urllib.parse

# A changelog names files of its own time.
HISTORICAL = {"CHANGELOG.md"}
CODE_PAGES = ("ARCHITECTURE.md", "CONTRIBUTING.md", "docs/internals/", "docs/howto/", "docs/decisions/")
LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^()\s]+)\)")
PAGE_NAME = re.compile(r"(?<![\w/.-])docs/[\w/-]+\.md\b")
CODE_SPAN = re.compile(r"`([^`]+)`")
PATH = re.compile(r"[\w.+-]+(?:/[\w.+{},*-]+)+/?")
# The reader replaces NAME in `docs/runbooks/NAME.md`.
PLACEHOLDER = re.compile(r"/NAME\b")
TEXT_BYTES_MAX = 1 << 20
THREATS = "docs/threats.md"
TEST_SPAN = re.compile(r"([\w/.]+)(?:: (\w+(?:, \w+)*))?")


def files_of(root):
    """Returns tracked files and those that git does not ignore, relative to the root, in order."""
    listed = subprocess.run(["git", "-C", str(root), "ls-files", "--cached", "--others", "--exclude-standard"],
                            capture_output=True, text=True)
    if listed.returncode == 0:
        names = listed.stdout.splitlines()
    else:
        names = [str(path.relative_to(root)) for path in root.rglob("*")]
    return sorted(name for name in set(names) if (root / name).is_file())


def prose_of(text):
    """Returns the text with the lines of its code blocks emptied, so that line numbers stay the
    same.
    """
    lines, fenced = [], False
    for line in text.splitlines():
        if line.lstrip().startswith("```"):
            fenced = not fenced
            lines.append("")
        else:
            lines.append("" if fenced else line)
    return lines


def slug_of(heading):
    """Returns the anchor that GitHub gives a heading."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.strip()).replace("`", "").lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def anchors_of(text):
    anchors, seen = set(), {}
    for line in prose_of(text):
        heading = re.match(r"#{1,6}\s+(.*?)\s*#*$", line)
        if heading:
            slug = slug_of(heading.group(1))
            count = seen.get(slug, 0)
            seen[slug] = count + 1
            anchors.add(f"{slug}-{count}" if count else slug)
    return anchors


def alternatives_of(path):
    """Returns the names in `a/{b,c}.h`: one per alternative."""
    braces = re.search(r"\{([^{}]*)\}", path)
    if not braces:
        return [path]
    return [name for part in braces.group(1).split(",")
            for name in alternatives_of(path[:braces.start()] + part + path[braces.end():])]


def is_there(root, path):
    if "*" in path:
        return any(True for _ in root.glob(path))
    if (root / path).exists():
        return True
    # `folder/name` without a suffix stands for the header and its source.
    return any((root / f"{path}{suffix}").exists() for suffix in (".h", ".cc", ".cu", ".cuh"))


def link_findings(root, name, text, anchors):
    for number, line in enumerate(prose_of(text), 1):
        for target in LINK.findall(CODE_SPAN.sub("", line)):
            if re.match(r"[a-z][a-z0-9+.-]*:", target):
                continue
            file, _, anchor = urllib.parse.unquote(target).partition("#")
            path = (root / name).parent / file if file else root / name
            if not path.exists():
                yield f"{name}:{number}: link to {target}: no such file"
            elif anchor and path.suffix == ".md" and anchor not in anchors(path):
                yield f"{name}:{number}: link to {target}: {path.name} has no heading #{anchor}"


def path_findings(root, name, text):
    folders = {entry.name for entry in root.iterdir() if entry.is_dir()} - {"build"}
    for number, line in enumerate(prose_of(text), 1):
        for span in CODE_SPAN.findall(line):
            if not PATH.fullmatch(span) or PLACEHOLDER.search(span) or span.split("/")[0] not in folders:
                continue
            for path in alternatives_of(span):
                if not is_there(root, path.rstrip("/")):
                    yield f"{name}:{number}: `{path}`: no such file"


def test_findings(root, name, text):
    lines, has_tests = prose_of(text), False
    for number, line in enumerate(lines, 1):
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.startswith("|") or set(cells[-1]) <= set("-:"):
            continue
        if number == 1 or not lines[number - 2].startswith("|"):
            has_tests = cells[-1] == "tests"
            continue
        if not has_tests or cells[-1] == "not defended":
            continue
        spans = CODE_SPAN.findall(cells[-1])
        if not spans or not all(TEST_SPAN.fullmatch(span) for span in spans) or CODE_SPAN.sub("", cells[-1]).strip(", "):
            yield f"{name}:{number}: the last cell must be `FILE: NAME, NAME`, …, or: not defended"
            continue
        for file, tests in (TEST_SPAN.fullmatch(span).groups() for span in spans):
            path = root / "tests" / file
            source = path.read_text() if path.is_file() else ""
            for test in tests.split(", ") if tests else []:
                if not re.search(rf"TEST(?:_F|_P)?\(\w+,\s+{test}\)|^    def {test}\(", source, re.M):
                    yield f"{name}:{number}: tests/{file} has no test {test}"
            if not source or not tests and path.suffix == ".py" or not tests and "TEST" in source:
                yield f"{name}:{number}: tests/{file}: " + ("no test is named" if source else "no such file")


def findings_of(root):
    known = {}

    def anchors(path):
        return known.setdefault(path, anchors_of(path.read_text()))

    for name in files_of(root):
        if name in HISTORICAL or (root / name).stat().st_size > TEXT_BYTES_MAX:
            continue
        try:
            text = (root / name).read_text()
        except UnicodeDecodeError:
            continue
        if name.endswith(".md"):
            yield from link_findings(root, name, text, anchors)
        if name != "tests/tidy/links.py":
            for number, line in enumerate(text.splitlines(), 1):
                for page in PAGE_NAME.findall(line):
                    if not PLACEHOLDER.search(page) and not (root / page).exists():
                        yield f"{name}:{number}: {page}: no such page"
        if name.endswith(".md") and name.startswith(CODE_PAGES):
            yield from path_findings(root, name, text)
        if name == THREATS:
            yield from test_findings(root, name, text)


def self_test():
    files = {
        "README.md": "# Title\n\n[a](docs/a.md#the-end) [b](docs/a.md#nowhere) [c](docs/c.md) ![d](d.svg)\n"
                     "[e](#title) [f](#no) [g](https://example.com/x.md) `[h](h.md)`\n```\n[i](i.md)\n```\n",
        "docs/a.md": "# A\n\n## The `end`\n\n[up](../README.md)\n",
        "docs/howto/x.md": "`src/{one,two}.cc` `src/one` `src/missing.h` `other/place.h` `src/*.cc` `src/NAME.h`\n",
        "src/one.cc": "// docs/a.md has it, and docs/b.md\n",
        "docs/threats.md": "| who | is trusted |\n|---|---|\n| a | b |\n\n| threat | tests |\n|---|---|\n"
                           "| a | `e2e/t.py: test_a`, `unit/t.cc: One, Two`, `fuzz/x.cc` |\n| b | not defended |\n| c | `unit/t.cc: Three` |\n"
                           "| d | `e2e/t.py: test_a, test_b` |\n| e | `unit/gone.cc: One` |\n| f | soon |\n| g | `e2e/t.py` |\n",
        "tests/e2e/t.py": "class T:\n    def test_a(self):\n        pass\n",
        "tests/unit/t.cc": "TEST(Suite, One) {}\nTEST_F(Suite, Two) {}\n// Three\n",
        "tests/fuzz/x.cc": "int fuzz();\n",
    }
    expected = [
        "README.md:3: link to docs/a.md#nowhere: a.md has no heading #nowhere",
        "README.md:3: link to docs/c.md: no such file",
        "README.md:3: link to d.svg: no such file",
        "README.md:4: link to #no: README.md has no heading #no",
        "README.md:3: docs/c.md: no such page",
        "docs/howto/x.md:1: `src/two.cc`: no such file",
        "docs/howto/x.md:1: `src/missing.h`: no such file",
        "src/one.cc:1: docs/b.md: no such page",
        "docs/threats.md:9: tests/unit/t.cc has no test Three",
        "docs/threats.md:10: tests/e2e/t.py has no test test_b",
        "docs/threats.md:11: tests/unit/gone.cc has no test One",
        "docs/threats.md:11: tests/unit/gone.cc: no such file",
        "docs/threats.md:12: the last cell must be `FILE: NAME, NAME`, …, or: not defended",
        "docs/threats.md:13: tests/e2e/t.py: no test is named",
    ]
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, text in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        found = sorted(findings_of(root))
    if found != sorted(expected):
        print("self-test failed:", *(f"  found    {line}" for line in found),
              *(f"  expected {line}" for line in sorted(expected)), sep="\n")
        return 1
    return 0


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    findings = list(findings_of(root))
    print(*findings, sep="\n", end="\n" if findings else "")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
