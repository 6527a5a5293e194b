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


def self_test():
    files = {
        "README.md": "# Title\n\n[a](docs/a.md#the-end) [b](docs/a.md#nowhere) [c](docs/c.md) ![d](d.svg)\n"
                     "[e](#title) [f](#no) [g](https://example.com/x.md) `[h](h.md)`\n```\n[i](i.md)\n```\n",
        "docs/a.md": "# A\n\n## The `end`\n\n[up](../README.md)\n",
        "docs/howto/x.md": "`src/{one,two}.cc` `src/one` `src/missing.h` `other/place.h` `src/*.cc` `src/NAME.h`\n",
        "src/one.cc": "// docs/a.md has it, and docs/b.md\n",
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
