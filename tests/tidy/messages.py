#!/usr/bin/env python3
"""Generates docs/troubleshooting.md from the table of messages, docs/troubleshooting.json.

Usage: tests/tidy/messages.py [ROOT]      prints one line per finding; exits 1 when there is any
       tests/tidy/messages.py --write     writes the page
       tests/tidy/messages.py --self-test checks that each rule finds what it should

The table: for each row an `id`, the `messages` of the programs, the `cause` and the `remedy`. In a
message, N, M, NN, X and Y stand for values, and … for any text. `test`, the file and the name of a
unit test, is for a row that no program reaches without data that cannot be in the repository.

Rules
- The page is the table's.
- The fixed text of each message is in the string literals of the sources.
- tests/e2e/test_messages.py has one test for each row, which makes a program print the row's
  messages, and no other test. A row with `test` names a unit test that expects the messages.
"""
import functools
import json
import pathlib
import re
import sys
import tempfile

TABLE = "docs/troubleshooting.json"
PAGE = "docs/troubleshooting.md"
TESTS = "tests/e2e/test_messages.py"
# The folders of the product's sources.
SOURCES = ("cli", "common", "coordinator", "daemon", "jobspec", "progress", "trainer_core", "worker")
SUFFIXES = {".cc", ".h", ".inc"}
PLACEHOLDER = re.compile(r"\b(?:NN|[NMXY])\b|…")
# A message is composed of literals. A shorter piece of text occurs in the sources by chance.
PIECE_MIN = 4
LITERAL = re.compile(r'//[^\n]*|"((?:\\.|[^"\\\n])*)"')
BETWEEN_PARTS = re.compile(r'"\s*\n?\s*"')

HEAD = """# Troubleshooting: messages, causes, what to do

Search this page for a part of the message. N, M, NN, X and Y stand for numbers and names, … for more text.
`tests/tidy/messages.py --write` makes this page from docs/troubleshooting.json; a test makes the programs print each of
the messages.
"""


def rows_of(table):
    return [row for section in table["sections"] for row in section["rows"]]


def page_of(table):
    """Returns the page's text."""
    lines = [HEAD]
    for section in table["sections"]:
        lines += [f"## {section['title']}", "", "| message | cause | what to do |", "|---|---|---|"]
        for row in section["rows"]:
            messages = ", ".join(f"`{message}`" for message in row["messages"])
            lines.append(f"| {messages} | {row['cause']} | {row['remedy']} |")
        lines.append("")
    return "\n".join(lines)


def pattern_of(message):
    """Returns the regular expression of a message's texts."""
    parts = PLACEHOLDER.split(message)
    return re.compile(".+?".join(re.escape(part) for part in parts), re.S)


def unescaped(literal):
    return re.sub(r"\\(.)", lambda m: {"n": "\n", "t": "\t", "r": "\r"}.get(m.group(1), m.group(1)), literal)


def literals_of(root):
    """Returns the string literals of the sources, one after another, with newlines between them."""
    found = []
    for folder in SOURCES:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in SUFFIXES:
                text = re.sub(r'(?<=")\s*\n\s*(?=")', "", path.read_text(errors="replace"))
                text = re.sub(r'(?<!\\)""(?=[^",)])', "", text)
                found += [unescaped(m.group(1)) for m in LITERAL.finditer(text) if m.group(1)]
    return "\n".join(found)


def uncovered(fixed, literals):
    """Returns the rest of a fixed text that is no series of pieces of the literals; "" if it is."""
    @functools.lru_cache(None)
    def rest(at):
        best = fixed[at:]
        for end in range(len(fixed), at, -1):
            if end - at < min(PIECE_MIN, len(fixed)) and fixed[at:end].strip():
                break
            if fixed[at:end] in literals:
                left = "" if end == len(fixed) else rest(end)
                best = min(best, left, key=len)
                if not best:
                    break
        return best
    return rest(0)


def test_names(text):
    return re.findall(r"^    def test_([a-z0-9_]+)", text, re.M)


