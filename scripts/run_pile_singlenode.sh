#!/bin/bash
# GPT 126M on the Pile, on one node, as Pax's script of this name:
#
#   bash scripts/run_pile_singlenode.sh TFDS_DATA_DIR VOCAB_PATH \
#       [PRECISION [NUM_GPUS [PERCORE_BATCH_SIZE [LOG_DIR]]]] [key=value …]
#
# TFDS_DATA_DIR is a data folder of TFDS, a folder of text, or one of token shards; text is
# tokenized at its first use. ENABLE_FP8=1 in the environment trains in fp8.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

if [ $# -lt 2 ]; then refuse "usage: run_pile_singlenode.sh TFDS_DATA_DIR VOCAB_PATH [PRECISION [NUM_GPUS [PERCORE_BATCH_SIZE [LOG_DIR]]]]"; fi
gpus=${4:-8} batch=${5:-4}
require_number NUM_GPUS "$gpus"
require_number PERCORE_BATCH_SIZE "$batch"
without_xla
words=(CONFIG=Pile126M "TFDS_DATA_DIR=$1" "VOCAB_PATH=$2" "PREC=${3:-bfloat16}" "PERCORE_BATCH_SIZE=$batch" "LOG_DIR=${6:-test_logdir}"
  "--fdl.ICI_MESH_SHAPE=[$gpus,1,1]" "--fdl.DCN_MESH_SHAPE=[1,1,1]")
variables ENABLE_FP8
if [ $# -gt 6 ]; then shift 6; else shift $#; fi
start "$gpus" "$@"
