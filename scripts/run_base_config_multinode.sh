#!/bin/bash
# Any of Pax's base configs, on the nodes of a Slurm job or on this machine, as Pax's script of this
# name:
#
#   bash scripts/run_base_config_multinode.sh CONFIG [PRECISION [NUM_GPUS [LOG_DIR \
#       [TFDS_DATA_DIR [VOCAB_PATH [ADDITIONAL_ARGS]]]]]] [key=value …]
#
# NUM_GPUS is the number of GPUs of a node; TFDS_DATA_DIR is None for synthetic data.
# slurm/launch_base_script.sub is a complete job.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

usage="usage: run_base_config_multinode.sh CONFIG [PRECISION [NUM_GPUS [LOG_DIR [TFDS_DATA_DIR [VOCAB_PATH [ADDITIONAL_ARGS]]]]]]"
help_on_request "$usage" "$@"
if [ $# -lt 1 ]; then refuse "$usage"; fi
leave_to_first_task
gpus=${3:-8} data=${5:-None}
require_number NUM_GPUS "$gpus"
without_xla
words=("CONFIG=$1" "PREC=${2:-bfloat16}" "LOG_DIR=${4:-test_logdir}")
case $data in
  None) case $1 in Synthetic*) ;; *) words+=(dataset_type=synthetic) ;; esac ;;
  *) words+=("TFDS_DATA_DIR=$data") ;;
esac
if [ -n "${6:-}" ]; then words+=("VOCAB_PATH=$6"); fi
# One argument with several flags, as the original splits it.
read -r -a additional <<< "${7:-}"
words+=("${additional[@]}")
variables PERCORE_BATCH_SIZE ENABLE_FP8
if [ $# -gt 7 ]; then shift 7; else shift $#; fi
start "$gpus" "$@"
