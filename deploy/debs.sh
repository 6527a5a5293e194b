#!/usr/bin/env bash
# Makes the Debian packages muster, muster-coordinator and muster-worker for the distribution of
# this machine. From a build with CUDA, muster-cuda takes the place of muster.
#
#   deploy/debs.sh [--build FOLDER] [--out DIR] [--version V] [--contact "NAME <ADDRESS>"]
#
#   --build FOLDER  a finished build (default: builds a release in build/release)
#   --out DIR       where the packages are written (default: .)
#   --version V     the packages' version (default: that of Muster), for example 0.1.0-2
#   --contact WHO   the packages' maintainer
#
# Installs nothing: deploy/install-deps.sh --bundle installs what it needs.
set -euo pipefail

source=$(cd "$(dirname "$0")/.." && pwd)
build="" out=. version="" contact=""

die() { echo "deploy/debs.sh: $*" >&2; exit 2; }
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) sed -n '2,12s/^# \{0,1\}//p' "$0"; exit 0 ;;
    --build | --out | --version | --contact)
      [ $# -ge 2 ] || die "$1 needs a value"
      declare "${1#--}=$2"; shift 2 ;;
    *) die "unknown argument '$1'; try --help" ;;
  esac
done
[ -d "$out" ] || die "--out $out: there is no such folder"
[ -z "$version" ] || dpkg --validate-version "$version" 2> /dev/null || die "--version $version: not a version of a Debian package"
for program in cpack dpkg-shlibdeps strip python3; do
  command -v "$program" > /dev/null || die "no $program here; deploy/install-deps.sh --bundle installs it"
done
if [ -z "$build" ]; then
  build=$source/build/release
  cmake -S "$source" --preset release -DMUSTER_TESTS=OFF -DMUSTER_BENCH=OFF > /dev/null
  cmake --build "$build"
fi
[ -f "$build/CPackConfig.cmake" ] || die "--build $build: no folder of a build"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ -z "${SOURCE_DATE_EPOCH:-}" ]; then SOURCE_DATE_EPOCH=$(git -C "$source" log -1 --format=%ct || date +%s); fi
export SOURCE_DATE_EPOCH LC_ALL=C
umask 022
cpack --config "$build/CPackConfig.cmake" -B "$work" ${version:+-D "CPACK_PACKAGE_VERSION=$version"} \
  ${contact:+-D "CPACK_PACKAGE_CONTACT=$contact"} > "$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
for package in "$work"/*.deb; do
  mv -f "$package" "$out/"
  echo "$out/${package##*/}: $(du -h --apparent-size "$out/${package##*/}" | cut -f 1)"
done
