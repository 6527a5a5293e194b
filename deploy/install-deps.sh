#!/usr/bin/env bash
# Installs missing packages of the distribution (Debian 12/13, Ubuntu 22.04/24.04). Root, or sudo.
#
#   deploy/install-deps.sh            for building and running
#   deploy/install-deps.sh --tests    also for tests/run.sh
#   deploy/install-deps.sh --bundle   also for deploy/bundle.sh and deploy/debs.sh
#   deploy/install-deps.sh --data     only the package with the sample text
set -euo pipefail

# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/progress.sh"

build=(
  ca-certificates git g++ cmake ninja-build pkg-config python3
  libgrpc++-dev libssl-dev libprotobuf-dev protobuf-compiler protobuf-compiler-grpc libabsl-dev
  libboost-dev libboost-system-dev nlohmann-json3-dev libcjose-dev libjansson-dev libyaml-cpp-dev libcli11-dev libspdlog-dev
  libsqlite3-dev libgoogle-perftools-dev prometheus-cpp-dev libdw-dev libhwloc-dev zlib1g-dev libxxhash-dev libdnnl-dev libhwy-dev libgloo-dev libsentencepiece-dev libzstd-dev libsimdjson-dev libpcre2-dev libutf8proc-dev
  rclone  # s3:// and gs:// addresses
)
bundle=(patchelf binutils dpkg-dev zstd)
optional=(ccache mold)  # faster builds, if the distribution has them
tests=(libgtest-dev libgmock-dev clang-tidy libomp-dev clang-format shellcheck procps openssl buildah debootstrap man-db "${bundle[@]}"
  # the end-to-end tests run these programs
  iproute2 prometheus prometheus-alertmanager etcd-server slurm-wlm munge libslurm-dev)
optional_tests=(lintian  # for the tests of Debian packages
  python3-torch  # for the test that runs users' unchanged scripts under `muster run`
  chromium  # for the tests of the coordinator's page
  zsh fish)  # for the tests of completion
data=(bible-kjv)

case ${1:-} in
  "") chosen=("${build[@]}") ;;
  --tests) chosen=("${build[@]}" "${tests[@]}") optional+=("${optional_tests[@]}") ;;
  --bundle) chosen=("${build[@]}" "${bundle[@]}") ;;
  --data) chosen=("${data[@]}") optional=() ;;
  -h | --help) sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 0 ;;
  *) echo "deploy/install-deps.sh: unknown argument '$1'; try --help" >&2; exit 2 ;;
esac

if ! command -v apt-get > /dev/null; then
  echo "deploy/install-deps.sh: no apt-get here; install these packages by hand: ${chosen[*]}" >&2
  exit 1
fi

is_installed() { dpkg-query -W -f '${Status}' "$1" 2> /dev/null | grep -q '^install ok installed$'; }
missing=()
for package in "${chosen[@]}"; do is_installed "$package" || missing+=("$package"); done
needed=${#missing[@]}
add_optional() {
  for package in "${optional[@]}"; do
    if ! is_installed "$package" && apt-cache show "$package" > /dev/null 2>&1; then missing+=("$package"); fi
  done
}
add_optional
if [ "$needed" -eq 0 ] && { [ ${#missing[@]} -eq 0 ] || [ "$(id -u)" -ne 0 ]; }; then
  echo "all ${#chosen[@]} packages are there"
  exit 0
fi

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo > /dev/null; then
    echo "deploy/install-deps.sh: be root or have sudo to install: ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi

# Runs apt-get without questions; its output is shown only if it fails.
apt() {
  local label=$1; shift
  with_progress "$label" '^[dp][lm]status:[^:]*:([0-9]+)[^:]*:(.*)' '\1 100 \2' \
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o APT::Status-Fd=1 "$@"
}
get() {
  echo "installing $#: $*"
  apt "download" install -y --no-install-recommends --download-only "$@" &&
    apt "install" install -y --no-install-recommends "$@"
}
install() {
  apt "package lists" update || [ "$needed" -eq 0 ] || return 1
  [ "$needed" -eq 0 ] || get "${missing[@]:0:needed}" || return 1
  # The optional packages are known only with the package lists, which an image of the distribution
  # lacks.
  missing=() && add_optional
  [ ${#missing[@]} -eq 0 ] || get "${missing[@]}" || echo "deploy/install-deps.sh: continues without ${missing[*]}" >&2
}
"${as_root[@]}" true  # sudo prompts for its password before a bar is drawn
# Tests start etcd and Prometheus themselves, so the packages' services must not occupy their ports.
policy=/usr/sbin/policy-rc.d
if [ "${1:-}" = --tests ] && [ ! -e "$policy" ]; then
  trap '"${as_root[@]}" rm -f "$policy"' EXIT
  printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee "$policy" > /dev/null
  "${as_root[@]}" chmod 755 "$policy"
fi
if ! install; then
  echo "deploy/install-deps.sh: these packages could not be installed: ${missing[*]}" >&2
  exit 1
fi
