#!/usr/bin/env python3
"""Checks what compilers and formatters cannot: include arrows, file sizes, banned calls, leftovers, comments.

Usage: tests/tidy/tidy.py [ROOT]          prints one line per finding; exit 1 when there is any
       tests/tidy/tidy.py --commits A..B  checks the subjects of the commits in the range, in the current repository
       tests/tidy/tidy.py --self-test     checks that each rule finds its violation and nothing else
"""
import ast
import io
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import tokenize

LINES_MAX = 400
SOURCE_SUFFIXES = {".h", ".cc", ".inc", ".cu", ".cuh"}
# Files whose comments begin with #. In Python, docstrings are comments, too.
HASH_SUFFIXES = {".py", ".sh", ".sub", ".cmake", ".yml", ".yaml"}
HASH_NAMES = {"CMakeLists.txt", "Containerfile"}
# Scenarios are scripts in the language of tests/scenarios.
HASH_FOLDERS = ("tests/scenarios/coordinator/",)

# The parts of the trainer that its ranks are built from.
TRAINER_PARTS = [f"trainer_core/{part}/" for part in ("base", "checkpoint", "comm", "data", "model", "ops", "optim", "parallel")]
# The floors of the coordinator's core, from the bottom one, and the values that each of them may read.
CORE_FLOORS = ["records", "blame", "recovery", "incident", "accounting", "queue", "fleet", "placement", "hang", "liveness", "attempt"]
CORE_VALUES = [f"coordinator/core/{value}.h" for value in ("event", "action", "core_options")]
# The folders that the files of a folder may include: dependencies go one way. The longest prefix that matches
# a file decides; `tests/` and `bench/` may include anything.
ARROWS = {
    "common/": ["common/"],
    "progress/": ["progress/"],
    "daemon/": ["common/", "daemon/"],
    "daemon/evidence_messages.": ["common/", "daemon/", "muster/v1/"],
    "daemon/gpu_messages.": ["common/", "daemon/", "muster/v1/"],
    "daemon/job_spec_messages.": ["common/", "daemon/", "muster/v1/"],
    # The core, from the bottom floor to the top one (coordinator/core/core.h).
    **{f"coordinator/core/{folder}/": ["common/", *CORE_VALUES, *(f"coordinator/core/{lower}/" for lower in CORE_FLOORS[:floor + 1])]
       for floor, folder in enumerate(CORE_FLOORS)},
    "coordinator/core/records/": ["common/", "coordinator/core/records/"],
    "coordinator/core/event.": ["common/", "coordinator/core/records/"],
    "coordinator/core/action.": ["common/", "coordinator/core/records/", "coordinator/core/event.h"],
    "coordinator/core/core_options.": ["common/", "coordinator/core/hang/hang_budgets.h", "coordinator/core/queue/input_limits.h"],
    "coordinator/core/durable_state.": ["common/", "coordinator/core/records/"],
    "coordinator/core/": ["common/", "coordinator/core/"],
    "coordinator/": ["common/", "daemon/", "coordinator/", "muster/v1/"],
    "worker/core/": ["common/", "worker/core/"],
    "worker/stacks/": ["common/", "worker/stacks/"],
    "worker/": ["common/", "daemon/", "worker/", "muster/v1/"],
    "trainer_core/base/": ["common/", "trainer_core/base/"],
    "trainer_core/ops/": ["common/", "trainer_core/base/", "trainer_core/ops/"],
    "trainer_core/comm/": ["common/", "trainer_core/base/", "trainer_core/comm/"],
    "trainer_core/model/": ["common/", "trainer_core/base/", "trainer_core/ops/", "trainer_core/model/"],
    "trainer_core/data/": ["common/", "trainer_core/base/", "trainer_core/data/"],
    "trainer_core/text/": ["common/", "trainer_core/base/", "trainer_core/data/", "trainer_core/text/"],
    "trainer_core/optim/": ["common/", "trainer_core/base/", "trainer_core/ops/", "trainer_core/model/",
                            "trainer_core/optim/"],
    "trainer_core/parallel/": ["common/", "trainer_core/base/", "trainer_core/ops/", "trainer_core/comm/", "trainer_core/model/",
                               "trainer_core/optim/", "trainer_core/parallel/"],
    "trainer_core/checkpoint/": ["common/", "trainer_core/base/", "trainer_core/model/param_spec.h",
                                 "trainer_core/checkpoint/"],
    "trainer_core/convert/": ["common/", "trainer_core/base/", "trainer_core/model/param_spec.h",
                              "trainer_core/data/", "trainer_core/checkpoint/", "trainer_core/convert/"],
    # A rank, from the bottom floor to the top one.
    "trainer_core/input/": ["common/", *TRAINER_PARTS, "trainer_core/input/"],
    "trainer_core/report/": ["common/", *TRAINER_PARTS, "trainer_core/report/"],
    "trainer_core/rank/": ["common/", *TRAINER_PARTS, "trainer_core/input/", "trainer_core/report/", "trainer_core/rank/"],
    "trainer_core/startup/": ["common/", *TRAINER_PARTS, "trainer_core/input/", "trainer_core/report/", "trainer_core/rank/",
                              "trainer_core/startup/"],
    "trainer_core/recovery/": ["common/", *TRAINER_PARTS, "trainer_core/input/", "trainer_core/report/", "trainer_core/rank/",
                               "trainer_core/startup/", "trainer_core/recovery/"],
    "trainer_core/loop/": ["common/", *TRAINER_PARTS, "trainer_core/input/", "trainer_core/report/", "trainer_core/rank/",
                           "trainer_core/startup/", "trainer_core/recovery/", "trainer_core/loop/"],
    "trainer_core/forecast/": ["common/", *TRAINER_PARTS, "trainer_core/rank/", "trainer_core/startup/", "trainer_core/forecast/"],
    "trainer_core/tools/": ["common/", *TRAINER_PARTS, "trainer_core/rank/", "trainer_core/startup/", "trainer_core/tools/"],
    "trainer_core/": ["common/", "trainer_core/"],
    "jobspec/": ["common/", "jobspec/", "muster/v1/", "trainer_core/base/", "trainer_core/model/param_spec.h"],
    "cli/": ["common/", "daemon/", "cli/", "jobspec/", "muster/v1/", "trainer_core/base/",
             "trainer_core/model/param_spec.h"],
    # Only muster-text links SentencePiece, and it has no gRPC: the two crash in one process (cli/text/text_commands.h).
    **{f"cli/text/{file}": ["common/", "cli/", "daemon/help.h", "trainer_core/base/", "trainer_core/data/", "trainer_core/text/", "trainer_core/checkpoint/",
                       "trainer_core/convert/"]
       for file in ("convert.", "text_", "token_cache.", "tokenize.", "train_tokenizer.")},
}
# Cores may use the standard library and absl, nothing else from outside.
CORE_SYSTEM_INCLUDE = re.compile(r"^(absl/.*|[a-z_0-9]+)$")

