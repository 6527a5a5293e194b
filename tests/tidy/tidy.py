#!/usr/bin/env python3
"""Checks what compilers and formatters cannot: include arrows, file sizes, banned calls, leftovers,
the words and columns of comments, texts and pages (words.py), and names that are too similar
(names.py).

Usage: tests/tidy/tidy.py [ROOT]          prints one line per finding; exit 1 when there is any
       tests/tidy/tidy.py --commits A..B  checks subjects and bodies of the commits in the range, in
                                          the current repository
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

import names
import self_test_cases
import words

LINES_MAX = 400
SOURCE_SUFFIXES = {".h", ".cc", ".inc", ".cu", ".cuh"}
# Files whose comments begin with #. In Python, docstrings are comments, too.
HASH_SUFFIXES = {".py", ".sh", ".sub", ".cmake", ".yml", ".yaml"}
HASH_NAMES = {"CMakeLists.txt", "Containerfile"}
# Scenarios are scripts in the language of tests/scenarios.
HASH_FOLDERS = ("tests/scenarios/coordinator/",)

# The parts of the trainer that its ranks are built from.
TRAINER_PARTS = [f"trainer_core/{part}/" for part in ("base", "checkpoint", "comm", "data", "evaluation", "model", "ops", "optim", "parallel")]
# The floors of the coordinator's core, from the bottom one, and the values that each of them may
# read.
CORE_FLOORS = ["records", "blame", "recovery", "incident", "accounting", "queue", "fleet", "sweep", "placement", "hang", "liveness", "attempt"]
CORE_VALUES = [f"coordinator/core/{value}.h" for value in ("event", "action", "core_options")]
# The rooms of these folders, from the bottom one.
COMMON_ROOMS = ["text", "time", "files", "process", "random", "progress", "job", "stacks", "objects"]
COORDINATOR_SHELL_ROOMS = ["messages", "storage", "etcd", "metrics", "profiling", "logs", "loop", "audit", "calls", "identity", "grpc", "web"]
WORKER_SHELL_ROOMS = ["files", "programs", "logs", "rendezvous", "metrics", "ranks", "stream", "evidence"]
JOBSPEC_ROOMS = ["files", "settings", "dialects", "keys", "mesh"]


def rooms(folder, names, others):
    """Returns the rows of ARROWS for the rooms of a folder: each may include itself, lower rooms
    and `others`."""
    return {f"{folder}{room}/": [*others, *(f"{folder}{lower}/" for lower in names[:floor + 1])] for floor, room in enumerate(names)}


# The folders that the files of a folder may include: dependencies go one way. The longest prefix
# that matches a file decides; `tests/` and `bench/` may include anything.
ARROWS = {
    "common/": ["common/"],
    **rooms("common/", COMMON_ROOMS, ["common/version.h"]),
    "progress/": ["progress/"],
    "daemon/": ["common/", "daemon/"],
    "daemon/activity_messages.": ["common/", "daemon/", "muster/v1/"],
    "daemon/evidence_messages.": ["common/", "daemon/", "muster/v1/"],
    "daemon/gpu_messages.": ["common/", "daemon/", "muster/v1/"],
    "daemon/json/": ["common/", "daemon/", "muster/v1/"],
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
    **rooms("coordinator/shell/", COORDINATOR_SHELL_ROOMS, ["common/", "daemon/", "coordinator/core/", "muster/v1/"]),
    "coordinator/shell/etcd/": ["common/", "daemon/", "coordinator/core/", "coordinator/shell/storage/", "coordinator/shell/etcd/", "etcd/"],
    "coordinator/shell/profiling/": ["common/", "coordinator/shell/profiling/", "pprof/"],
    "worker/core/": ["common/", "worker/core/"],
    "worker/stacks/": ["common/", "worker/stacks/"],
    "worker/network/": ["common/", "worker/network/"],
    "worker/": ["common/", "daemon/", "worker/", "muster/v1/"],
    **rooms("worker/shell/", WORKER_SHELL_ROOMS, ["common/", "daemon/", "worker/core/", "worker/stacks/", "worker/gpus/", "worker/network/", "muster/v1/"]),
    "trainer_core/base/": ["common/", "trainer_core/base/"],
    "trainer_core/ops/": ["common/", "trainer_core/base/", "trainer_core/ops/"],
    "trainer_core/comm/": ["common/", "trainer_core/base/", "trainer_core/comm/"],
    "trainer_core/model/": ["common/", "trainer_core/base/", "trainer_core/ops/", "trainer_core/model/"],
    "trainer_core/data/": ["common/", "trainer_core/base/", "trainer_core/data/"],
    "trainer_core/chat/": ["common/", "trainer_core/base/", "trainer_core/data/", "trainer_core/chat/"],
    "trainer_core/evaluation/": ["common/", "trainer_core/base/", "trainer_core/data/", "trainer_core/evaluation/"],
    "trainer_core/text/": ["common/", "trainer_core/base/", "trainer_core/data/", "trainer_core/chat/", "trainer_core/text/"],
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
    "trainer_core/forecast/": ["common/", *TRAINER_PARTS, "trainer_core/rank/", "trainer_core/report/", "trainer_core/startup/", "trainer_core/forecast/"],
    "trainer_core/generation/": ["common/", *TRAINER_PARTS, "trainer_core/generation/"],
    "trainer_core/tools/": ["common/", *TRAINER_PARTS, "trainer_core/rank/", "trainer_core/startup/", "trainer_core/generation/",
                            "trainer_core/tools/"],
    "trainer_core/": ["common/", "trainer_core/"],
    "serve/": ["common/", "daemon/", "serve/", "trainer_core/"],
    "jobspec/": ["common/", "jobspec/", "muster/v1/", "trainer_core/base/", "trainer_core/model/param_spec.h"],
    **rooms("jobspec/", JOBSPEC_ROOMS, ["common/", "muster/v1/", "trainer_core/base/", "trainer_core/model/param_spec.h"]),
    "cli/": ["common/", "daemon/", "cli/", "jobspec/", "muster/v1/", "trainer_core/base/",
             "trainer_core/model/param_spec.h"],
    "cli/text/serve.": ["common/", "cli/", "serve/serve_options.h"],
    # Only muster-text links SentencePiece, and it has no gRPC: the two crash in one process
    # (cli/text/text_commands.h).
    **{f"cli/text/{file}": ["common/", "cli/", "daemon/help.h", "trainer_core/base/", "trainer_core/data/", "trainer_core/text/", "trainer_core/checkpoint/",
                       "trainer_core/convert/"]
       for file in ("convert.", "text_", "token_cache.", "tokenize.", "train_tokenizer.")},
}
# Cores may use the standard library and absl, nothing else from outside.
CORE_SYSTEM_INCLUDE = re.compile(r"^(absl/.*|[a-z_0-9]+)$")

BANNED_EVERYWHERE = [
    (re.compile(r"\b(sprintf|strcpy|strcat|gets)\s*\("), "unbounded C string call"),
    (re.compile(r"\.detach\(\)"), "a detached thread outlives its owner"),
    (re.compile(r"\bstd::(rand|srand|random_device)\b|(?<![\w:.])s?rand\s*\("), "unseeded randomness; use common/random/philox.h"),
    (re.compile(r"\busing namespace std\b"), "using namespace std"),
    (re.compile(r"\bErrnoToStatus\b"), "Ubuntu 22.04's Abseil has no ErrnoToStatus; use common/files/errno_status.h"),
]
BANNED_IN_PRODUCT = [
    (re.compile(r"\b(system_clock|steady_clock|high_resolution_clock|gettimeofday)\b|(?<![\w.>])time\s*\(\s*(nullptr|NULL|0|&)"),
     "a second clock; use monotonic_now() or wall_clock_unix_ns() of common/time/time.h"),
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
EXIT_ALLOWED = re.compile(r"(^|/)main\.cc$|trainer_core/base/check\.h$|trainer_core/startup/uncaught\.cc$|worker/shell/ranks/(spawn[a-z_]*|rank_guard)\.cc$|common/process/run_child\.cc$|trainer_core/generation/tensor_ranks\.cc$|^cli/|^bench/faults/")
LEFTOVER = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b")
INCLUDE = re.compile(r'^\s*#\s*include\s+(["<])([^">]+)[">]')

COMMENT_COLUMNS_MAX = 100
COMMENT = re.compile(r'(?P<comment>//[^\n]*|/\*.*?\*/)|R"(?P<tag>\w*)\((?:.|\n)*?\)(?P=tag)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', re.S)
# Public texts, which stay as they are, stand in quotes in comments: quoted words are not checked.
QUOTED = re.compile(r'"[^"]*"|`[^`]*`')
# Types in comments of modules may be as long as the code beside them.
JSDOC_TYPE = re.compile(r"@(?:type|typedef|param|returns|property|template)\b")
ADDRESS = re.compile(r"\w+://\S{40,}")
ADDRESS_COLUMNS = 40
# The two lines of a torn declaration: a type alone, and a name with a trailing comment.
TORN_START = re.compile(r"^(\s*)(?:(?:const|static|constexpr|mutable|inline) )*[A-Za-z_][\w:]*(?:<[^;()]*>)?[ *&]*$")
TORN_END = re.compile(r"^(\s+)\w+(?:\[.*\])?(?:\{[^{}]*\}| = [^;]*)?;\s*//")
# Strings of shell, YAML and templates, and code in the lines of pages.
TEXT_OF_LINE = re.compile(r'"((?:\\.|[^"\\])*)"')
CODE_OF_PAGE = re.compile(r"`[^` ]*`|\]\([^)]*\)|^\s*\[[^]]*\]:.*$")
MARKDOWN_COLUMNS_MAX = 120

# Subjects of commits are imperative: "Cap the grace of ranks at the leaving worker's deadline".
SUBJECT_SCOPE = re.compile(r"^[\w./-]+: ")
SUBJECT_CLAUSES = {"a", "an", "the", "this", "that", "these", "those", "what", "who", "whom", "whose", "where", "when", "which", "why",
                   "while", "if", "each", "every", "all", "both", "some", "no", "one", "two", "nobody", "nothing", "everybody",
                   "everything", "somebody", "something", "it", "they", "there", "we", "more", "fewer"}
# Imperatives that end like a plural, a participle or a gerund.
IMPERATIVES = {"alias", "bias", "focus", "bleed", "breed", "embed", "exceed", "feed", "heed", "need", "proceed", "seed", "shed", "speed",
               "succeed", "bring", "cling", "ping", "ring", "sling", "spring", "string", "swing", "wring"}

# Larger changes have a body. A rename without edits changes no line.
LINES_WITHOUT_BODY_MAX = 100

PATH_LEAK = re.compile(r"/work/(?:main|shared)|/ro" r"ot/|/tmp/pee" r"rs")


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
    """Yields (line number, comment, whether it opens a comment): // comments line by line, and
    /* */ blocks.

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
    """Adds to (line number, comment, whether it stands alone) whether the comment opens: it
    continues the one above when both stand alone on lines next to each other."""
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
    """Returns where a comment begins in a line of shell, CMake or YAML, or None: at a # at the
    start of a word outside quotes.

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
        words_of_it = comment.lstrip("/*!#\"' \n")
        if words_of_it.startswith(("NOLINT", "clang-format", "noqa", "shellcheck", "SBATCH")):
            continue
        for offset in range(comment.count("\n") + 1):
            line = lines[number - 1 + offset]
            # An address cannot be broken.
            if len(line) > COMMENT_COLUMNS_MAX and len(ADDRESS.sub("", line)) > COMMENT_COLUMNS_MAX - ADDRESS_COLUMNS:
                report(path, number + offset, f"a comment of {len(line)} columns; at most {COMMENT_COLUMNS_MAX}")
        is_trailing = not lines[number - 1].lstrip().startswith(comment.partition("\n")[0])
        if opens and (words.TRAILING_FREE_CLAUSE if is_trailing else words.FREE_CLAUSE).match(words_of_it):
            report(path, number, f"a comment opens with a free clause ({words_of_it.split()[0]}): begin with a subject or a verb")
        check_words(path, number, QUOTED.sub('""', comment.strip().strip('"')), report, "a comment")


def check_words(path, number, text, report, where):
    """Checks a comment, a text of a program or a line of a page for words with a standard term."""
    if path.startswith(words.HISTORY):
        return
    for pattern, _ in words.FROZEN:
        text = pattern.sub("", text)
    scoped = [entry for folders, entries in words.FOLDER_WORDS.items() if path.startswith(folders) for entry in entries]
    for pattern, standard in words.WORDS + scoped:
        if found := pattern.search(text):
            report(path, number, f'"{found.group(0)}" in {where}; the standard term: {standard}')


def check_text(path, number, text, report):
    """Checks a string if it is a text: one with a blank. Others are keys, names and patterns."""
    if " " in text.strip():
        check_words(path, number, text, report, "a text")


def strings_of(text):
    """Yields (line number, string) for C++: literals next to each other are one string."""
    number, parts, end = 0, [], -1
    for match in COMMENT.finditer(text):
        literal = match.group(0)
        if match.group("comment") is not None or literal.startswith("'"):
            continue
        content = literal[literal.index("(") + 1:literal.rindex(")")] if literal.startswith("R") else literal[1:-1]
        if parts and text[end:match.start()].strip():
            yield number, "".join(parts)
            parts = []
        if not parts:
            number = text.count("\n", 0, match.start()) + 1
        parts.append(content.replace("\\n", "\n"))
        end = match.end()
    if parts:
        yield number, "".join(parts)


def python_strings_of(text):
    """Yields (line number, string) for Python, without docstrings."""
    tree = ast.parse(text)
    docstrings = {id(node.body[0].value) for node in ast.walk(tree)
                  if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and ast.get_docstring(node, clean=False)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.lineno, node.value


def quoted_strings_of(text):
    """Yields (line number, string) for shell, YAML, templates and scenarios, without comments."""
    for number, line in enumerate(text.split("\n"), 1):
        start = hash_comment_start(line)
        for match in TEXT_OF_LINE.finditer(line if start is None else line[:start]):
            yield number, match.group(1)


def check_torn_declarations(path, text, report):
    """Finds declarations that clang-format has broken after the type to make room for a trailing
    comment."""
    lines = text.split("\n")
    for number, (above, line) in enumerate(zip(lines, lines[1:]), 2):
        end = TORN_END.match(line)
        start = TORN_START.match(above)
        if end and start and len(end.group(1)) == len(start.group(1)) + 4:
            report(path, number, "a trailing comment tears this declaration: put the comment above it")


def check_python_names(path, text, report):
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NAME:
            for pattern, standard in words.NAMES:
                if found := pattern.fullmatch(token.string):
                    report(path, token.start[0], f'the name "{found.group(0)}"; the standard term: {standard}')


def check_test_names(path, text, report):
    for number, line in enumerate(text.split("\n"), 1):
        for match in words.TEST_NAME.finditer(line):
            if found := words.TEST_WORDS.search(match.group(1)):
                report(path, number, f'"{found.group(0).strip("_")}" in the name of a test: state what is observed')


def check_page(path, text, report):
    """Checks the lines of a Markdown page: columns outside tables and code blocks, and words
    outside code blocks."""
    is_code = False
    for number, line in enumerate(text.split("\n"), 1):
        if line.lstrip().startswith(("```", "~~~")):
            is_code = not is_code
            continue
        if is_code:
            continue
        is_row = line.lstrip().startswith("|")
        # A line without a blank to break at, such as a long link, may be longer.
        indent = len(line) - len(line.lstrip(" -*0123456789."))
        if len(line) > MARKDOWN_COLUMNS_MAX and not is_row and " " in line[indent:MARKDOWN_COLUMNS_MAX + 1] and not path.startswith(words.HISTORY):
            report(path, number, f"a line of {len(line)} columns; at most {MARKDOWN_COLUMNS_MAX}")
        check_words(path, number, CODE_OF_PAGE.sub("", line), report, "a page")


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
    check_torn_declarations(path, text, report)
    check_test_names(path, text, report)
    for number, string in strings_of(text):
        check_text(path, number, string, report)
    code = strip_comments_and_strings(text)
    core = "/core/" in path and not path.startswith("trainer_core/") and not path.startswith("tests/")
    product = not path.startswith(("tests/", "bench/"))
    banned = BANNED_EVERYWHERE + (BANNED_IN_PRODUCT if product else []) + (BANNED_IN_CORES if core else [])
    for number, line in enumerate(code.split("\n"), 1):
        for pattern, why in banned:
            if pattern.search(line):
                report(path, number, why)
        for pattern, standard in words.NAMES:
            if found := pattern.search(line):
                report(path, number, f'the name "{found.group(0)}"; the standard term: {standard}')
        if not path.startswith("tests/") and EXIT_CALL.search(line) and not EXIT_ALLOWED.search(path):
            report(path, number, "exit() outside main")


def check_module(path, text, report):
    """Checks a module or a style sheet of the coordinator's page. Its templates end components with
    <//>, which opens no comment."""
    text = text.replace("<//>", "<  >")
    lines = text.count("\n")
    if lines > LINES_MAX:
        report(path, lines, f"{lines} lines; at most {LINES_MAX}: split it")
    typed = [one for one in comments_of(text) if JSDOC_TYPE.search(one[1])]
    check_comments(path, text, report, [one for one in comments_of(text) if one not in typed])
    for number, comment, _ in typed:
        check_words(path, number, QUOTED.sub('""', comment), report, "a comment")
    for number, string in strings_of(text):
        check_text(path, number, string, report)


