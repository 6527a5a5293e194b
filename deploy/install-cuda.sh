#!/usr/bin/env bash
# Installs CUDA's compiler and libraries into FOLDER from Python wheels. Needs neither root nor a
# GPU. Downloads 1.2 GB and takes 1.9 GB on disk.
#
#   deploy/install-cuda.sh FOLDER            all that builds with -DMUSTER_CUDA=ON, and what a run
#   opens
#   deploy/install-cuda.sh --compile FOLDER  only to compile: no NCCL, no NVRTC, 0.9 GB of download
#
# Then: cmake … -DMUSTER_CUDA=ON -DMUSTER_CUDA_ROOT=FOLDER
set -euo pipefail

# Versions that fit together. One call of pip installs all, because a second call would remove files
# of the first.
compile=(
  nvidia-cuda-nvcc==13.0.88 nvidia-cuda-crt==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-runtime==13.0.96 nvidia-cuda-cccl==13.0.85
  nvidia-cublas==13.1.0.3 nvidia-nvtx==13.0.85 nvidia-cudnn-cu13==9.19.0.56 nvidia-cudnn-frontend==1.18.0
)
run=(nvidia-cuda-nvrtc==13.0.88 nvidia-nccl-cu13==2.28.9)

wheels=("${compile[@]}" "${run[@]}")
case ${1:-} in
  -h | --help) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 0 ;;
  --compile) wheels=("${compile[@]}"); shift ;;
esac
if [ $# -ne 1 ] || [ -z "$1" ] || [[ $1 == -* ]]; then
  echo "deploy/install-cuda.sh: name one folder; try --help" >&2
  exit 2
fi
mkdir -p "$1"
folder=$(cd "$1" && pwd)
sdk=$folder/nvidia/cu13
is_whole() {
  [ -e "$folder/include/cudnn_frontend.h" ] && [ -e "$folder/nvidia/cudnn/include/cudnn.h" ] && { [ ${#wheels[@]} -eq ${#compile[@]} ] || [ -d "$folder/nvidia/nccl" ]; }
}
if is_whole && [ -x "$sdk/bin/nvcc" ] && "$sdk/bin/nvcc" --version > /dev/null 2>&1 && [ -e "$sdk/include/nvtx3/nvToolsExt.h" ]; then
  echo "CUDA is there: $sdk"
  exit 0
fi

# Debian's pip may be missing, or may refuse to install beside its packages; --target does not touch
# those.
pip=(python3 -m pip)
if ! "${pip[@]}" --version > /dev/null 2>&1; then
  echo "deploy/install-cuda.sh: python3 has no pip here; install python3-pip, or call this with a virtual environment's python3 first in PATH" >&2
  exit 1
fi
echo "downloading ${#wheels[@]} wheels to $folder"
"${pip[@]}" install --quiet --disable-pip-version-check --no-deps --only-binary :all: --no-compile --upgrade --target "$folder" "${wheels[@]}"

# Wheels have neither lib64, which compilers search, nor unversioned links, which linkers need.
[ -e "$sdk/lib64" ] || ln -s lib "$sdk/lib64"
for library in "$folder"/nvidia/*/lib/lib*.so.*; do
  name=${library##*/}
  case $name in *.alt.*) continue ;; esac
  link=${library%/*}/${name%%.so.*}.so
  [ -e "$link" ] || ln -s "$name" "$link"
done
"$sdk/bin/nvcc" --version | tail -n 2
echo "CUDA is there: cmake … -DMUSTER_CUDA=ON -DMUSTER_CUDA_ROOT=$folder"