BANNED_EVERYWHERE = [
    (re.compile(r"\b(sprintf|strcpy|strcat|gets)\s*\("), "unbounded C string call"),
    (re.compile(r"\.detach\(\)"), "a detached thread outlives its owner"),
    (re.compile(r"\bstd::(rand|srand|random_device)\b|(?<![\w:.])s?rand\s*\("), "unseeded randomness; use common/philox.h"),
    (re.compile(r"\busing namespace std\b"), "using namespace std"),
    (re.compile(r"\bErrnoToStatus\b"), "Ubuntu 22.04's Abseil has no ErrnoToStatus; use common/errno_status.h"),
]
BANNED_IN_PRODUCT = [
    (re.compile(r"\b(system_clock|steady_clock|high_resolution_clock|gettimeofday)\b|(?<![\w.>])time\s*\(\s*(nullptr|NULL|0|&)"),
     "a second clock; use monotonic_now() or wall_clock_unix_ns() of common/time.h"),
]
BANNED_IN_CORES = [
    (re.compile(r"\b(monotonic_now|wall_clock_unix_ns|system_clock|steady_clock|clock_gettime|gettimeofday)\b"),
     "a core takes `now`, it reads no clock"),
    (re.compile(r"\b(sleep|usleep|nanosleep|sleep_for|sleep_until)\s*\("), "a core does not wait"),
    (re.compile(r"\bstd::(thread|mutex|condition_variable|function)\b"), "a core owns no thread and stores no callback"),
    (re.compile(r"\bunordered_(map|set)\b|\bflat_hash_(map|set)\b"), "decisions iterate ordered containers"),
    (re.compile(r"\bthrow\b"), "a core does not throw"),
]
EXIT_CALL = re.compile(r"(?<![\w.>:])(std::|::)?_?exit\s*\(")
EXIT_ALLOWED = re.compile(r"(^|/)main\.cc$|trainer_core/base/check\.h$|trainer_core/uncaught\.cc$|worker/shell/(spawn[a-z_]*|rank_guard)\.cc$|common/run_child\.cc$|^cli/|^bench/faults/")
LEFTOVER = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
INCLUDE = re.compile(r'^\s*#\s*include\s+(["<])([^">]+)[">]')

