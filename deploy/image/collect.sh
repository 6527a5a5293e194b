#!/usr/bin/env bash
# Collects the image's files: Muster's programs with their libraries in /opt/muster, and the parts
# of a system that a process needs.
#
#   deploy/image/collect.sh BIN ROOT [CUDA]
#
# BIN has the programs, built on this system; BIN/../lib has the NCCL profiler plugin. The script
# creates ROOT. CUDA is the folder of deploy/install-cuda.sh. /opt/muster can be moved and copied as
# a whole: programs search for their libraries in ../lib. The copy of this system's C library is
# outside of it, because programs must use the C library of the image that they run in.
set -euo pipefail

fail() { echo "deploy/image/collect.sh: $1" >&2; exit 2; }
if [ $# -lt 2 ] || [ $# -gt 3 ]; then fail "BIN, ROOT and perhaps CUDA are required"; fi
bin=$1 root=$2 cuda=${3:-}
source=$(cd "$(dirname "$0")/../.." && pwd)
programs=(muster muster-text muster-serve muster-coordinator muster-worker muster-trainer)
for program in patchelf strip ldd python3; do command -v "$program" > /dev/null || fail "no $program here"; done
for program in "${programs[@]}"; do [ -x "$bin/$program" ] || fail "$bin has no $program"; done
# NCCL opens the plugin in users' programs, with their C++ library; it needs none of our libraries.
plugin=$bin/../lib/libmuster-nccl-profiler.so
[ -f "$plugin" ] || fail "there is no $plugin"
if [ -e "$root" ]; then fail "$root is there already"; fi

home=$root/opt/muster
mkdir -p "$home"/{bin,lib,share/muster} "$root"/{etc/ssl/certs,tmp,var/lib/muster}
for program in "${programs[@]}"; do cp "$bin/$program" "$home/bin/"; done

# Libraries of the C library's own package, which go with the system's loader.
is_system() {
  case ${1##*/} in
    ld-linux* | libc.so* | libm.so* | libmvec.so* | libpthread.so* | libdl.so* | librt.so* | libresolv.so* | libutil.so* | libanl.so* | libnss_*) return 0 ;;
  esac
  return 1
}
wanted_by() { ldd "$@" | sed -nE 's/.* => (\/[^ ]*) \(0x.*/\1/p; s/^[[:space:]]*(\/[^ ]*ld-linux[^ ]*) \(0x.*/\1/p' | sort -u; }
# GPU libraries are opened by name at run time, and their dependencies are beside them.
gpu=()
if [ -n "$cuda" ]; then
  for library in "$cuda"/nvidia/*/lib/lib*.so.*; do
    [ -e "$library" ] || continue  # the pattern itself if nothing matches
    case ${library##*/} in *.alt.* | *stub*) ;; *) gpu+=("$library") ;; esac
  done
  [ ${#gpu[@]} -gt 0 ] || fail "$cuda has no libraries"
fi
files=()
while IFS= read -r library; do files+=("$library"); done < <(wanted_by "$bin"/muster{,-text,-coordinator,-worker,-trainer})
for library in "${files[@]}"; do
  if is_system "$library"; then
    mkdir -p "$root$(dirname "$library")"
    cp -L "$library" "$root$library"
  else
    cp -L "$library" "$home/lib/"
  fi
done
for library in ${gpu[@]+"${gpu[@]}"}; do cp -L "$library" "$home/lib/"; done
# The C library opens these to resolve names.
for name in libresolv.so.2 libnss_dns.so.2 libnss_files.so.2; do
  found=$(ldconfig -p | sed -nE "s/.*$name .*=> (.*)/\1/p" | head -n 1)
  if [ -n "$found" ]; then mkdir -p "$root$(dirname "$found")" && cp -L "$found" "$root$found"; fi
done
cp "$plugin" "$home/lib/"
patchelf --remove-rpath "$home/lib/${plugin##*/}"
strip --strip-debug "$home"/bin/* "$home/lib/${plugin##*/}"
for program in "$home"/bin/*; do patchelf --force-rpath --set-rpath "\$ORIGIN/../lib" "$program"; done
# Transfers of s3:// and gs:// addresses; needs the C library alone.
tools=()
if rclone=$(command -v rclone); then tools=("$rclone") && cp -L "$rclone" "$home/bin/"; fi

cp -r "$source/configs" "$home/share/muster/"
cp -r "$source/progress" "$home/share/muster/"
cp "$source/LICENSE" "$home/share/muster/"
printf 'root:x:0:0:root:/:/sbin/nologin\nmuster:x:64000:64000:Muster:/var/lib/muster:/sbin/nologin\n' > "$root/etc/passwd"
printf 'root:x:0:\nmuster:x:64000:\n' > "$root/etc/group"
printf 'hosts: files dns\n' > "$root/etc/nsswitch.conf"
if [ -f /etc/ssl/certs/ca-certificates.crt ]; then cp -L /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"; fi
chmod 1777 "$root/tmp"
# The folder cannot change its owner if the image is built without root.
chown 64000:64000 "$root/var/lib/muster" 2> /dev/null || chmod 0777 "$root/var/lib/muster"
"$source/deploy/image/sbom.py" "$root" "$home/share/muster/sbom.spdx.json" "${files[@]}" ${tools[@]+"${tools[@]}"} ${gpu[@]+"${gpu[@]}"}
du -sh "$root" | sed 's/\t.*/ in the image/'