def unit_test_findings(root, row):
    file, _, name = row["test"].partition(" ")
    text = (root / file).read_text() if (root / file).is_file() else ""
    body = re.search(rf"TEST(?:_F|_P)?\({re.escape(name.replace('.', ', '))}\).*?\n}}\n", text, re.S)
    for message in row["messages"]:
        longest = max(PLACEHOLDER.split(message), key=len).strip()
        if not body or longest not in body.group():
            yield f"{file}: no test {name} that expects \"{longest}\" of {row['id']}"


def findings(root):
    table = json.loads((root / TABLE).read_text())
    rows = rows_of(table)
    names = [row["id"] for row in rows]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield f"{TABLE}: the id {name} occurs more than once"
    page = root / PAGE
    if not page.is_file() or page.read_text() != page_of(table):
        yield f"{PAGE}: differs from {TABLE}; run tests/tidy/messages.py --write"
    literals = literals_of(root)
    for row in rows:
        for message in row["messages"]:
            for fixed in PLACEHOLDER.split(message):
                left = uncovered(fixed.strip("():;,/").rstrip(), literals)
                if left.strip():
                    yield f"{TABLE}: {row['id']}: no source has \"{left}\" of \"{message}\""
    tests = test_names((root / TESTS).read_text())
    for row in rows:
        if "test" in row:
            yield from unit_test_findings(root, row)
    names = [row["id"] for row in rows if "test" not in row]
    for name in names:
        if name not in tests:
            yield f"{TESTS}: no test_{name}, which makes a program print the messages of that row"
    for name in tests:
        if name not in names:
            yield f"{TESTS}: test_{name} has no row in {TABLE}"


def self_test():
    row = {"id": "gone", "messages": ["cannot open X: it is gone", "N files … are \"lost\""], "cause": "c", "remedy": "r"}
    source = 'StrCat("cannot open ",\n  path, ": it"\n  " is gone"); // "no literal of a comment"\nf("all files are \\"lost\\"");'
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)

        def found(change=None, text=source, page=None, test="    def test_gone(self):\n"):
            table = {"sections": [{"title": "T", "rows": [{**row, **(change or {})}]}]}
            for name, content in ((TABLE, json.dumps(table)), (TESTS, test), ("cli/a.cc", text),
                                  (PAGE, page_of(table) if page is None else page)):
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(content)
            return list(findings(root))

        assert found() == [], found()
        for problem, expected in ((found(page="old"), "differs from"), (found(test=""), "no test_gone"),
                                  (found(text='"cannot open "'), 'no source has " it is gone"'),
                                  (found({"messages": ["no literal of a comment"]}), "no source has"),
                                  (found(test="    def test_gone(self):\n    def test_more(self):\n"), "test_more has no row")):
            assert expected in "\n".join(problem), (problem, expected)
        unit = {"test": "cli/t.cc A.B", "messages": ["cannot open X"]}
        (root / "cli/t.cc").write_text('TEST(A, B) {\n  f("cannot open x");\n}\n')
        assert found(unit, test="") == [], found(unit, test="")
        (root / "cli/t.cc").write_text('TEST(A, B) {\n}\nTEST(A, C) {\n  f("cannot open x");\n}\n')
        assert "no test A.B that expects" in "\n".join(found(unit, test=""))
        assert pattern_of("N of the M files").search("there are 2 of the 3 files")
        assert not pattern_of("N of the M files").search("of the files")
        assert pattern_of("field \"X\" is … (NN)").search('field "a.b" is this (03)')
        assert page_of({"sections": []}) == HEAD


def main(arguments):
    root = pathlib.Path(__file__).resolve().parents[2]
    if arguments == ["--self-test"]:
        self_test()
        return 0
    if arguments == ["--write"]:
        (root / PAGE).write_text(page_of(json.loads((root / TABLE).read_text())))
        return 0
    if len(arguments) == 1 and not arguments[0].startswith("-"):
        root = pathlib.Path(arguments[0]).resolve()
    elif arguments:
        print(__doc__)
        return 2
    found = list(findings(root))
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