COMMENT_COLUMNS_MAX = 100
COMMENT = re.compile(r'(?P<comment>//[^\n]*|/\*.*?\*/)|R"(?P<tag>\w*)\((?:.|\n)*?\)(?P=tag)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', re.S)
FREE_CLAUSE = re.compile(r"(Of|Who|Whom|Whose|What|Where|With)\b")
# Words of the glossary's left column that must not come back into comments, and the standard term for each.
# Public texts, which stay as they are, stand in quotes in comments: quoted words are not checked.
QUOTED = re.compile(r'"[^"]*"|`[^`]*`')
COMMENT_WORDS = [
    (re.compile(r"\bdesks?\b", re.I), "mailbox"),
    (re.compile(r"\b(told|tells?|hears?|heard|overhears?)\b", re.I), "things report, receive and observe"),
    (re.compile(r"\b(says?|said)\b(?!:)", re.I), "things state, contain, show or report"),
    (re.compile(r"\bstrays\b", re.I), "orphans"),
    (re.compile(r"\bstow(s|ed|ing)?\b", re.I), "offload"),
    (re.compile(r"\bmakes? way\b", re.I), "is preempted, or drains"),
    (re.compile(r"\bwho leaves?\b", re.I), "draining"),
    (re.compile(r"\bnobody but\b", re.I), "only"),
    (re.compile(r"(?<!max-)\bturns?\b", re.I), "transition, commit, allocation, slot or iteration; one after another; converts"),
    (re.compile(r"\b(goes|went|gone) on\b", re.I), "resumes, or continues"),
    (re.compile(r"\bwish(es|ed)?\b", re.I), "request, or requirement"),
    (re.compile(r"\bcircles?\b", re.I), "subgroup, or cycle"),
    (re.compile(r"\bdoubts?\b", re.I), "inconclusive hang"),
    (re.compile(r"\bown kernels?\b", re.I), "built-in kernels"),
]
# Identifiers of the glossary's left column, and the standard one for each.
CODE_WORDS = [
    (re.compile(r"\bWish(es)?\b"), "PlacementRequest"),
    (re.compile(r"\b[dD]esks?_?\b"), "mailbox"),
    (re.compile(r"\b([sS]tow(s|ed|ing)?|stow_\w+)_?\b"), "offload"),
    (re.compile(r"\bkNeighbours\b"), "kInterleaved"),
    (re.compile(r"\bDoubt\b"), "InconclusiveHang"),
    (re.compile(r"\bCircle\b"), "Subgroup"),
    (re.compile(r"\bReplica\b"), "RankModel"),
    (re.compile(r"\b[sS]trays_?\b"), "orphans"),
    (re.compile(r"\b(told|hears?|tells?)_?\b"), "a verb such as report, receive or notify"),
    (re.compile(r"\bgoes_on_?\b"), "continues"),
]