def check_tree(root):
    findings = []

    def report(path, line, message):
        findings.append(f"{path}:{line}: {message}")

    product_sources = {}
    for path in sorted(tracked_files(root)):
        if path in ("tests/tidy/words.py", "tests/tidy/self_test_cases.py") or path.startswith("coordinator/page/vendor/"):
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
            if not path.startswith(("tests/", "bench/")):
                product_sources[path] = text
            check_source(path, text, report)
            if file.suffix == ".h" and "#pragma once" not in text:
                report(path, 1, "a header without #pragma once")
            continue
        if file.suffix == ".proto":
            check_comments(path, text, report, comments_of(text))
        elif file.suffix in (".js", ".css"):
            check_module(path, text, report)
        elif file.suffix == ".md":
            check_page(path, text, report)
        elif has_hash_comments(path) or file.suffix == ".tpl":
            check_comments(path, text, report, python_comments_of(text) if file.suffix == ".py" else hash_comments_of(text))
            check_test_names(path, text, report)
            if file.suffix == ".py":
                check_python_names(path, text, report)
            for number, string in python_strings_of(text) if file.suffix == ".py" else quoted_strings_of(text):
                check_text(path, number, string, report)
    for path, line, message in names.similar_names(product_sources):
        report(path, line, message)
    return findings


