#!/usr/bin/env bash
# Makes the Python wheel muster-train: the programs of a bundle, console commands for them, and the
# package `muster`, with a client of the coordinator and hooks for training frameworks.
#
#   deploy/wheel.sh [--bundle ARCHIVE] [--bin DIR] [--pure] [--out DIR]
#
#   --bundle ARCHIVE  an archive of deploy/bundle.sh (default: makes one)
#   --bin DIR         the programs of that bundle, as of deploy/bundle.sh --bin
#   --pure            the Python package alone, without programs, for any platform
#   --out DIR         where the wheel is written (default: .)
#
# PYTHON names the interpreter (default: python3). If it lacks the build requirements of
# python/pyproject.toml, pip fetches them. Two calls for one commit and one archive give wheels
# with the same bits.
set -euo pipefail

source=$(cd "$(dirname "$0")/.." && pwd)
python=${PYTHON:-python3}
bundle="" bin="" pure="" out=.

usage() { sed -n '2,14s/^# \{0,1\}//p' "$0"; }
die() { echo "deploy/wheel.sh: $*" >&2; exit 2; }
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) usage; exit 0 ;;
    --pure) pure=1; shift ;;
    --bundle | --bin | --out)
      [ $# -ge 2 ] || die "$1 needs a value"
      declare "${1#--}=$2"; shift 2 ;;
    *) die "unknown argument '$1'; try --help" ;;
  esac
done
[ -d "$out" ] || die "--out $out: there is no such folder"
[ -z "$pure" ] || [ -z "$bundle$bin" ] || die "--pure makes a wheel without programs: omit --bundle and --bin"
[ -z "$bundle" ] || [ -f "$bundle" ] || die "--bundle $bundle: there is no such file"
command -v "$python" > /dev/null || die "no $python here; set PYTHON"
if [ -z "${SOURCE_DATE_EPOCH:-}" ]; then
  SOURCE_DATE_EPOCH=$(git -C "$source" log -1 --format=%ct) ||
    die "set SOURCE_DATE_EPOCH: git has no time of the commit"
fi
export SOURCE_DATE_EPOCH

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
MUSTER_BUNDLE=""
if [ -z "$pure" ]; then
  if [ -z "$bundle" ]; then
    "$source/deploy/bundle.sh" --level 1 --out "$work" ${bin:+--bin "$bin"} > /dev/null
    bundle=$(echo "$work"/*.tar.zst)
  fi
  mkdir "$work/home"
  tar -C "$work/home" --strip-components=1 --zstd -xf "$bundle"
  MUSTER_BUNDLE=$work/home
fi
export MUSTER_BUNDLE

# Another version of grpcio-tools may write messages for newer versions of protobuf only.
has_requirements='
import importlib.metadata, pkg_resources, sys
import hatchling
sys.exit(importlib.metadata.version("grpcio-tools") != sys.argv[1])'
requires=$(sed -n 's/^requires = //p' "$source/python/pyproject.toml")
tools=$(sed -n 's/.*grpcio-tools==\([0-9.]*\).*/\1/p' <<< "$requires")
if ! "$python" -W ignore -c "$has_requirements" "$tools" 2> /dev/null; then
  "$python" -m venv "$work/venv"
  python=$work/venv/bin/python
  "$python" -c 'import ast, sys; print(*ast.literal_eval(sys.argv[1]), sep="\n")' "$requires" > "$work/requirements"
  "$python" -m pip install --quiet --no-input --disable-pip-version-check --requirement "$work/requirements"
fi
(cd "$source/python" && "$python" -m hatchling build --target wheel --directory "$work/wheel") > "$work/log" 2>&1 ||
  { cat "$work/log" >&2; die "the wheel cannot be built"; }
wheel=$(echo "$work"/wheel/*.whl)
mv -f "$wheel" "$out/"
echo "$out/${wheel##*/}: $(du -h --apparent-size "$out/${wheel##*/}" | cut -f 1)"