# Subjects of commits are imperative: "Cap the grace of ranks at the leaving worker's deadline".
SUBJECT_SCOPE = re.compile(r"^[\w./-]+: ")
SUBJECT_CLAUSES = {"a", "an", "the", "this", "that", "these", "those", "what", "who", "whom", "whose", "where", "when", "which", "why",
                   "while", "if", "each", "every", "all", "both", "some", "no", "one", "two", "nobody", "nothing", "everybody",
                   "everything", "somebody", "something", "it", "they", "there", "we", "more", "fewer"}
# Imperatives that end like a plural, a participle or a gerund.
IMPERATIVES = {"alias", "bias", "focus", "bleed", "breed", "embed", "exceed", "feed", "heed", "need", "proceed", "seed", "shed", "speed",
               "succeed", "bring", "cling", "ping", "ring", "sling", "spring", "string", "swing", "wring"}

PATH_LEAK = re.compile(r"/work/(main|shared)|/root/|/tmp/peers")


def tracked_files(root):
    listing = subprocess.run(["git", "-C", root, "ls-files", "-co", "--exclude-standard"], capture_output=True, text=True)
    if listing.returncode == 0 and listing.stdout:
        return [f for f in listing.stdout.split("\n") if f and (pathlib.Path(root) / f).is_file()]
    return [str(p.relative_to(root)) for p in pathlib.Path(root).rglob("*") if p.is_file()]


def strip_comments_and_strings(text):
    """Blanks comments and string contents, keeping line numbers."""
    pattern = re.compile(r'//[^\n]*|/\*.*?\*/|R"\((?:.|\n)*?\)"|"(?:\\.|[^"\\\n])*"', re.S)
    return pattern.sub(lambda m: re.sub(r"[^\n]", " ", m.group(0)), text)


def comments_of(text):
    """Yields (line number, comment, whether it opens a comment): // comments line by line, and /* */ blocks.

    A // comment continues the one above when both stand alone on lines next to each other.
    """
    alone_before = -1
    for match in COMMENT.finditer(text):
        comment = match.group("comment")
        if comment is None:
            continue
        number = text.count("\n", 0, match.start()) + 1
        is_alone = not text[text.rfind("\n", 0, match.start()) + 1:match.start()].strip()
        opens = not (comment.startswith("//") and is_alone and alone_before == number - 1)
        if is_alone and comment.startswith("//"):
            alone_before = number
        yield number, comment, opens


def has_hash_comments(path):
    file = pathlib.PurePosixPath(path)
    return file.suffix in HASH_SUFFIXES or file.name in HASH_NAMES or path.startswith(HASH_FOLDERS)


def joined(comments):
    """Adds to (line number, comment, whether it stands alone) whether the comment opens: it continues the one above
    when both stand alone on lines next to each other."""
    alone_before = -1
    for number, comment, is_alone in comments:
        yield number, comment, not (is_alone and alone_before == number - 1)
        if is_alone:
            alone_before = number


def python_comments_of(text):
    """Yields what comments_of yields: # comments line by line, and docstrings."""
    docstrings = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and ast.get_docstring(node, clean=False):
            docstring = node.body[0]
            docstrings.append((docstring.lineno, "\n".join(text.split("\n")[docstring.lineno - 1:docstring.end_lineno]), True))
    hashes = [(token.start[0], token.string, not token.line[:token.start[1]].strip())
              for token in tokenize.generate_tokens(io.StringIO(text).readline) if token.type == tokenize.COMMENT]
    yield from joined(hashes)
    yield from docstrings


def hash_comment_start(line):
    """Returns where a comment begins in a line of shell, CMake or YAML, or None: at a # at the start of a word outside quotes.

    Quotes that span lines are not followed: such lines seldom have a # at the start of a word.
    """
    quote = ""
    for column, character in enumerate(line):
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'" and character in line[column + 1:]:
            quote = character
        elif character == "#" and (column == 0 or line[column - 1].isspace()):
            return column
    return None


