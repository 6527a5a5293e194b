#!/usr/bin/env bash
# Builds the image from its first stage on, as described in deploy/image/Containerfile, by buildah
# without a daemon. The base image is a Debian from debootstrap, so that no registry of images is
# needed. Needs root.
#
#   tests/image.sh configured [VARIANT]  packages and the build folder; compiles nothing of Muster
#   tests/image.sh cpu|cuda              the image; its programs are run
#
# VARIANT is cpu or cuda. MUSTER_IMAGE_STORE is a folder that retains the results for the next call;
# MUSTER_IMAGE_PRESET is the Containerfile's PRESET. Certificates named by PIP_CERT are also
# installed in the base image.
set -euo pipefail

cd "$(dirname "$0")/.."
fail() { echo "tests/image.sh: $1" >&2; exit 2; }
stage=${1:-}
case $stage in
  -h | --help) sed -n '2,11s/^# \{0,1\}//p' "$0"; exit 0 ;;
  configured) variant=${2:-cpu} ;;
  cpu | cuda) variant=$stage ;;
  *) fail "a stage is required: configured, cpu or cuda" ;;
esac
for program in buildah debootstrap; do command -v "$program" > /dev/null || fail "no $program here"; done
[ "$(id -u)" -eq 0 ] || fail "be root: a base image's folder is root's to make"

store=${MUSTER_IMAGE_STORE:-}
if [ -z "$store" ]; then
  store=$(mktemp -d /var/tmp/muster-image-XXXXXX)
  trap 'b rm --all > /dev/null; rm -rf "$store"' EXIT
fi
# The store contains everything that buildah writes, and compiled files.
export BUILDAH_ISOLATION=chroot TMPDIR=$store/tmp
mkdir -p "$TMPDIR"
b() { buildah --root "$store/storage" --runroot "$store/run" "$@"; }

base=localhost/muster-base preset=${MUSTER_IMAGE_PRESET:-release}
if ! b inspect --type image "$base" > /dev/null 2>&1; then
  debootstrap --variant=minbase bookworm "$TMPDIR/debian" "${MUSTER_DEBIAN_MIRROR:-http://deb.debian.org/debian}"
  container=$(b from scratch)
  b add --quiet "$container" "$TMPDIR/debian" /
  if [ -n "${PIP_CERT:-}" ]; then
    b add --quiet "$container" "$PIP_CERT" /etc/ssl/pip.crt
    b config --env PIP_CERT=/etc/ssl/pip.crt "$container"
  fi
  b commit --quiet --rm "$container" "$base"
  rm -rf "$TMPDIR/debian"
fi
b build --layers -f deploy/image/Containerfile --target "$stage" --build-arg BASE="$base" --build-arg VARIANT="$variant" --build-arg PRESET="$preset" -t "muster:$stage" .

container=$(b from --pull-never "localhost/muster:$stage")
if [ "$stage" = configured ]; then
  b run "$container" -- test -f "/src/build/$preset/build.ninja"
else
  for program in muster muster-text muster-serve muster-coordinator muster-worker muster-trainer; do b run "$container" -- "/opt/muster/bin/$program" --help > /dev/null; done
  b run "$container" -- /opt/muster/bin/muster run /opt/muster/share/muster/configs/base.yml model_name=llama2-tiny run_name=first steps=2 dataset_type=synthetic \
    per_device_batch_size=1 max_target_length=32 base_output_directory=/var/lib/muster/out --ranks 1
fi
b rm "$container" > /dev/null
echo "$stage ($variant) is built"
