#!/bin/bash
# MaxText's 32B model on synthetic data, as its configs/v5e/32b.sh:
#
#   bash scripts/v5e/32b.sh RUN_NAME=NAME OUTPUT_PATH=FOLDER [STEPS=15] [key=value …]
#
# MaxText has measured this model on multiples of 256 chips. For another number of ranks, append
# keys that set the mesh or the batch size.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

read_arguments "$@"
train global_parameter_scale=32 per_device_batch_size=4 enable_checkpointing=false remat_policy=full dataset_type=synthetic