def subject_problem(subject):
    """Returns why the subject of a commit is not imperative; None if it is, as far as a machine can
    decide."""
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


def body_problem(body, lines):
    """Returns what the body of a commit that changes so many lines lacks; None if it is fine."""
    if lines > LINES_WITHOUT_BODY_MAX and not body.strip():
        return f"changes {lines} lines and has no body: state what was wrong and what the change does"
    return "a path of one machine" if PATH_LEAK.search(body) else None


def check_commits(commits):
    """Returns a finding per commit of the range A..B with a wrong subject or body. Merges are only
    checked for paths."""
    log = subprocess.run(["git", "log", "--reverse", "--numstat", "-M", "--format=%x00%h%x09%p%x09%s%n%b%x01", commits, "--"],
                         capture_output=True, text=True)
    if log.returncode != 0:
        return [f"--commits {commits}: {log.stderr.strip()}"]
    findings = []
    for entry in log.stdout.split("\0")[1:]:
        head, _, counts = entry.partition("\1")
        first, _, body = head.partition("\n")
        commit, parents, subject = first.split("\t", 2)
        if len(parents.split()) > 1:
            problems = ["a path of one machine" if PATH_LEAK.search(subject) else None]
        else:
            lines = sum(int(count) for row in counts.splitlines() for count in row.split("\t")[:2] if count.isdigit())
            problems = [subject_problem(subject), body_problem(body, lines)]
        findings += [f'{commit}: "{subject}": {problem}' for problem in problems if problem]
    return findings


