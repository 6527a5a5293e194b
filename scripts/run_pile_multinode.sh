#!/bin/bash
# GPT 126M on the Pile, on the nodes of a Slurm job, as Pax's script of this name:
#
#   bash scripts/run_pile_multinode.sh TFDS_DATA_DIR VOCAB_PATH \
#       [PRECISION [NUM_GPUS [PERCORE_BATCH_SIZE [LOG_DIR]]]] [key=value …]
#
# NUM_GPUS is the number of GPUs of a node. Under `srun` the first task starts everything;
# slurm/example_slurm_pile.sub is a complete job.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

if [ $# -ge 2 ]; then leave_to_first_task; fi
pile_126m run_pile_multinode.sh "${SLURM_JOB_NUM_NODES:-1}" "$@"
