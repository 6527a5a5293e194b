#!/usr/bin/env bash
# Tests and measures the CUDA backend on this machine's GPU; needs no network. The last line is `N
# passed, N failed[, N skipped]`. Exit status: 0 if nothing failed, 77 if there is no GPU, else 1.
# The results in FOLDER are complete up to the point where the script ends:
#   results.json   device, driver, libraries and every test
#   tests.jsonl    each test as soon as it ends
#   bench.jsonl    --bench, --all: products, attention, training steps and all-reduces, row by row
#   machine.json   --bench, --all: the machine
#   peers.jsonl    --all: the training rows in PyTorch, if the machine has it
#   kernels.md, kernels.json  --all: times of one training step's kernels, and the minimum for their
#                  bytes and FLOPs, if ncu is in PATH
# Some of the op tests run again with built-in kernels under compute-sanitizer (memcheck, initcheck,
# racecheck), if time permits.
#
#   tests/gpu/run.sh                 builds in build/gpu (nvcc, deploy/install-deps.sh), then tests
#   tests/gpu/run.sh --pack FILE     builds, and packs the programs and their libraries into FILE, a
#                                    .tar.xz for another machine
#   tests/gpu/run.sh --carried FILE  tests the programs in FILE, made by --pack; builds nothing
#   … --out FOLDER                   folder for the results (default: build/gpu-results)
#   … --bench                        measures instead of testing
#   … --all                          last time's failed tests (tests/gpu/failed.txt), all tests,
#                                    speeds, PyTorch, kernels, sanitizers; each part has a time
#                                    limit, and parts that begin after --seconds are skipped
#   … --seconds N                    time limit for everything (default: 570)
#   … --own-kernels                  accepts missing cuBLASLt, cuDNN or NCCL: tests built-in kernels
#                                    and host memory instead
set -uo pipefail

cd "$(dirname "$0")/../.." || exit 1
programs=(gpu_ops_test gpu_model_test gpu_training_test)
bench=gpu_bench
# the parts of --bench; each of them gets a share of the time
measured=(training products attention collectives)
measured_seconds=(110 30 30 20)
trainer=muster-trainer # started as a separate process by some tests
mode=build file='' out=build/gpu-results seconds=570 own_kernels=0 part=tests
while [ $# -gt 0 ]; do
  case $1 in
    --pack | --carried) mode=${1#--}; file=${2:?"$1 needs a file"}; shift 2 ;;
    --out) out=${2:?"--out needs a folder"}; shift 2 ;;
    --seconds) seconds=${2:?"--seconds needs a number"}; shift 2 ;;
    --own-kernels) own_kernels=1; shift ;;
    --bench) part=bench; shift ;;
    --all) part=all; shift ;;
    -h | --help) sed -n '2,27s/^# \{0,1\}//p' "$0"; exit 0 ;;
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

# Packs the stripped programs and those of their libraries that a bare machine lacks. The C library
# and its parts are left out, because the other machine's are as new or newer. The programs share
# most of their contents, so with a dictionary as large as a program the archive of all of them is
# about as large as that of one.
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

# Temporary folders for packing and unpacking, removed when the script ends.
unpacked=()
trap '[ ${#unpacked[@]} -eq 0 ] || rm -rf "${unpacked[@]}"' EXIT

# Prints the folders of libraries that programs open at run time: those of a toolkit, or of Python
# wheels.
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
# The program's RPATH does not apply to the dependencies of packed libraries, so their folder must
# be in LD_LIBRARY_PATH.
[ "$mode" != carried ] || libraries=$bin/lib:$libraries
export LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}

# The commit of the build, also on a machine without the repository.
MUSTER_COMMIT=$(cat "$bin/commit" 2> /dev/null || commit)
export MUSTER_COMMIT

# describe FILE JSON…: writes FILE with the GPU as nvidia-smi reports it, the commit, and the
# contents of the JSON files.
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
# Prints the seconds left, at least 1, because timeout treats 0 as no limit.
left() { local rest=$((seconds - SECONDS + began)); echo $((rest > 0 ? rest : 1)); }
# at_most SECONDS: prints the smaller of SECONDS and the seconds left.
at_most() { local rest; rest=$(left); echo $((rest < $1 ? rest : $1)); }
shortest=10 # a part does not begin with fewer seconds than this

