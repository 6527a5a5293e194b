#!/usr/bin/env bash
# Tests the CUDA backend on this machine's GPU. Needs no network. The last line is `N passed, N failed` (`, N skipped` may follow); FOLDER/results.json
# has the device, the driver, the libraries and every test. Exit status: 0 when nothing failed, 77 where there is no GPU, else 1.
# The op tests run once more by own kernels under compute-sanitizer (memcheck, racecheck, initcheck) where that is in PATH, for as long as there is time.
# Or measures: with --bench nothing is tested, and FOLDER/bench.json has what products, attention, steps and all-reduces take.
#
#   tests/gpu/run.sh                    builds in build/gpu (nvcc, and what deploy/install-deps.sh installs), then tests
#   tests/gpu/run.sh --pack FILE        builds, and packs the programs and their libraries into FILE, a .tar.xz to be carried
#   tests/gpu/run.sh --carried FILE     tests what --pack has packed; builds nothing
#   … --out FOLDER                      results go there (default: build/gpu-results)
#   … --bench                           runs bench/gpu in place of the tests
#   … --seconds N                       that all of it may take (default: 570; machines with GPUs are lent for minutes)
#   … --own-kernels                     cuBLASLt, cuDNN or NCCL may be missing: own kernels and the host's memory are tested in their place
set -uo pipefail

cd "$(dirname "$0")/../.." || exit 1
programs=(gpu_ops_test gpu_model_test gpu_training_test)
bench=gpu_bench
measured=(products attention training collectives) # its parts
trainer=muster-trainer # a process of its own in some tests
mode=build file='' out=build/gpu-results seconds=570 own_kernels=0 measure=0
while [ $# -gt 0 ]; do
  case $1 in
    --pack | --carried) mode=${1#--}; file=${2:?"$1 needs a file"}; shift 2 ;;
    --out) out=${2:?"--out needs a folder"}; shift 2 ;;
    --seconds) seconds=${2:?"--seconds needs a number"}; shift 2 ;;
    --own-kernels) own_kernels=1; shift ;;
    --bench) measure=1; shift ;;
    -h | --help) sed -n '2,14s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "tests/gpu/run.sh: unknown argument '$1'; try --help" >&2; exit 2 ;;
  esac
done

commit() {
  git rev-parse HEAD 2> /dev/null || echo unknown
}

build() {
  cmake -G Ninja -S . -B build/gpu -DCMAKE_BUILD_TYPE=Release -DMUSTER_CUDA=ON -DMUSTER_TRAINER_ONLY=ON &&
    cmake --build build/gpu -j "$(nproc)" --target "${programs[@]}" "$bench" "$trainer"
}

# The programs, stripped, and those of their libraries that a bare machine does not have. The C library and what it brings stay behind: the
# machine's own are as new or newer. Most of a program is what the others have, too, so that all of them take as much as one where the
# packer remembers a program's length.
pack() {
  local folder program library
  folder=$(mktemp -d) && unpacked+=("$folder") && mkdir "$folder/lib" || return 1
  for program in "${programs[@]}" "$bench" "$trainer"; do
    strip -o "$folder/$program" "build/gpu/bin/$program" || return 1
    ldd "build/gpu/bin/$program" | sed -n 's/.*=> \(\/[^ ]*\) .*/\1/p' | while read -r library; do
      case ${library##*/} in
        libc.so.* | libm.so.* | libdl.so.* | libpthread.so.* | librt.so.* | ld-linux* | libgcc_s.so.* | libstdc++.so.*) ;;
        *) cp -L "$library" "$folder/lib/" || return 1 ;;
      esac
    done || return 1
  done
  commit > "$folder/commit"
  python3 - "$folder" "$file" <<'PY' || return 1
import lzma, sys, tarfile
filters = [{"id": lzma.FILTER_LZMA2, "preset": 1, "dict_size": 64 << 20}]
with lzma.open(sys.argv[2], "w", filters=filters) as packed, tarfile.open(fileobj=packed, mode="w") as files:
    files.add(sys.argv[1], arcname=".")
