#!/usr/bin/env bash
# Installs what is missing, builds with warnings as errors and runs the project's checks. The last
# line is `N passed, N failed` (`, N skipped` may follow). The exit status is 0 if nothing failed.
#
#   tests/run.sh                 what CI runs
#   tests/run.sh PHASE …         only these: style build unit e2e cuda asan tsan kubernetes, and
#                                tidy and image, which CI omits
#   tests/run.sh --no-install …  installs nothing
#   tests/run.sh --within MINUTES …
#                                skips asan, tsan and kubernetes if the time left is too short for
#                                two cores and an empty compiler cache
#
# The phases e2e and kubernetes run beside those that follow the build, which get a lower priority:
# tests of the real programs mostly wait, and should not wait for processors.
# The counts of a subshell reach this shell through join_beside().
# shellcheck disable=SC2030,SC2031
set -uo pipefail

cd "$(dirname "$0")/.." || exit 1
jobs=$(nproc)
results=$(mktemp -d)
declare -A beside=()  # name → process group in the background
clean_up() {
  local group
  for group in "${beside[@]}"; do kill -- "-$group" 2> /dev/null; done
  rm -rf "$results"
}
trap clean_up EXIT
passed=0 failed=0 skipped=0
failures=()

install=1
within=
phases=()
while [ $# -gt 0 ]; do
  argument=$1
  shift
  case $argument in
    --no-install) install=0 ;;
    --within)
      within=${1-}
      [[ $within =~ ^[1-9][0-9]*$ ]] || { echo "tests/run.sh: --within takes minutes, not '$within'" >&2; exit 2; }
      shift ;;
    -h | --help) sed -n '2,14s/^# \{0,1\}//p' "$0"; exit 0 ;;
    style | build | unit | e2e | cuda | asan | tsan | tidy | kubernetes | image) phases+=("$argument") ;;
    *) echo "tests/run.sh: unknown phase '$argument'; there are style build unit e2e cuda asan tsan tidy kubernetes image" >&2; exit 2 ;;
  esac
