#!/usr/bin/env python3
"""Writes helm/muster/README.md from the comments in values.yaml.

Usage: helm/make_readme.py           writes it
       helm/make_readme.py --check   exit 1 when it differs from values.yaml
"""
import pathlib
import re
import sys

CHART = pathlib.Path(__file__).resolve().parent / "muster"
LINE = re.compile(r"^( *)([A-Za-z][A-Za-z0-9]*):(?: (.*))?$")
HEAD = """# The chart's values

Made from `values.yaml` by `helm/make_readme.py`. How to install it, and what it sets up: `docs/kubernetes.md`.

| value | default | what it does |
|---|---|---|
"""


def rows(text):
    """Returns (key, default or None for a group, comment) of each value, in the file's order."""
    path, comment = [], []
    for line in text.split("\n"):
        stripped = line.strip()
        if not stripped:
            comment = []
        elif stripped.startswith("#"):
            comment.append(stripped.lstrip("# "))
        else:
            match = LINE.match(line)
            if match is None:
                raise ValueError(f"values.yaml: what is '{line}'?")
            depth = len(match.group(1)) // 2
            path = path[:depth] + [match.group(2)]
            yield ".".join(path), match.group(3), " ".join(comment)
            comment = []


def readme():
    table = ""
    for key, default, comment in rows((CHART / "values.yaml").read_text()):
        if default is None and not comment:
            continue
        shown = "" if default is None else f"`{default}`"
        table += f"| `{key}` | {shown} | {comment.replace('|', chr(92) + '|')} |\n"
    return HEAD + table


def main():
    path = CHART / "README.md"
    if sys.argv[1:] == ["--check"]:
        if path.read_text() == readme():
            return 0
        print(f"{path.name} differs from values.yaml: run helm/make_readme.py")
        return 1
    path.write_text(readme())
    return 0


if __name__ == "__main__":
    sys.exit(main())
