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

pile_126m run_pile_singlenode.sh 1 "$@"