PY
  du -h "$file"
}

# What was unpacked, or is packed, lies in folders of its own, which go with the script.
unpacked=()
trap '[ ${#unpacked[@]} -eq 0 ] || rm -rf "${unpacked[@]}"' EXIT

# Folders of the libraries that programs open when they run: those of a toolkit, or of Python wheels.
library_folders() {
  local found
  found=$(python3 - 2> /dev/null <<'PY'
import glob, os, site, sys
roots = site.getsitepackages() + [site.getusersitepackages()] + [p for p in sys.path if p.endswith("-packages")]
roots += [os.environ["MUSTER_CUDA_ROOT"]] if os.environ.get("MUSTER_CUDA_ROOT") else []
print(":".join(sorted({folder for root in roots for folder in glob.glob(os.path.join(root, "nvidia", "*", "lib"))})))
PY
  )
  echo "${found:+$found:}/usr/local/cuda/lib64"
}

case $mode in
  build) build || { echo "tests/gpu/run.sh: the build failed" >&2; exit 1; }; bin=build/gpu/bin ;;
  pack)
    if build && pack; then exit 0; fi
    echo "tests/gpu/run.sh: packing failed" >&2
    exit 1 ;;
  carried)
    bin=$(mktemp -d) || exit 1
    unpacked+=("$bin")
    if ! python3 -c 'import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2])' "$file" "$bin" || [ ! -x "$bin/${programs[0]}" ]; then
      echo "tests/gpu/run.sh: $file has no ${programs[0]}: make it with --pack" >&2
      exit 1
    fi ;;
esac
mkdir -p "$out" || exit 1
libraries=$(library_folders)
# What a library of the packed ones needs itself is not looked for where the program says.
[ "$mode" != carried ] || libraries=$bin/lib:$libraries
export LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}

# Of what was built, wherever it runs.
MUSTER_COMMIT=$(cat "$bin/commit" 2> /dev/null || commit)
export MUSTER_COMMIT

# describe FILE JSON…: what these have, with the GPU as nvidia-smi has it and the commit in front, as FILE.
describe() {
  python3 - "$@" <<'PY'
import datetime, json, os, subprocess, sys

def said(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=60).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""

query = "name,driver_version,clocks.sm,clocks.mem,clocks.max.sm,power.limit,temperature.gpu,memory.total,ecc.mode.current"
results = {"gpu": dict(zip(query.split(","), [v.strip() for v in said("nvidia-smi", "-i", "0", f"--query-gpu={query}", "--format=csv,noheader").split(",")])),
           "commit": os.environ["MUSTER_COMMIT"],
           "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M:%SZ")}
for name in sys.argv[2:]:
    with open(name) as file:
        results.update(json.load(file))
with open(sys.argv[1], "w") as file:
    json.dump(results, file, indent=1)
    file.write("\n")
PY
}

began=$SECONDS
# Seconds, at least one: timeout takes 0 for none.
left() { local rest=$((seconds - SECONDS + began)); echo $((rest > 0 ? rest : 1)); }