def hash_comments_of(text):
    """Yields what comments_of yields, for shell, CMake and YAML."""
    comments = []
    for number, line in enumerate(text.split("\n"), 1):
        if (start := hash_comment_start(line)) is not None:
            comments.append((number, line[start:], not line[:start].strip()))
    yield from joined(comments)


def check_comments(path, text, report, comments):
    """Checks comments, each a (line number, comment, whether it opens a comment)."""
    lines = text.split("\n")
    for number, comment, opens in comments:
        words = comment.lstrip("/*!#\"' \n")
        if words.startswith(("NOLINT", "clang-format", "noqa", "shellcheck", "SBATCH")):
            continue
        for offset in range(comment.count("\n") + 1):
            line = lines[number - 1 + offset]
            if len(line) > COMMENT_COLUMNS_MAX and "://" not in line:
                report(path, number + offset, f"a comment of {len(line)} columns; at most {COMMENT_COLUMNS_MAX}")
        if opens and FREE_CLAUSE.match(words):
            report(path, number, f"a comment opens with a free clause ({words.split()[0]}): begin with a subject or a verb")
        unquoted = QUOTED.sub('""', comment.strip().strip('"'))
        for pattern, standard in COMMENT_WORDS:
            if found := pattern.search(unquoted):
                report(path, number, f'"{found.group(0)}" in a comment; the standard term: {standard}')


