#!/usr/bin/env bash
# Makes a bundle: one archive with Muster's programs, their libraries, presets, wrappers, completion
# and manual pages. It is unpacked anywhere, without root, on any x86-64 Linux whose C library is
# glibc 2.34 or newer, and is removed by removing its folder.
#
#   deploy/bundle.sh [--cuda FOLDER] [--bin DIR] [--out DIR] [--level N]
#
#   --cuda FOLDER  also for NVIDIA's GPUs, with the libraries of deploy/install-cuda.sh FOLDER
#   --bin DIR      the programs built there (default: builds a release in build/release, or in
#                  build/release-cuda)
#   --out DIR      where the archive and its checksum are written (default: .)
#   --level N      zstd's level of compression, 1 to 19 (default 19: a minute)
#
# Two calls for one commit and one build give archives with the same bits. Installs nothing:
# deploy/install-deps.sh --bundle installs what it needs.
set -euo pipefail

source=$(cd "$(dirname "$0")/.." && pwd)
floor=2.34
cuda="" bin="" out=. level=19

usage() { sed -n '2,17s/^# \{0,1\}//p' "$0"; }
die() { echo "deploy/bundle.sh: $*" >&2; exit 2; }
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) usage; exit 0 ;;
    --cuda | --bin | --out | --level)
      [ $# -ge 2 ] || die "$1 needs a value"
      declare "${1#--}=$2"; shift 2 ;;
    *) die "unknown argument '$1'; try --help" ;;
  esac
done
[[ $level =~ ^[1-9]$|^1[0-9]$ ]] || die "--level $level: a number from 1 to 19 is required"
[ -d "$out" ] || die "--out $out: there is no such folder"
[ -z "$cuda" ] || [ -d "$cuda/nvidia/nccl/lib" ] ||
  die "--cuda $cuda: no complete folder of deploy/install-cuda.sh"
[ "$(uname -m)" = x86_64 ] || die "this machine is $(uname -m), not x86_64"
for program in patchelf readelf strip ldd zstd gcc python3; do
  command -v "$program" > /dev/null || die "no $program here; deploy/install-deps.sh --bundle installs it"
done

if [ -z "$bin" ]; then
  preset=release
  options=(-DMUSTER_TESTS=OFF -DMUSTER_BENCH=OFF)
  if [ -n "$cuda" ]; then
    preset=release-cuda
    options+=(-B "$source/build/$preset" -DMUSTER_CUDA=ON -DMUSTER_CUDA_ROOT="$(cd "$cuda" && pwd)")
  fi
  cmake -S "$source" --preset release "${options[@]}" > /dev/null
  cmake --build "$source/build/$preset"
  bin=$source/build/$preset/bin
fi
[ -x "$bin/muster" ] || die "--bin $bin: there is no program muster"
if [ -n "$cuda" ] && ! grep -q 'libcublasLt\.so' "$bin/muster-trainer"; then
  die "--bin $bin: its muster-trainer has no CUDA backend"
fi

version=$("$bin/muster" version | cut -d ' ' -f 2)
name=muster-$version-linux-x86_64${cuda:+-cuda13}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
home=$work/$name
# The time of the last commit, so that it does not depend on when the bundle is made.
if [ -z "${SOURCE_DATE_EPOCH:-}" ]; then
  SOURCE_DATE_EPOCH=$(git -C "$source" log -1 --format=%ct) ||
    die "set SOURCE_DATE_EPOCH: git has no time of the commit"
fi
export SOURCE_DATE_EPOCH LC_ALL=C TZ=UTC

"$source/deploy/collect.sh" "$bin" "$home" "$work/list" ${cuda:+"$cuda"}
gcc -O2 -shared -fPIC -nodefaultlibs -Wl,--build-id=none -o "$home/lib/libmuster-compat.so" \
  "$source/deploy/bundle/compat.c" -lc
"$source/deploy/bundle/lower_glibc.py" "$home" "$floor"
for program in "$home"/bin/muster*; do
  patchelf --add-needed libmuster-compat.so "$program"
  env -i "$program" --help > /dev/null || die "${program##*/} does not start in the bundle"
done
"$source/deploy/bundle/man_pages.py" "$home/bin" "$home/share" muster muster-coordinator muster-worker
sed "s/@VERSION@/$version/g; s/@FLOOR@/$floor/g" "$source/deploy/bundle/README.in" > "$home/README"
"$source/deploy/sbom.py" "$home" "$home/share/muster" "$work/list"

chmod -R u+rwX,go+rX,go-w "$home"
tar -C "$work" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" \
  --format=posix --pax-option=exthdr.name=%d/PaxHeaders/%f,delete=atime,delete=ctime -c "$name" |
  zstd -q -T0 "-$level" -f -o "$work/$name.tar.zst"
mv -f "$work/$name.tar.zst" "$out/"
(cd "$out" && sha256sum "$name.tar.zst" > "$name.tar.zst.sha256")
echo "$out/$name.tar.zst: $(du -h --apparent-size "$out/$name.tar.zst" | cut -f 1), unpacked $(du -sh "$home" | cut -f 1)"
