#!/bin/bash
# Zero-shot evaluation of GPT 126M on Lambada, with the arguments of Pax's script of this name:
#
#   bash scripts/run_lambada_singlenode.sh TFDS_DATA_DIR VOCAB_PATH \
#       [PRECISION [NUM_GPUS [PERCORE_BATCH_SIZE [LOG_DIR]]]]
#
# Lambada's accuracy is not part of this version: the script checks its arguments and exits with
# code 3.
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
not_built "the accuracy on Lambada. The loss and perplexity of its text are: muster run CONFIG=Pile126M LOG_DIR=$logs VOCAB_PATH=$2 dataset_type=hf hf_eval_files=$1/lambada/lambada_test_en.jsonl hf_eval_split=train --mode=eval"
