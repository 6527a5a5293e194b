#!/usr/bin/env python3
"""Checks what compilers and formatters cannot: include arrows, file sizes, banned calls, leftovers.

Usage: tests/tidy/tidy.py [ROOT]      prints one line per finding; exit 1 when there is any
       tests/tidy/tidy.py --self-test checks that each rule finds what it should
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

LINES_MAX = 400
SOURCE_SUFFIXES = {".h", ".cc", ".inc", ".cu", ".cuh"}

# What a rank of the trainer is built from.
TRAINER_PARTS = [f"trainer_core/{part}/" for part in ("base", "checkpoint", "comm", "data", "model", "ops", "optim", "parallel")]
# The floors of the coordinator's core, from the bottom one, and the values that each of them may read.
CORE_FLOORS = ["records", "blame", "recovery", "incident", "accounting", "queue", "fleet", "placement", "hang", "liveness"]
CORE_VALUES = [f"coordinator/core/{value}.h" for value in ("event", "action", "core_options")]
# Which folders the files of a folder may include (DESIGN: one-way dependencies). The longest prefix that
# matches a file decides; `tests/` and `bench/` may include anything.
ARROWS = {
    "common/": ["common/"],
    "progress/": ["progress/"],
    "daemon/": ["common/", "daemon/"],
    "daemon/evidence_messages.": ["common/", "daemon/", "muster/v1/"],
    "daemon/gpu_messages.": ["common/", "daemon/", "muster/v1/"],
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
    "trainer_core/tools/": ["common/", *TRAINER_PARTS, "trainer_core/rank/", "trainer_core/startup/", "trainer_core/tools/"],
    "trainer_core/": ["common/", "trainer_core/"],
    "jobspec/": ["common/", "jobspec/", "muster/v1/", "trainer_core/base/", "trainer_core/model/param_spec.h"],
    "cli/": ["common/", "daemon/", "cli/", "jobspec/", "muster/v1/", "trainer_core/base/",
             "trainer_core/model/param_spec.h"],
    # muster-text alone has SentencePiece, and no gRPC: in one process they crash (cli/text/text_commands.h).
    **{f"cli/text/{file}": ["common/", "cli/", "daemon/help.h", "trainer_core/base/", "trainer_core/data/", "trainer_core/text/", "trainer_core/checkpoint/",
                       "trainer_core/convert/"]
       for file in ("convert.", "text_", "tokenize.", "train_tokenizer.")},
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
EXIT_ALLOWED = re.compile(r"(^|/)main\.cc$|trainer_core/base/check\.h$|trainer_core/uncaught\.cc$|worker/shell/spawn[a-z_]*\.cc$|^cli/|^bench/faults/")
LEFTOVER = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
INCLUDE = re.compile(r'^\s*#\s*include\s+(["<])([^">]+)[">]')
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
    code = strip_comments_and_strings(text)
    core = "/core/" in path and not path.startswith("trainer_core/") and not path.startswith("tests/")
    product = not path.startswith(("tests/", "bench/"))
    banned = BANNED_EVERYWHERE + (BANNED_IN_PRODUCT if product else []) + (BANNED_IN_CORES if core else [])
    for number, line in enumerate(code.split("\n"), 1):
        for pattern, why in banned:
            if pattern.search(line):
                report(path, number, why)
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
}
SELF_TEST_CLEAN = {
    "coordinator/core/hang/clean.cc": '#include "coordinator/core/fleet/fleet.h"\n#include "coordinator/core/core_options.h"\n',
    "coordinator/core/clean.cc": '#include <vector>\n\n#include <absl/status/status.h>\n\n#include "common/ids.h"\n// exit( monotonic_now\nconst char* s = "throw";\n',
    "cli/run/run.cc": "const auto t = session.time(); set_time(0); last_time(&t); x->time(0);\n",
    "cli/text/train_tokenizer.cc": '#include "trainer_core/data/tokenizer.h"\n',
}


def self_test():
    with tempfile.TemporaryDirectory() as root:
        for path, content in {**{p: c for p, (c, _) in SELF_TEST.items()}, **SELF_TEST_CLEAN}.items():
            file = pathlib.Path(root) / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content)
        findings = check_tree(root)
    problems = [f"{path}: nothing says '{expected}'" for path, (_, expected) in SELF_TEST.items()
                if not any(f.startswith(path + ":") and expected in f for f in findings)]
    problems += [f"false finding: {f}" for f in findings if any(f.startswith(p + ":") for p in SELF_TEST_CLEAN)]
    return problems


def main():
    if sys.argv[1:] == ["--self-test"]:
        findings = self_test()
    else:
        root = sys.argv[1] if len(sys.argv) > 1 else str(pathlib.Path(__file__).resolve().parents[2])
        findings = check_tree(root)
    print("\n".join(findings), end="\n" if findings else "")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