done
[ ${#phases[@]} -gt 0 ] || phases=(style build unit e2e cuda asan tsan kubernetes)

heading() { printf '\n== %s (%s)\n' "$1" "$(date +%H:%M:%S)"; }

# check NAME COMMAND…: runs a command as one test; its output is shown if it fails, its seconds if
# they are many.
check() {
  local name=$1 start=$SECONDS taken; shift
  if "$@" > "$results/check.log" 2>&1; then
    taken=$((SECONDS - start))
    if [ "$taken" -ge 10 ]; then echo "ok    $name ($taken s)"; else echo "ok    $name"; fi
    passed=$((passed + 1))
  else
    echo "FAIL  $name"; tail -n 60 "$results/check.log"; failed=$((failed + 1)); failures+=("$name")
  fi
}

minutes_left() { echo $((within - SECONDS / 60)); }
# has_time_for MINUTES NAME: returns whether that many minutes of --within are left, and counts NAME
# as skipped if not.
has_time_for() {
  if [ -z "$within" ] || [ "$(minutes_left)" -ge "$1" ]; then return 0; fi
  skip "$2" "it may take $1 minutes, and $(minutes_left) of $within are left"
  return 1
}
skip() { echo "skip  $1: $2"; skipped=$((skipped + 1)); }

# run_beside NAME COMMAND…: runs one in the background. join_beside NAME waits for its end, prints
# its output and adds its counts.
run_beside() {
  local name=$1; shift
  set -m  # a process group of its own, which clean_up can end
  (
    passed=0 failed=0 skipped=0 failures=()
    results=$(mktemp -d -p "$results")
    "$@"
    { echo "$passed $failed $skipped"; [ ${#failures[@]} -eq 0 ] || printf '%s\n' "${failures[@]}"; } >&3
  ) > "$results/$name.log" 2>&1 3> "$results/$name.counts" < /dev/null &
  beside[$name]=$!
  set +m
}
join_beside() {
  local name=$1 p f s names
  wait "${beside[$name]}"
  unset "beside[$name]"
  cat "$results/$name.log"
  { read -r p f s && mapfile -t names; } < "$results/$name.counts" || { p=0 f=1 s=0 names=("$name ended early"); }
  passed=$((passed + p)); failed=$((failed + f)); skipped=$((skipped + s)); failures+=("${names[@]}")
}

# configure_and_build PRESET [TARGET…]: one test; returns whether it succeeded.
configure_and_build() {
  local preset=$1 before=$failed; shift
  rm -rf "build/$preset/test-results"  # reports of other runs
  check "configure $preset" cmake --preset "$preset"
  [ "$failed" -eq "$before" ] || return 1
  check "build $preset" cmake --build "build/$preset" -j "$jobs" ${1:+--target "$@"}
  [ "$failed" -eq "$before" ]
}

# without_passed_cases: removes the lines with which GoogleTest begins and ends cases that pass, and
# suites.
without_passed_cases() {
  awk '/^\[ RUN  / { begun = $0; next }
       /^\[       OK \]/ { begun = ""; next }
       /^\[-+\]|^$/ { next }
       { if (begun != "") print begun; begun = ""; print }
       END { if (begun != "") print begun }'
}

# run_ctest PRESET CTEST_ARGUMENT…: adds the counts of its cases. Runs as many tests at once as
# there are processors: those that wait leave room for the phases beside them.
run_ctest() {
  local preset=$1 start=$SECONDS; shift
  local report=$results/$preset.xml
  ctest --test-dir "build/$preset" -j "$jobs" --output-on-failure --no-tests=error \
    --output-junit "$report" "$@" > "$results/ctest.log" 2>&1
  local status=$?
  if [ ! -s "$report" ]; then
    tail -n 40 "$results/ctest.log"; failed=$((failed + 1)); failures+=("ctest $preset"); return
  fi
  local counts p f s longest names
  counts=$(tests/ctest_report.py "$report" "build/$preset/test-results")
  { read -r p f s; read -r longest; mapfile -t names; } <<< "$counts"
  echo "$preset: $p passed, $f failed, $s skipped ($((SECONDS - start)) s)"
  echo "  $longest"
  if [ "$f" -gt 0 ] || [ "$status" -ne 0 ]; then
    grep -vE '^ *[0-9]+/[0-9]+ Test .*(Passed|Skipped)|^ +Start' "$results/ctest.log" | without_passed_cases | head -n 400
    failures+=("${names[@]/#/$preset }")
    [ "$f" -gt 0 ] || f=1
  fi
  passed=$((passed + p)); failed=$((failed + f)); skipped=$((skipped + s))
}

sources() { git ls-files -co --exclude-standard -- '*.h' '*.cc' '*.inc' '*.cu' '*.cuh' | while read -r f; do [ -f "$f" ] && echo "$f"; done; }

# Versions of clang-format format some lines differently; Debian 12 and Ubuntu 22.04 have this one.
clang_format_version=14
check_format() {
  local tool version
  tool=$(command -v "clang-format-$clang_format_version" || echo clang-format)
  version=$("$tool" --version 2> /dev/null | sed -n 's/.*version \([0-9]*\).*/\1/p')
  if [ -n "$version" ] && [ "$version" != "$clang_format_version" ]; then
    skip "clang-format" "the layout is that of version $clang_format_version, but version $version is installed"
  else
    check "clang-format" bash -c "$(declare -f sources); sources | xargs $tool --dry-run --Werror"
  fi
}

phase_style() {
  heading "style"
  check "tidy self-test" tests/tidy/tidy.py --self-test
  check "tidy" tests/tidy/tidy.py
  check "links self-test" tests/tidy/links.py --self-test
  check "links" tests/tidy/links.py
  check "messages self-test" tests/tidy/messages.py --self-test
  check "messages" tests/tidy/messages.py
  check_format
  check "shellcheck" bash -c "git ls-files -co --exclude-standard -- '*.sh' '*.sub' .ci/run | xargs shellcheck"
}

# Builds once, for the first phase that needs it; returns whether it succeeded.
ci_build=
phase_build() {
  if [ -z "$ci_build" ]; then
    heading "release build, warnings as errors"
    configure_and_build ci
    ci_build=$?
  fi
  return "$ci_build"
}

phase_unit() {
  phase_build || return
  heading "unit, scenarios, simulation"
  run_ctest ci -LE e2e
}

phase_e2e() {
  phase_build || return
  heading "e2e"
  run_ctest ci -L e2e -E '^test_kubernetes'
}

# Runs on its own control plane, which is built once in two to five minutes.
phase_kubernetes() {
  phase_build || return
  heading "Kubernetes"
  if ! has_time_for 15 "Kubernetes' control plane"; then
    run_ctest ci -R '^test_kubernetes_render\.Render\.'
    return
  fi
  # Tests that need a missing tool are skipped with a message.
  if [ "$install" -eq 1 ]; then
    timeout -k 10 600 tests/e2e/kube_build.py > "$results/kube.log" 2>&1
    case $? in
      0) ;;
      77) skip "Kubernetes' control plane" "$(tail -n 1 "$results/kube.log")" ;;
      124) skip "Kubernetes' control plane" "it was not built within ten minutes" ;;
      *) check "Kubernetes' control plane" bash -c "cat '$results/kube.log'; exit 1" ;;
    esac
  fi
  run_ctest ci -R '^test_kubernetes'
}

# Builds the whole image on its own Debian. It compiles Muster again, which takes half an hour on
# two cores.
phase_image() {
  heading "image"
  check "the image, from its first stage" tests/image.sh cpu
}

phase_asan() {
  heading "address and undefined-behaviour sanitizers"
  has_time_for 38 "asan-ubsan" || return
  export ASAN_OPTIONS=detect_leaks=1:abort_on_error=1 UBSAN_OPTIONS=print_stacktrace=1
  configure_and_build asan-ubsan && run_ctest asan-ubsan -LE e2e
}

phase_tsan() {
  heading "thread sanitizer"
  has_time_for 20 "tsan" || return
  export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1
  configure_and_build tsan muster_tsan_tests && run_ctest tsan -L tsan
}

# run_clang_tidy FILE-LISTING-COMMAND: fails if clang-tidy reports anything in any of the files.
run_clang_tidy() {
  set -o pipefail
  "$@" | xargs -P "$(nproc)" -n 1 clang-tidy -p build/tidy --config-file=.clang-tidy --quiet 2> /dev/null
}
# Lists the product's compiled units: single files or unity files.
product_units() {
  sed -n 's/^  "file": "\(.*\)",\{0,1\}$/\1/p' build/tidy/compile_commands.json | grep -v '/tests/\|/bench/\|/proto/'
}

phase_tidy() {
  heading "clang-tidy"
  check "configure tidy" cmake --preset tidy
  check "generate sources" cmake --build build/tidy -j "$jobs" --target muster_proto
  local bad=$results/use_after_move.cc
  printf '#include <string>\n#include <utility>\nauto f(std::string s) { auto t = std::move(s); return s + t; }\n' > "$bad"
  check "clang-tidy self-test" bash -c "$(declare -f run_clang_tidy); ! run_clang_tidy echo $bad"
  check "clang-tidy" bash -c "$(declare -f run_clang_tidy product_units); run_clang_tidy product_units"
}

# Builds the CUDA backend for one architecture. CUDA's compiler and the libraries' headers come from
# Python wheels, a download of 0.9 GB if they are missing.
phase_cuda() {
  heading "CUDA, compiled for sm_90a"
  local folder=${MUSTER_CUDA_ROOT:-$HOME/.cache/muster/cuda-13.0}
  if [ "$install" -eq 0 ] && [ ! -d "$folder" ]; then
    skip "CUDA" "its compiler is not installed: deploy/install-cuda.sh --compile $folder"
    return
  fi
  if ! timeout -k 10 300 deploy/install-cuda.sh --compile "$folder" > "$results/cuda.log" 2>&1; then
    skip "CUDA" "its compiler cannot be installed: $(tail -n 1 "$results/cuda.log")"
    return
  fi
  check "configure cuda" cmake -G Ninja -S . -B build/cuda -DCMAKE_BUILD_TYPE=Release -DMUSTER_WERROR=ON -DMUSTER_TRAINER_ONLY=ON \
    -DCMAKE_UNITY_BUILD=ON -DCMAKE_UNITY_BUILD_BATCH_SIZE=10 -DMUSTER_CUDA=ON "-DMUSTER_CUDA_ROOT=$folder" -DMUSTER_CUDA_ARCHITECTURES=90a-real
  check "attention by cuDNN is compiled" grep -q '/cudnn_attention\.cc\.o' build/cuda/build.ninja
  check "build cuda" cmake --build build/cuda -j "$jobs" --target gpu_ops_test gpu_model_test gpu_training_test gpu_bench muster-trainer
  # Without a GPU each program links, starts and exits with its status for a missing GPU.
  check "gpu_ops_test without a GPU" bash -c 'CUDA_VISIBLE_DEVICES= build/cuda/bin/gpu_ops_test; [ $? -eq 77 ]'
  check "gpu_training_test without a GPU" bash -c 'CUDA_VISIBLE_DEVICES= build/cuda/bin/gpu_training_test; [ $? -eq 77 ]'
  check "gpu_bench without a GPU" bash -c 'CUDA_VISIBLE_DEVICES= build/cuda/bin/gpu_bench; [ $? -eq 77 ]'
}

# Tests that need a missing tool are skipped with a message.
install_tools() {
  timeout -k 10 400 tests/e2e/kube_tools.py > "$results/kube.log" 2>&1 || skip "helm" "$(tail -n 1 "$results/kube.log")"
  timeout -k 10 900 tests/e2e/store_tools.py > "$results/store.log" 2>&1 || skip "object stores" "$(tail -n 1 "$results/store.log")"
  timeout -k 10 900 tests/e2e/userlands.py > "$results/userlands.log" 2>&1 || skip "minimal Debians" "$(tail -n 1 "$results/userlands.log")"
  timeout -k 10 900 tests/e2e/python_tools.py > "$results/python.log" 2>&1 || skip "Python packages" "$(tail -n 1 "$results/python.log")"
}
run_phases() { for phase in "$@"; do "phase_$phase"; done; }

background=()
foreground=()
for phase in "${phases[@]}"; do
  case $phase in
    style | build) ;;
    e2e | kubernetes) background+=("$phase") ;;
    *) foreground+=("$phase") ;;
  esac
done

if [ "$install" -eq 1 ]; then
  heading "packages"
  check "install packages" deploy/install-deps.sh --tests
  [ ${#background[@]} -eq 0 ] || run_beside tools install_tools
fi
for phase in style build; do
  [[ " ${phases[*]} " != *" $phase "* ]] || "phase_$phase"
done
[ -z "${beside[tools]-}" ] || join_beside tools
if [ ${#background[@]} -gt 0 ] && phase_build; then
  run_beside tests run_phases "${background[@]}"
  renice -n 10 -p $$ > /dev/null
fi
run_phases "${foreground[@]}"
[ -z "${beside[tests]-}" ] || join_beside tests

heading "result"
for name in "${failures[@]}"; do echo "failed: $name"; done
if [ "$skipped" -gt 0 ]; then
  echo "$passed passed, $failed failed, $skipped skipped"
else
  echo "$passed passed, $failed failed"
fi
[ "$failed" -eq 0 ]
