#!/bin/bash
# Zero-shot evaluation of GPT 126M on Lambada, with the arguments of Pax's script of this name:
#
#   bash scripts/run_lambada_singlenode.sh TFDS_DATA_DIR VOCAB_PATH \
#       [PRECISION [NUM_GPUS [PERCORE_BATCH_SIZE [LOG_DIR]]]] [key=value …]
#
# TFDS_DATA_DIR has the file of scripts/download_lambada.py, and LOG_DIR a checkpoint of
# scripts/run_pile_singlenode.sh. The results are printed, and are in LOG_DIR/evaluations.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

usage="usage: run_lambada_singlenode.sh TFDS_DATA_DIR VOCAB_PATH [PRECISION [NUM_GPUS [PERCORE_BATCH_SIZE [LOG_DIR]]]]"
help_on_request "$usage" "$@"
if [ $# -lt 2 ]; then refuse "$usage"; fi
logs=${6:-test_logdir}
if [ ! -d "$1" ]; then refuse "TFDS_DATA_DIR=$1: there is no such folder; scripts/download_lambada.py fetches Lambada"; fi
if [ ! -e "$2" ]; then refuse "VOCAB_PATH=$2: there is no such file"; fi
if [ ! -d "$logs/checkpoints" ]; then
  refuse "LOG_DIR=$logs: there is no checkpoint in it; scripts/run_pile_singlenode.sh with the same LOG_DIR trains one"
fi
lambada=$1/lambada/lambada_test_en.jsonl
if [ ! -f "$lambada" ]; then refuse "TFDS_DATA_DIR=$1: there is no file $lambada; scripts/download_lambada.py fetches it"; fi
gpus=${4:-8}
require_number NUM_GPUS "$gpus"
words=(CONFIG=Pile126M "VOCAB_PATH=$2" "PREC=${3:-bfloat16}" "PERCORE_BATCH_SIZE=${5:-4}" "LOG_DIR=$logs"
  "--fdl.ICI_MESH_SHAPE=[$gpus,1,1]" "--fdl.DCN_MESH_SHAPE=[1,1,1]" dataset_type=synthetic "eval_tasks=lambada=$lambada" --mode=eval)
if [ $# -gt 6 ]; then shift 6; else shift $#; fi
start "$gpus" "$@"