# measure [SECONDS]: measures each part, for at most SECONDS each. A process per part: if one
# crashes, the others still run.
measure() {
  local i name status missing=()
  rm -f "$out/bench.jsonl"
  describe "$out/machine.json" || return 1
  for i in "${!measured[@]}"; do
    name=${measured[i]}
    if [ "$(left)" -lt "$shortest" ]; then missing+=("$name (no time is left)"); continue; fi
    echo "== $name, $(left) s are left"
    timeout -k 20 "$(at_most "${1:-${measured_seconds[i]}}")" "$bin/$bench" "$name" 2>> "$out/bench.log" | tee -a "$out/bench.jsonl"
    status=${PIPESTATUS[0]}
    if [ "$status" -eq 77 ]; then return 77; fi
    [ "$status" -eq 0 ] || missing+=("$name (status $status)")
  done
  # Once more, while the clocks are still those under load.
  describe "$out/machine.json" || return 1
  echo "results: $out/bench.jsonl"
  [ ${#missing[@]} -eq 0 ] || echo "tests/gpu/run.sh: $bench has not measured all of: ${missing[*]}" >&2
  [ ${#missing[@]} -eq 0 ]
}

if [ "$part" = bench ]; then
  measure "$seconds"
  status=$?
  if [ "$status" -eq 77 ]; then rm -f "$out/bench.jsonl" "$out/bench.log"; echo "no GPU here: nothing was measured"; fi
  exit "$status"
fi

rm -f "$out"/*_test.*.json "$out"/*_test.log "$out/tests.jsonl" "$out/results.json"
test_seconds=$(left)
# Leaves a third of the time to the sanitizers; with --all, they get the rest after the other parts.
[ "$part" = all ] && test_seconds=$(at_most 120)
[ "$part" = all ] || test_seconds=$((test_seconds * 2 / 3 + 1))
python3 tests/gpu/run_tests.py "${programs[@]/#/$bin/}" --out "$out" --seconds "$test_seconds" --first tests/gpu/failed.txt
status=$?
if [ "$status" -eq 77 ]; then echo "no GPU here: nothing was tested"; exit 77; fi

# peers: measures the training rows in PyTorch.
peers() {
  if [ "$(left)" -lt "$shortest" ]; then echo "PyTorch: skipped: no time is left"; return; fi
  echo "== PyTorch, $(left) s are left"
  # Uses PyTorch's own libraries, not the packed ones.
  LD_LIBRARY_PATH='' timeout -k 20 "$(at_most 110)" python3 bench/gpu/peers/torch_train.py --seconds "$(at_most 105)" 2> "$out/peers.log" | tee "$out/peers.jsonl"
  [ "${PIPESTATUS[0]}" -ne 77 ] || echo "PyTorch: skipped: python3 has none with a GPU"
}

# kernels: profiles one step, with caches and clocks as in a training.
kernels() {
  if ! command -v ncu > /dev/null; then echo "kernels: skipped: no ncu in PATH"; return; fi
  if [ "$(left)" -lt "$shortest" ]; then echo "kernels: skipped: no time is left"; return; fi
  echo "== kernels, $(left) s are left"
  timeout -k 20 "$(at_most 50)" ncu --profile-from-start off --metrics gpu__time_duration.sum --clock-control none --cache-control none --csv \
    --log-file "$out/ncu.csv" "$bin/$bench" profile > "$out/profile.jsonl" 2> "$out/ncu.log"
  python3 bench/gpu/kernel_table.py "$out/ncu.csv" --workload "$out/profile.jsonl" --json "$out/kernels.json" > "$out/kernels.md" && cat "$out/kernels.md"
}

if [ "$part" = all ]; then
  measure || true
  peers
  kernels
fi

# Tests of each kind of kernel on its smallest shapes, because a sanitized process takes many times
# as long.
sanitized_tests='-*DeathTest*:*Large*:*/1?:*/2?:*/3?:*/4?:*/5?:*/6?:*/7?:*/8?:*/9?:*/1??'
# sanitize TOOL SECONDS: prints the outcome. A run that exceeds its time without a finding counts as
# skipped.
sanitize() {
  local log=$out/$1.log since=$SECONDS status
  if ! command -v compute-sanitizer > /dev/null; then echo "skipped: no compute-sanitizer in PATH"; return; fi
  if [ "$2" -lt "$shortest" ]; then echo "skipped: no time is left"; return; fi
  # API errors are not reported: the program checks its own calls, and libraries probe the driver
  # for optional features. Death tests are excluded, because their processes would count as errors.
  MUSTER_GPU_TESTS_SANITIZED=1 timeout -k 20 "$2" compute-sanitizer --tool "$1" --report-api-errors no --error-exitcode 1 \
    "$bin/gpu_ops_test" --gtest_brief=1 --gtest_filter="$sanitized_tests" > "$log" 2>&1
  status=$?
  if [ "$status" -eq 0 ]; then echo "passed"
  elif is_late "$status" "$since" "$2" && ! grep '^=========' "$log" | grep -qv 'COMPUTE-SANITIZER'; then echo "skipped: it was not over after $2 s"
  else echo "failed: see $log"; fi
}
# is_late STATUS SINCE LIMIT: succeeds if timeout has ended the process, by its first signal or by
# SIGKILL.
is_late() { [ "$1" -eq 124 ] || { [ "$1" -eq 137 ] && [ $((SECONDS - $2)) -ge "$3" ]; }; }
tools=(memcheck racecheck initcheck)
sanitized=() # TOOL=OUTCOME
# In parallel, because a sanitized process leaves most of a GPU idle.
time_left=$(left)
for tool in "${tools[@]}"; do
  sanitize "$tool" "$time_left" > "$out/$tool.what" &
done
wait
for tool in "${tools[@]}"; do
  what=$(cat "$out/$tool.what") && rm "$out/$tool.what"
  echo "compute-sanitizer $tool: $what"
  case $what in failed*) tail -n 20 "$out/$tool.log" ;; esac
  sanitized+=("$tool=$what")
done

# Writes the results to tested.json, and `N passed, N failed` to counts. A missing library is a
# failure, except with --own-kernels.
python3 - "$out" "$own_kernels" "${sanitized[@]}" <<'PY'
import json, os, sys

LIBRARIES = ("cuBLASLt", "cuDNN", "NCCL")
out, own_kernels, ends = sys.argv[1], sys.argv[2] == "1", [word.split("=", 1) for word in sys.argv[3:]]
count = {"passed": 0, "failed": 0, "skipped": 0}
results = {"device": "", "libraries": {name: "" for name in LIBRARIES}, "notes": [], "programs": {}, "measured": {}, "compute-sanitizer": {}}
with open(os.path.join(out, "tests.jsonl")) as file:
    rows = [json.loads(line) for line in file]
for row in rows:
    said = row.get("properties")
    if said is not None:
        results["device"] = results["device"] or said.get("device", "")
        results["notes"] += [note for note in said.get("notes", "").splitlines() if note not in results["notes"]]
        for library in LIBRARIES:
            results["libraries"][library] = results["libraries"][library] or said.get(library, "")
        continue
    suite, _, test = row["test"].partition(".")
    results["programs"].setdefault(row["program"], {}).setdefault(suite, {})[test] = row["outcome"]
    count[row["outcome"]] += 1
    if "measured" in row:
        results["measured"][row["test"]] = row["measured"]
for name, end in ends:
    count[end.split(":")[0]] += 1
    results["compute-sanitizer"][name] = end

# The backend's name has the libraries that it uses; a library that is found may be too old.
missing = [library for library in LIBRARIES if not results["libraries"].get(library) or library != "NCCL" and library not in results["device"]]
if missing and not own_kernels:
    print(f"not found or not used, and so not tested: {', '.join(missing)}; install them (deploy/install-cuda.sh FOLDER, MUSTER_CUDA_ROOT=FOLDER), or give --own-kernels")
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