if [ "$measure" -eq 1 ]; then
  reports=() missing=()
  # By parts: what one of them ends with takes nothing from the others.
  for part in "${measured[@]}"; do
    report=$out/$part.json
    timeout -k 20 "$(left)" "$bin/$bench" "$part" > "$report"
    status=$?
    if [ "$status" -eq 77 ]; then rm "$report"; echo "no GPU here: nothing was measured"; exit 77; fi
    if [ "$status" -eq 0 ]; then reports+=("$report"); else rm "$report"; missing+=("$part (status $status)"); fi
    # At once: the clocks are still those of the work.
    [ ${#reports[@]} -eq 0 ] || describe "$out/bench.json" "${reports[@]}" || exit 1
  done
  [ ${#reports[@]} -eq 0 ] || { rm "${reports[@]}"; echo "results: $out/bench.json"; }
  [ ${#missing[@]} -eq 0 ] || echo "tests/gpu/run.sh: $bench has not measured: ${missing[*]}" >&2
  [ ${#missing[@]} -eq 0 ]
  exit
fi

# is_late STATUS SINCE LIMIT: whether timeout has ended it, by the second signal, too.
is_late() { [ "$1" -eq 124 ] || { [ "$1" -eq 137 ] && [ $((SECONDS - $2)) -ge "$3" ]; }; }
ended=() # PROGRAM=STATUS
rm -f "$out"/*_test.json "$out"/*_test.log "$out/results.json"
for program in "${programs[@]}"; do
  log=$out/$program.log had='' status=0
  stop=$((SECONDS + $(left)))
  # What hangs leaves half of the time to the others.
  [ "$program" = "${programs[-1]}" ] || stop=$(((SECONDS + stop) / 2 + 1))
  # An error of the device's ends the program: its other tests are run without those that it has had.
  while [ ! -e "$out/$program.json" ] && [ "$SECONDS" -lt "$stop" ]; do
    since=$SECONDS limit=$((stop - SECONDS))
    timeout -k 20 "$limit" "$bin/$program" --gtest_output="json:$out/$program.json" --gtest_filter="*$had" >> "$log" 2>&1
    status=$?
    if [ "$status" -eq 77 ]; then cat "$log"; echo "no GPU here: nothing was tested"; exit 77; fi
    if is_late "$status" "$since" "$limit"; then echo "$program was not over after $limit s"; fi
    begun=$(sed -n 's/^\[ RUN      \] /:/p' "$log" | tr -d '\n')
    if [ -z "$begun" ] || [ "-${begun#:}" = "$had" ]; then break; fi
    had=-${begun#:}
  done
  grep -vE '^\[( RUN  |       OK |  SKIPPED |---|===)' "$log" | tail -n 100
  ended+=("$program=$status")
done

# sanitize TOOL SECONDS: says what became of it. What it has not found when the time is over says nothing.
sanitize() {
  local log=$out/$1.log since=$SECONDS status
  if ! command -v compute-sanitizer > /dev/null; then echo "skipped: no compute-sanitizer in PATH"; return; fi
  if [ "$2" -lt 10 ]; then echo "skipped: no time is left"; return; fi
  # Calls that fail end the program, if they are its own; libraries ask the driver for what it may not have. Processes that are to die are errors.
  MUSTER_GPU_TESTS_SANITIZED=1 timeout -k 20 "$2" compute-sanitizer --tool "$1" --report-api-errors no --error-exitcode 1 \
    "$bin/gpu_ops_test" --gtest_brief=1 --gtest_filter='-*DeathTest*' > "$log" 2>&1
  status=$?
  if [ "$status" -eq 0 ]; then echo "passed"
  elif is_late "$status" "$since" "$2" && ! grep '^=========' "$log" | grep -qv 'COMPUTE-SANITIZER'; then echo "skipped: it was not over after $2 s"
  else echo "failed: see $log"; fi
}
tools=(memcheck racecheck initcheck)
sanitized=() # TOOL=WHAT
for i in "${!tools[@]}"; do
  what=$(sanitize "${tools[i]}" $(($(left) / (${#tools[@]} - i))))
  echo "compute-sanitizer ${tools[i]}: $what"
  case $what in failed*) tail -n 20 "$out/${tools[i]}.log" ;; esac
  sanitized+=("${tools[i]}=$what")
done

# Counts what the programs have written: `N passed, N failed`, and all of it into tested.json, in place of their reports. A library that is missing where it was to be tested is a failure.
python3 - "$out" "$own_kernels" "${ended[@]}" "${sanitized[@]}" <<'PY'
import json, os, re, sys

OF_GTEST = {"name", "file", "line", "status", "result", "timestamp", "time", "classname", "failures", "skipped", "value_param", "type_param"}
LIBRARIES = ("cuBLASLt", "cuDNN", "NCCL")
out, own_kernels, ends = sys.argv[1], sys.argv[2] == "1", [word.split("=", 1) for word in sys.argv[3:]]
count = {"passed": 0, "failed": 0, "skipped": 0}
results = {"device": "", "libraries": {}, "notes": [], "programs": {}, "measured": {}, "compute-sanitizer": {}}

def outcome(test):
    if "failures" in test:
        return "failed"
    return "skipped" if test["result"] in ("SKIPPED", "SUPPRESSED") or test["status"] == "NOTRUN" else "passed"

def add(program, suite, test, what):
    results["programs"].setdefault(program, {}).setdefault(suite, {})[test] = what
    count[what] += 1

def of_log(path):
    """What became of the tests that a log tells of: of one that ended its program, nothing more than that it began."""
    ends = {"       OK": "passed", "  FAILED ": "failed", "  SKIPPED": "skipped"}
    tests = {}
    with open(path, errors="replace") as log:
        for said in re.findall(r"^\[( RUN     |       OK|  FAILED |  SKIPPED) \] ([^\s,.]+)\.([^\s,]+)", log.read(), re.MULTILINE):
            if said[0] == " RUN     ":
                tests[said[1:]] = "failed"
            elif said[1:] in tests:
                tests[said[1:]] = ends[said[0]]
    return tests

for name, end in ends:
    if not name.endswith("_test"):
        count[end.split(":")[0]] += 1
        results["compute-sanitizer"][name] = end
        continue
    path = os.path.join(out, name + ".json")
    try:
        with open(path) as file:
            report = json.load(file)
        os.remove(path)
    except (OSError, ValueError):
        report = {"testsuites": []}
        print(f"{name} ended with status {end} before its tests were over")
        count["failed"] += 1
    results["device"] = results["device"] or report.get("device", "")
    results["notes"] += report.get("notes", "").splitlines()
    for library in LIBRARIES:
        results["libraries"][library] = results["libraries"].get(library) or report.get(library, "")
    failed = 0
    for suite in report["testsuites"]:
        for test in suite["testsuite"]:
            add(name, suite["name"], test["name"], outcome(test))
            failed += outcome(test) == "failed"
            measured = {key: value for key, value in test.items() if key not in OF_GTEST}
            if measured:
                results["measured"][f"{suite['name']}.{test['name']}"] = measured
    # Before the program was begun anew.
    for (suite, test), what in of_log(os.path.join(out, name + ".log")).items():
        if test not in results["programs"].get(name, {}).get(suite, {}):
            add(name, suite, test, what)
    if report["testsuites"] and end != "0" and failed == 0:
        print(f"{name} ended with status {end}, which no test has counted")
        count["failed"] += 1

# The backend names those that it uses; one that is found may be too old.
missing = [library for library in LIBRARIES if not results["libraries"].get(library) or library != "NCCL" and library not in results["device"]]
if missing and not own_kernels:
    print(f"not found or not used, and so not tested: {', '.join(missing)}; install them (deploy/install-cuda.sh FOLDER, MUSTER_CUDA_ROOT=FOLDER), or say --own-kernels")
    count["failed"] += 1
with open(os.path.join(out, "tested.json"), "w") as file:
    json.dump({**count, **results}, file)
with open(os.path.join(out, "counts"), "w") as file:
    file.write(f"{count['passed']} passed, {count['failed']} failed" + (f", {count['skipped']} skipped" if count["skipped"] else "") + "\n")
PY
describe "$out/results.json" "$out/tested.json" && rm "$out/tested.json"
echo "results: $out/results.json"
counts=$(cat "$out/counts" && rm "$out/counts")
echo "${counts:-0 passed, 1 failed}"
[[ $counts == *" 0 failed"* ]]
