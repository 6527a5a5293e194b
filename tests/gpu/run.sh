#!/usr/bin/env bash
# Tests and measures the CUDA backend on this machine's GPU. Needs no network. The last line is `N passed, N failed` (`, N skipped` may follow).
# Exit status: 0 when nothing failed, 77 where there is no GPU, else 1. Results come back however the script ends: in FOLDER are
#   results.json   device, driver, libraries and every test; tests.jsonl has each test as soon as it is over
#   bench.jsonl    --bench, --all: products, attention, training steps and all-reduces, a row as soon as it is measured; machine.json is the machine
#   peers.jsonl    --all: the training rows in PyTorch, where the machine has it
#   kernels.md, kernels.json  --all: the kernels of one training step beside what their bytes and FLOPs need, where ncu is in PATH
# A part of the op tests runs once more by built-in kernels under compute-sanitizer (memcheck, initcheck, racecheck), for as long as there is time.
#
#   tests/gpu/run.sh                    builds in build/gpu (nvcc, and what deploy/install-deps.sh installs), then tests
#   tests/gpu/run.sh --pack FILE        builds, and packs the programs and their libraries into FILE, a .tar.xz to be carried
#   tests/gpu/run.sh --carried FILE     tests what --pack has packed; builds nothing
#   … --out FOLDER                      results go there (default: build/gpu-results)
#   … --bench                           measures in place of the tests
#   … --all                             the failed tests of last time (tests/gpu/failed.txt), all tests, speeds, PyTorch, kernels, sanitizers; each
#                                       part within its own time, and those behind are left out when the time is over
#   … --seconds N                       that all of it may take (default: 570; machines with GPUs are lent for minutes)
#   … --own-kernels                     cuBLASLt, cuDNN or NCCL may be missing: own kernels and the host's memory are tested in their place
set -uo pipefail

cd "$(dirname "$0")/../.." || exit 1
programs=(gpu_ops_test gpu_model_test gpu_training_test)
bench=gpu_bench
measured=(training products attention collectives) # its parts, and what each may take, in seconds
measured_seconds=(110 30 30 20)
trainer=muster-trainer # a process of its own in some tests
mode=build file='' out=build/gpu-results seconds=570 own_kernels=0 part=tests
while [ $# -gt 0 ]; do
  case $1 in
    --pack | --carried) mode=${1#--}; file=${2:?"$1 needs a file"}; shift 2 ;;
    --out) out=${2:?"--out needs a folder"}; shift 2 ;;
    --seconds) seconds=${2:?"--seconds needs a number"}; shift 2 ;;
    --own-kernels) own_kernels=1; shift ;;
    --bench) part=bench; shift ;;
    --all) part=all; shift ;;
    -h | --help) sed -n '2,21s/^# \{0,1\}//p' "$0"; exit 0 ;;
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
# at_most SECONDS: that, or what is left.
at_most() { local rest; rest=$(left); echo $((rest < $1 ? rest : $1)); }
shortest=10 # a part with less time than this is not begun

# measure SECONDS…: of each part. By parts: the end of one takes nothing from the others.
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
  # Once more: the clocks are still those of the work.
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
# The sanitizers have a third of it, or in --all what the other parts leave.
[ "$part" = all ] && test_seconds=$(at_most 120)
[ "$part" = all ] || test_seconds=$((test_seconds * 2 / 3 + 1))
python3 tests/gpu/run_tests.py "${programs[@]/#/$bin/}" --out "$out" --seconds "$test_seconds" --first tests/gpu/failed.txt
status=$?
if [ "$status" -eq 77 ]; then echo "no GPU here: nothing was tested"; exit 77; fi

# peers: of the training rows.
peers() {
  if [ "$(left)" -lt "$shortest" ]; then echo "PyTorch: skipped: no time is left"; return; fi
  echo "== PyTorch, $(left) s are left"
  # Its own libraries, not those that the programs were packed with.
  LD_LIBRARY_PATH='' timeout -k 20 "$(at_most 110)" python3 bench/gpu/peers/torch_train.py --seconds "$(at_most 105)" 2> "$out/peers.log" | tee "$out/peers.jsonl"
  [ "${PIPESTATUS[0]}" -ne 77 ] || echo "PyTorch: skipped: python3 has none with a GPU"
}

# kernels: of one step. The caches and clocks stay as a training has them.
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

# Tests of each kind of kernel on its smallest shapes: a sanitized process takes many times as long, and libraries' kernels are not ours to check.
sanitized_tests='-*DeathTest*:*Large*:*/1?:*/2?:*/3?:*/4?:*/5?:*/6?:*/7?:*/8?:*/9?:*/1??'
# sanitize TOOL SECONDS: says what became of it. What it has not found when the time is over says nothing.
sanitize() {
  local log=$out/$1.log since=$SECONDS status
  if ! command -v compute-sanitizer > /dev/null; then echo "skipped: no compute-sanitizer in PATH"; return; fi
  if [ "$2" -lt "$shortest" ]; then echo "skipped: no time is left"; return; fi
  # Calls that fail end the program, if they are its own; libraries ask the driver for what it may not have. Processes that are to die are errors.
  MUSTER_GPU_TESTS_SANITIZED=1 timeout -k 20 "$2" compute-sanitizer --tool "$1" --report-api-errors no --error-exitcode 1 \
    "$bin/gpu_ops_test" --gtest_brief=1 --gtest_filter="$sanitized_tests" > "$log" 2>&1
  status=$?
  if [ "$status" -eq 0 ]; then echo "passed"
  elif is_late "$status" "$since" "$2" && ! grep '^=========' "$log" | grep -qv 'COMPUTE-SANITIZER'; then echo "skipped: it was not over after $2 s"
  else echo "failed: see $log"; fi
}
# is_late STATUS SINCE LIMIT: whether timeout has ended it, by the second signal, too.
is_late() { [ "$1" -eq 124 ] || { [ "$1" -eq 137 ] && [ $((SECONDS - $2)) -ge "$3" ]; }; }
tools=(memcheck racecheck initcheck)
sanitized=() # TOOL=WHAT
# Side by side: a sanitized process leaves most of a GPU idle.
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

# Counts the results into tested.json: `N passed, N failed`. A library that is missing where it was to be tested is a failure.
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
