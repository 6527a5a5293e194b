#!/usr/bin/env bash
# Tests the CUDA backend on this machine's GPU. Needs no network. The last line is `N passed, N failed`; FOLDER/results.json has the device,
# the driver and every test. Exit status: 0 when nothing failed, 77 where there is no GPU, else 1.
# Or measures: with --bench nothing is tested, and FOLDER/bench.json has what products, attention, steps and all-reduces take.
#
#   tests/gpu/run.sh                    builds in build/gpu (nvcc, and what deploy/install-deps.sh installs), then tests
#   tests/gpu/run.sh --pack FOLDER      builds, and puts the programs and their libraries into FOLDER, to be carried
#   tests/gpu/run.sh --carried FOLDER   tests what --pack has put there; builds nothing
#   … --out FOLDER                      results go there (default: build/gpu-results)
#   … --bench                           runs bench/gpu in place of the tests
#   … --sanitize                        the op tests once more under compute-sanitizer: memcheck, racecheck, initcheck
set -uo pipefail

cd "$(dirname "$0")/../.." || exit 1
programs=(gpu_ops_test gpu_model_test gpu_training_test)
bench=gpu_bench
mode=build folder=build/gpu out=build/gpu-results sanitize=0 measure=0
while [ $# -gt 0 ]; do
  case $1 in
    --pack | --carried) mode=${1#--}; folder=${2:?"$1 needs a folder"}; shift 2 ;;
    --out) out=${2:?"--out needs a folder"}; shift 2 ;;
    --sanitize) sanitize=1; shift ;;
    --bench) measure=1; shift ;;
    -h | --help) sed -n '2,12s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "tests/gpu/run.sh: unknown argument '$1'; try --help" >&2; exit 2 ;;
  esac
done

commit() {
  git rev-parse HEAD 2> /dev/null || echo unknown
}

build() {
  cmake -G Ninja -S . -B build/gpu -DCMAKE_BUILD_TYPE=Release -DMUSTER_CUDA=ON -DMUSTER_TRAINER_ONLY=ON &&
    cmake --build build/gpu -j "$(nproc)" --target "${programs[@]}" "$bench"
}

# The programs, stripped, and those of their libraries that a bare machine does not have. The C library and what it brings stay behind: the
# machine's own are as new or newer.
pack() {
  mkdir -p "$folder/lib" || return 1
  local program library
  for program in "${programs[@]}" "$bench"; do
    strip -o "$folder/$program" "build/gpu/bin/$program" || return 1
    ldd "build/gpu/bin/$program" | sed -n 's/.*=> \(\/[^ ]*\) .*/\1/p' | while read -r library; do
      case ${library##*/} in
        libc.so.* | libm.so.* | libdl.so.* | libpthread.so.* | librt.so.* | ld-linux* | libgcc_s.so.* | libstdc++.so.*) ;;
        *) cp -L "$library" "$folder/lib/" || return 1 ;;
      esac
    done || return 1
  done
  commit > "$folder/commit"
  du -sh "$folder"
}

# Folders of the libraries that programs open when they run: those of a toolkit, or of Python wheels.
library_folders() {
  local found
  found=$(python3 - 2> /dev/null <<'PY'
import glob, os, site, sys
roots = site.getsitepackages() + [site.getusersitepackages()] + [p for p in sys.path if p.endswith("-packages")]
print(":".join(sorted({folder for root in roots for folder in glob.glob(os.path.join(root, "nvidia", "*", "lib"))})))
PY
  )
  echo "${found:+$found:}${MUSTER_CUDA_ROOT:+$MUSTER_CUDA_ROOT/nvidia/cu13/lib:}/usr/local/cuda/lib64"
}

case $mode in
  build) build || { echo "tests/gpu/run.sh: the build failed" >&2; exit 1; }; bin=build/gpu/bin ;;
  pack)
    if build && pack; then exit 0; fi
    echo "tests/gpu/run.sh: packing failed" >&2
    exit 1 ;;
  carried)
    bin=$folder
    [ -x "$bin/${programs[0]}" ] || { echo "tests/gpu/run.sh: there is no ${programs[0]} in $bin: make it with --pack" >&2; exit 1; } ;;
esac
mkdir -p "$out" || exit 1
libraries=$(library_folders)
# What a library of the packed ones needs itself is not looked for where the program says.
[ "$mode" != carried ] || libraries=$(cd "$bin" && pwd)/lib:$libraries
export LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}

# Of what was built, wherever it runs.
MUSTER_COMMIT=$(cat "$bin/commit" 2> /dev/null || commit)
export MUSTER_COMMIT

# describe FILE JSON: JSON with the GPU as nvidia-smi has it and the commit in front, as FILE.
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
with open(sys.argv[2]) as file:
    results.update(json.load(file))
with open(sys.argv[1], "w") as file:
    json.dump(results, file, indent=1)
    file.write("\n")
PY
}

if [ "$measure" -eq 1 ]; then
  "$bin/$bench" > "$out/measured.json"
  status=$?
  if [ "$status" -eq 77 ]; then echo "no GPU here: nothing was measured"; exit 77; fi
  # At once: the clocks are still those of the work.
  if [ "$status" -ne 0 ] || ! describe "$out/bench.json" "$out/measured.json"; then
    echo "tests/gpu/run.sh: $bench ended with status $status" >&2
    exit 1
  fi
  rm "$out/measured.json"
  echo "results: $out/bench.json"
  exit 0
fi

passed=0 failed=0
for program in "${programs[@]}"; do
  "$bin/$program" --gtest_output="json:$out/$program.json" --gtest_brief=1 2>&1 | tee "$out/$program.log"
  status=${PIPESTATUS[0]}
  if [ "$status" -eq 77 ]; then echo "no GPU here: nothing was tested"; exit 77; fi
  if [ -s "$out/$program.json" ]; then
    read -r good bad < <(python3 -c 'import json, sys; r = json.load(open(sys.argv[1])); print(r["tests"] - r["failures"] - r.get("disabled", 0), r["failures"])' "$out/$program.json")
    passed=$((passed + good)) failed=$((failed + bad))
    # It ended with an error that no test has counted.
    if [ "$status" -ne 0 ] && [ "$bad" -eq 0 ]; then failed=$((failed + 1)); fi
  else
    echo "$program ended with status $status before its tests were over"
    failed=$((failed + 1))
  fi
done

if [ "$sanitize" -eq 1 ]; then
  for tool in memcheck racecheck initcheck; do
    if MUSTER_GPU_TESTS_SMALL=1 compute-sanitizer --tool "$tool" --error-exitcode 1 "$bin/gpu_ops_test" --gtest_brief=1 \
      > "$out/$tool.log" 2>&1; then
      echo "compute-sanitizer $tool: nothing found"; passed=$((passed + 1))
    else
      echo "compute-sanitizer $tool: see $out/$tool.log"; tail -n 20 "$out/$tool.log"; failed=$((failed + 1))
    fi
  done
fi

python3 - "$out" "$passed" "$failed" <<'PY' > "$out/tested.json"
import glob, json, os, sys
out, passed, failed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
results = {"passed": passed, "failed": failed, "programs": {}}
for path in sorted(glob.glob(os.path.join(out, "*_test.json"))):
    with open(path) as file:
        report = json.load(file)
    results["programs"][os.path.basename(path)[:-5]] = {
        suite["name"]: {test["name"]: "failed" if "failures" in test else test["result"].lower() for test in suite["testsuite"]}
        for suite in report["testsuites"]}
json.dump(results, sys.stdout)
PY
describe "$out/results.json" "$out/tested.json" && rm "$out/tested.json"
echo "results: $out/results.json"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
