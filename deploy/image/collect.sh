#!/usr/bin/env bash
# Collects the image's files: Muster's programs with their libraries in /opt/muster, and the parts
# of a system that a process needs.
#
#   deploy/image/collect.sh BIN ROOT [CUDA]
#
# BIN and CUDA are those of deploy/collect.sh. The script creates ROOT. The copy of this system's C
# library is outside of /opt/muster.
set -euo pipefail

fail() { echo "deploy/image/collect.sh: $1" >&2; exit 2; }
if [ $# -lt 2 ] || [ $# -gt 3 ]; then fail "BIN, ROOT and perhaps CUDA are required"; fi
bin=$1 root=$2
source=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source-path=SCRIPTDIR
. "$source/deploy/libraries.sh"
if [ -e "$root" ]; then fail "$root is there already"; fi

home=$root/opt/muster
list=$(mktemp)
trap 'rm -f "$list"' EXIT
mkdir -p "$root"/{opt,etc/ssl/certs,tmp,var/lib/muster}
"$source/deploy/collect.sh" "$bin" "$home" "$list" "${@:3}"
while IFS= read -r library; do
  is_system "$library" || continue
  mkdir -p "$root$(dirname "$library")"
  cp -L "$library" "$root$library"
  echo "$library" >> "$list"
done < <(wanted_by "$bin"/muster{,-text,-serve,-coordinator,-worker,-trainer})
# The C library opens these to resolve names.
for name in libresolv.so.2 libnss_dns.so.2 libnss_files.so.2; do
  found=$(ldconfig -p | sed -nE "s/.*$name .*=> (.*)/\1/p" | head -n 1)
  if [ -n "$found" ]; then mkdir -p "$root$(dirname "$found")" && cp -L "$found" "$root$found"; fi
done
printf 'root:x:0:0:root:/:/sbin/nologin\nmuster:x:64000:64000:Muster:/var/lib/muster:/sbin/nologin\n' > "$root/etc/passwd"
printf 'root:x:0:\nmuster:x:64000:\n' > "$root/etc/group"
printf 'hosts: files dns\n' > "$root/etc/nsswitch.conf"
if [ -f /etc/ssl/certs/ca-certificates.crt ]; then cp -L /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"; fi
chmod 1777 "$root/tmp"
# The folder cannot change its owner if the image is built without root.
chown 64000:64000 "$root/var/lib/muster" 2> /dev/null || chmod 0777 "$root/var/lib/muster"
"$source/deploy/sbom.py" "$root" "$home/share/muster" "$list"
du -sh "$root" | sed 's/\t.*/ in the image/'
