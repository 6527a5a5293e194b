#!/bin/bash
# Fine-tuning of LLaMA-2 on BoolQ and its zero-shot accuracy, with the variables of Pax's script of
# this name:
#
#   VOCAB_PATH=… TFDS_DATA_DIR=… CHECKPOINT_RESTORE_PATH=… CONFIG=LLaMA7B EVAL_ONLY=0 USE_LORA=0 \
#       bash scripts/run_llama_boolq.sh
#
# Neither is part of this version: the script checks its variables and exits with code 3.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

help_on_request "usage: VOCAB_PATH=FILE TFDS_DATA_DIR=FOLDER [CHECKPOINT_RESTORE_PATH=FOLDER CONFIG=LLaMA7B EVAL_ONLY=0 USE_LORA=0] run_llama_boolq.sh" "$@"
for name in VOCAB_PATH TFDS_DATA_DIR; do
  if [ -z "${!name:-}" ]; then refuse "$name is not set; VOCAB_PATH and TFDS_DATA_DIR are required"; fi
  if [ ! -e "${!name}" ]; then refuse "$name=${!name}: there is no such file; scripts/download_boolq.py fetches BoolQ"; fi
done
case ${CONFIG:=LLaMA7B} in
  LLaMA7B | LLaMA13B | LLaMA70B) ;;
  *) refuse "CONFIG=$CONFIG: LLaMA7B, LLaMA13B or LLaMA70B is required" ;;
esac
leave_to_first_task
only_training
not_built "fine-tuning on BoolQ. Pre-training from a checkpoint is: muster run CONFIG=$CONFIG CHECKPOINT_RESTORE_PATH=FOLDER TFDS_DATA_DIR=FOLDER VOCAB_PATH=FILE"
