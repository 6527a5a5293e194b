#!/usr/bin/env bash
# Collects Muster's programs, their libraries and their files in one folder, which can be moved and
# copied as a whole: programs search for their libraries in ../lib. The C library is not in it,
# because programs must use that of the system on which they run.
#
#   deploy/collect.sh BIN HOME LIST [CUDA]
#
# BIN is the folder bin of a build on this system, whose list of files is cmake/MusterInstall.cmake.
# The script creates HOME, and LIST with the paths of the files that are not of this tree, one per
# line: those that deploy/sbom.py expects. CUDA is the folder of deploy/install-cuda.sh.
set -euo pipefail

fail() { echo "deploy/collect.sh: $1" >&2; exit 2; }
if [ $# -lt 3 ] || [ $# -gt 4 ]; then fail "BIN, HOME, LIST and perhaps CUDA are required"; fi
bin=$1 home=$2 list=$3 cuda=${4:-}
source=$(cd "$(dirname "$0")/.." && pwd)
# shellcheck source-path=SCRIPTDIR
. "$source/deploy/libraries.sh"
programs=(muster muster-text muster-serve muster-coordinator muster-worker muster-trainer)
for program in cmake patchelf ldd; do command -v "$program" > /dev/null || fail "no $program here"; done
for program in "${programs[@]}"; do [ -x "$bin/$program" ] || fail "$bin has no $program"; done
[ -f "$bin/../cmake_install.cmake" ] || fail "$bin is not the folder bin of a build"
if [ -e "$home" ]; then fail "$home is there already"; fi

# GPU libraries are opened by name at run time, and their dependencies are beside them.
gpu=()
if [ -n "$cuda" ]; then
  for library in "$cuda"/nvidia/*/lib/lib*.so.*; do
    [ -e "$library" ] || continue  # the pattern itself if nothing matches
    case ${library##*/} in *.alt.* | *stub*) ;; *) gpu+=("$library") ;; esac
  done
  [ ${#gpu[@]} -gt 0 ] || fail "$cuda has no libraries"
fi

for component in muster muster-coordinator muster-worker muster-relocatable; do
  cmake --install "$bin/.." --component "$component" --prefix "$home" > /dev/null
done
: > "$list"
copy() { cp -L "$1" "$2" && echo "$1" >> "$list"; }
missing=$(ldd "${programs[@]/#/$bin/}" | sed -n 's/^[[:space:]]*\(.*\) => not found/\1/p' | sort -u)
[ -z "$missing" ] || fail "the programs do not find $missing"
while IFS= read -r library; do
  is_system "$library" || copy "$library" "$home/lib/"
done < <(wanted_by "${programs[@]/#/$bin/}")
# NCCL opens this library by its name, and must find the system's, which finds its drivers.
if [ -e "$home/lib/libibverbs.so.1" ]; then
  mv "$home/lib/libibverbs.so.1" "$home/lib/libmuster-ibverbs.so.1"
  patchelf --set-soname libmuster-ibverbs.so.1 "$home/lib/libmuster-ibverbs.so.1"
  for library in "$home"/lib/*; do
    if patchelf --print-needed "$library" | grep -qx libibverbs.so.1; then
      patchelf --replace-needed libibverbs.so.1 libmuster-ibverbs.so.1 "$library"
    fi
  done
fi
for program in "$home"/bin/*; do patchelf --force-rpath --set-rpath "\$ORIGIN/../lib" "$program"; done
for library in ${gpu[@]+"${gpu[@]}"}; do copy "$library" "$home/lib/"; done
# Transfers of s3:// and gs:// addresses; needs the C library alone. Only the distribution's: the
# licence of another one is unknown.
if rclone=$(command -v rclone) && dpkg-query -S "$(readlink -f "$rclone")" > /dev/null 2>&1; then copy "$rclone" "$home/bin/"; fi