def self_test():
    with tempfile.TemporaryDirectory() as root:
        for path, content in {**{p: c for p, (c, _) in self_test_cases.SELF_TEST.items()}, **self_test_cases.SELF_TEST_CLEAN}.items():
            file = pathlib.Path(root) / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content)
        findings = check_tree(root)
    problems = [f"{path}: no finding has '{expected}'" for path, (_, expected) in self_test_cases.SELF_TEST.items()
                if not any(f.startswith(path + ":") and expected in f for f in findings)]
    problems += [f"false finding: {f}" for f in findings if any(f.startswith(p + ":") for p in self_test_cases.SELF_TEST_CLEAN)]
    for sources, expected in self_test_cases.SIMILAR_NAMES:
        found = [message for _, _, message in names.similar_names(sources)]
        if len(found) != 1 or expected not in found[0]:
            problems.append(f"not one finding of '{expected}' in {sources}, but {found}")
    problems += [f"false finding in {sources}: {found[2]}" for sources in self_test_cases.DISTINCT_NAMES for found in names.similar_names(sources)]
    problems += [f"no finding for a body of {len(body)} characters and {lines} lines" for body, lines in self_test_cases.BODIES_WRONG
                 if body_problem(body, lines) is None]
    problems += [f"false finding for a body: {body_problem(body, lines)}" for body, lines in self_test_cases.BODIES_RIGHT if body_problem(body, lines)]
    problems += [f'no finding for the subject "{subject}"' for subject in self_test_cases.SUBJECTS_WRONG if subject_problem(subject) is None]
    problems += [f'false finding for the subject "{subject}": {subject_problem(subject)}' for subject in self_test_cases.SUBJECTS_RIGHT if subject_problem(subject)]
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