def check_includes(path, text, report):
    rule = max((p for p in ARROWS if path.startswith(p)), key=len, default=None)
    if rule is None:
        return
    core = "/core/" in path and not path.startswith("trainer_core/")
    for number, line in enumerate(text.split("\n"), 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        quote, target = match.groups()
        if quote == '"' and not any(target.startswith(allowed) for allowed in ARROWS[rule]):
            report(path, number, f'includes "{target}": {rule} may include only {", ".join(ARROWS[rule])}')
        if quote == "<" and core and not CORE_SYSTEM_INCLUDE.match(target):
            report(path, number, f"includes <{target}>: a core uses only the standard library and absl")


def check_source(path, text, report):
    lines = text.count("\n")
    if lines > LINES_MAX:
        report(path, lines, f"{lines} lines; at most {LINES_MAX}: split it")
    check_includes(path, text, report)
    check_comments(path, text, report, comments_of(text))
    code = strip_comments_and_strings(text)
    core = "/core/" in path and not path.startswith("trainer_core/") and not path.startswith("tests/")
    product = not path.startswith(("tests/", "bench/"))
    banned = BANNED_EVERYWHERE + (BANNED_IN_PRODUCT if product else []) + (BANNED_IN_CORES if core else [])
    for number, line in enumerate(code.split("\n"), 1):
        for pattern, why in banned:
            if pattern.search(line):
                report(path, number, why)
        for pattern, standard in CODE_WORDS:
            if found := pattern.search(line):
                report(path, number, f'the name "{found.group(0)}"; the standard term: {standard}')
        if not path.startswith("tests/") and EXIT_CALL.search(line) and not EXIT_ALLOWED.search(path):
            report(path, number, "exit() outside main")


def check_tree(root):
    findings = []

    def report(path, line, message):
        findings.append(f"{path}:{line}: {message}")

    for path in sorted(tracked_files(root)):
        if path.startswith("tests/tidy/"):
            continue
        file = pathlib.Path(root) / path
        try:
            text = file.read_text()
        except UnicodeDecodeError:
            continue
        if text.startswith("#!") and not os.access(file, os.X_OK):
            report(path, 1, "names an interpreter and is not executable: chmod +x")
        for number, line in enumerate(text.split("\n"), 1):
            if LEFTOVER.search(line):
                report(path, number, "a leftover: finish it or open an issue")
            if PATH_LEAK.search(line):
                report(path, number, "a path of one machine")
        if file.suffix in SOURCE_SUFFIXES:
            check_source(path, text, report)
            if file.suffix == ".h" and "#pragma once" not in text:
                report(path, 1, "a header without #pragma once")
        elif has_hash_comments(path):
            check_comments(path, text, report, python_comments_of(text) if file.suffix == ".py" else hash_comments_of(text))
    return findings


def subject_problem(subject):
    """Returns why the subject of a commit is not imperative; None if it is, as far as a machine can decide."""
    words = SUBJECT_SCOPE.sub("", subject).split()
    if not words:
        return "empty subject"
    first = words[0].lower().strip(".,;:\"`()")
    if PATH_LEAK.search(subject):
        return "a path of one machine"
    if first in SUBJECT_CLAUSES:
        return f'begins with "{words[0]}": begin with a verb in the imperative'
    if first in IMPERATIVES or first.endswith("ss"):
        return None
    if first.endswith(("s", "ed", "ing")):
        return f'begins with "{words[0]}": begin with a verb in the imperative, without -s, -ed or -ing'
    return None


def check_commits(commits):
    """Returns a finding per commit of the range A..B with a wrong subject. Merges are only checked for paths."""
    log = subprocess.run(["git", "log", "--reverse", "--format=%h%x09%p%x09%s", commits, "--"], capture_output=True, text=True)
    if log.returncode != 0:
        return [f"--commits {commits}: {log.stderr.strip()}"]
    findings = []
    for line in log.stdout.splitlines():
        commit, parents, subject = line.split("\t", 2)
        is_merge = len(parents.split()) > 1
        problem = ("a path of one machine" if PATH_LEAK.search(subject) else None) if is_merge else subject_problem(subject)
        if problem:
            findings.append(f'{commit}: "{subject}": {problem}')
    return findings


SELF_TEST = {
    "coordinator/core/a.cc": ('#include "coordinator/shell/grpc.h"\n', "may include only"),
    "coordinator/core/b.cc": ("#include <grpcpp/grpcpp.h>\n", "standard library and absl"),
    "coordinator/core/fleet/f.cc": ('#include "coordinator/core/placement/hosts.h"\n', "may include only"),
    "coordinator/core/blame/b.cc": ('#include "coordinator/core/core.h"\n', "may include only"),
    "coordinator/core/event.h": ('#pragma once\n#include "coordinator/core/action.h"\n', "may include only"),
    "coordinator/core/c.cc": ("auto t = monotonic_now();\n", "reads no clock"),
    "cli/clock.cc": ("auto t = std::chrono::steady_clock::now();\n", "second clock"),
    "cli/time.cc": ("const time_t now = std::time(nullptr);\n", "second clock"),
    "worker/shell/time.cc": ("gettimeofday(&now, nullptr);\n", "second clock"),
    "worker/core/d.cc": ("std::function<void()> f;\n", "no callback"),
    "trainer_core/model/e.cc": ('#include "trainer_core/comm/comm.h"\n', "may include only"),
    "daemon/m.cc": ("return absl::ErrnoToStatus(errno, path);\n", "use common/errno_status.h"),
    "common/f.cc": ('#include "daemon/limits.h"\n', "may include only"),
    "daemon/g.cc": ("void f() { exit(1); }\n", "exit() outside main"),
    "cli/h.cc": ("\n" * (LINES_MAX + 1), "split it"),
    "daemon/i.h": ("int x;\n", "without #pragma once"),
    "daemon/j.cc": ("// TO" "DO later\n", "leftover"),
    "cli/l.cc": ('#include "trainer_core/data/tokenizer.h"\n', "may include only"),
    "cli/text/tokenize.cc": ('#include "muster/v1/muster.grpc.pb.h"\n', "may include only"),
    "trainer_core/ops/m.inc": ('#include "trainer_core/comm/comm.h"\n', "may include only"),
    "deploy/n.sh": ("#!/bin/sh\n", "not executable"),
    "daemon/k.cc": ("worker_thread.detach();\n", "detached"),
    "daemon/o.h": ("#pragma once\n// " + "word " * 20 + "\n", "a comment of 103 columns"),
    "daemon/p.h": ("#pragma once\nint x;  // " + "word " * 18 + "\n", "a comment of 101 columns"),
    "daemon/q.h": ("#pragma once\n// Returns a rank.\nint a();\n// Whose end the worker reports.\nint b();\n", "opens with a free clause (Whose)"),
    "daemon/r.h": ("#pragma once\nint ranks = 0;  // Of the job\n", "opens with a free clause (Of)"),
    "daemon/s.cc": ("/* What the worker sends. */\n", "opens with a free clause (What)"),
    "daemon/t.cc": ("// The coordinator is t" "old of it.\n", "things report"),
    "tests/unit/daemon/u.cc": ("int x;  // a d" "esk for messages\n", "mailbox"),
    "trainer_core/base/v.cuh": ("// S" "tows a buffer.\n", "offload"),
    "daemon/v.cc": ("// The page s" "ays when.\n", "things state"),
    "daemon/w.cc": ("// Ranks save by t" "urns.\n", "iteration"),
    "daemon/x.cc": ("// The job g" "oes on.\n", "continues"),
    "daemon/y.cc": ("// A W" "ish of a job.\n", "request"),
    "daemon/z.cc": ("// Ranks of the c" "ircle.\n", "subgroup"),
    "coordinator/core/d.cc": ("// The d" "oubt ends.\n", "inconclusive hang"),
    "coordinator/core/e.cc": ("// The worker w" "ho leaves.\n", "draining"),
    "trainer_core/ops/w.cc": ("// Runs its o" "wn kernels.\n", "built-in kernels"),
    "coordinator/core/g.cc": ("W" "ish wish_of(int job);\n", "PlacementRequest"),
    "trainer_core/comm/a.cc": ("D" "esk desk;\n", "mailbox"),
    "trainer_core/base/a.h": ("#pragma once\nvoid s" "tow(int buffer);\n", "offload"),
    "trainer_core/ops/x.cc": ("int x = kN" "eighbours;\n", "kInterleaved"),
    "coordinator/core/h.cc": ("struct D" "oubt {};\n", "InconclusiveHang"),
    "trainer_core/comm/b.cc": ("class C" "ircle;\n", "Subgroup"),
    "trainer_core/parallel/a.cc": ("class R" "eplica;\n", "RankModel"),
    "coordinator/core/i.cc": ("int s" "trays_ = 0;\n", "orphans"),
    "tests/unit/daemon/v.cc": ("bool t" "old = false;\n", "receive"),
    "tests/unit/daemon/w.cc": ("bool goes" "_on = false;\n", "continues"),
    "tests/e2e/a.py": ("# " + "word " * 20 + "\n", "a comment of 102 columns"),
    "tests/e2e/b.py": ('def f():\n    """What a rank sends."""\n', "opens with a free clause (What)"),
    "tests/e2e/c.py": ('class C:\n    """Returns a rank.\n\n    ' + "word " * 20 + '\n    """\n', "a comment of 104 columns"),
    "tests/e2e/d.py": ("x = 1  # Of the job\n", "opens with a free clause (Of)"),
    "tests/e2e/e.py": ("# The coordinator is t" "old of it.\n", "things report"),
    "deploy/a.sh": ("x=$1  # With an argument\n", "opens with a free clause (With)"),
    "deploy/b.sh": ("#!/bin/sh\n# " + "word " * 20 + "\n", "a comment of 102 columns"),
    "cmake/a.cmake": ("# Where the libraries are.\n", "opens with a free clause (Where)"),
    "tests/unit/CMakeLists.txt": ('set(x "#")  # Whose x\n', "opens with a free clause (Whose)"),
    "helm/a.yaml": ("key: 1  # a d" "esk for messages\n", "mailbox"),
    "configs/a.yml": ("# Who trains\n", "opens with a free clause (Who)"),
    "tests/scenarios/coordinator/a.txt": ("# A node is t" "old to leave.\n", "things report"),
}
SELF_TEST_CLEAN = {
    "coordinator/core/hang/clean.cc": '#include "coordinator/core/fleet/fleet.h"\n#include "coordinator/core/core_options.h"\n',
    "coordinator/core/clean.cc": '#include <vector>\n\n#include <absl/status/status.h>\n\n#include "common/ids.h"\n// exit( monotonic_now\nconst char* s = "throw";\n',
    "cli/run/run.cc": "const auto t = session.time(); set_time(0); last_time(&t); x->time(0);\n",
    "cli/text/train_tokenizer.cc": '#include "trainer_core/data/tokenizer.h"\n',
    "daemon/comments.cc": '// Returns the ranks of a job: those that run.\n// Where it goes, and of what, is a continuation.\nconst char* s = "// Who was told";\n'
                          '// Returns "attempt 2: goes on: is heard of again", or `told` of the scenario.\n// --max-turns 3\nset_told_to_stop(true);\n'
                          'const char* raw = R"sh(\n# " // What\n)sh";\nconst char quote = \'"\';  // a quote\nOffset x;  // Offset, not Of\n',
    "daemon/long.cc": "// https://example.org/" + "a" * 100 + "\nint x;  // NOLINT(" + "a" * 100 + ")\nconst char* s = \"" + "a" * 120 + "\";\n",
    "tests/e2e/clean.py": '# Returns the ranks of a job: those that run.\n# Where it goes is a continuation.\ns = "# Who"\nf = 1  # noqa: ' + "a" * 100
                          + '\ntext = """\n# What a script has\n"""\n',
    "deploy/clean.sh": "echo \"# What\" '# Who' ${x#Of}  # the caller's\n# shellcheck " + "a" * 100 + "\n#SBATCH --comment=" + "a" * 100 + "\n",
    "tests/e2e/quoted.py": 'def f():\n    """Returns "what it said" of the job."""\n',
    "helm/clean.yaml": "key: a#Of  # https://example.org/" + "a" * 100 + "\nother: \"# Whose\"\n",
}
SUBJECTS_WRONG = ["A worker waits a second", "An end", "The core decides", "What a review left", "Who leaves", "Where it is", "Each rank reports",
                  "One help for all programs", "Nobody waits", "Everything is checked", "Ranks report", "README's tables", "Closed streams are held",
                  "Growing is late", "Added a test", "Adds a test", "docs: links of a page", "cli: the help", "Merge /work/" "main"]
SUBJECTS_RIGHT = ["Cap the grace of ranks at the leaving worker's deadline", "Pass the deadline", "Embed the schema", "Bring back a test",
                  "Feed the core one event", "docs: Explain the limits", "cli/run: compress logs", "Focus on one rank", "Return 0", "Add tests"]


def self_test():
    with tempfile.TemporaryDirectory() as root:
        for path, content in {**{p: c for p, (c, _) in SELF_TEST.items()}, **SELF_TEST_CLEAN}.items():
            file = pathlib.Path(root) / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content)
        findings = check_tree(root)
    problems = [f"{path}: no finding has '{expected}'" for path, (_, expected) in SELF_TEST.items()
                if not any(f.startswith(path + ":") and expected in f for f in findings)]
    problems += [f"false finding: {f}" for f in findings if any(f.startswith(p + ":") for p in SELF_TEST_CLEAN)]
    problems += [f'no finding for the subject "{subject}"' for subject in SUBJECTS_WRONG if subject_problem(subject) is None]
    problems += [f'false finding for the subject "{subject}": {subject_problem(subject)}' for subject in SUBJECTS_RIGHT if subject_problem(subject)]
    return problems


def main():
    if sys.argv[1:] == ["--self-test"]:
        findings = self_test()
    elif sys.argv[1:2] == ["--commits"]:
        if len(sys.argv) != 3:
            print("tidy.py: --commits needs one range, as A..B", file=sys.stderr)
            return 2
        findings = check_commits(sys.argv[2])
    else:
        root = sys.argv[1] if len(sys.argv) > 1 else str(pathlib.Path(__file__).resolve().parents[2])
        findings = check_tree(root)
    print("\n".join(findings), end="\n" if findings else "")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
