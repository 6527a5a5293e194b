#!/bin/bash
# Supervised fine-tuning of LLaMA-2 on BoolQ, with the variables and defaults of Pax's script of
# this name:
#
#   VOCAB_PATH=… TFDS_DATA_DIR=… CHECKPOINT_RESTORE_PATH=… [CONFIG=LLaMA7B LOG_DIR=/tmp/llama
#       LEARNING_RATE=1e-6 LR_SCHEDULE=linear_rampup_cosine_decay LR_COS_WARMUP=500 MAX_STEPS=1000
#       PERCORE_BATCH_SIZE=2 MAX_SEQ_LEN=4096 ICI_MESH_SHAPE=[1,8,1] DCN_MESH_SHAPE=[1,2,1]] \
#       bash scripts/run_llama_boolq.sh [key=value …]
#
# The loss counts the answers only; at the end the run evaluates the questions of dev.jsonl. The
# samples and their tokens go to LOG_DIR/boolq (./boolq if LOG_DIR is an object store), the run to
# LOG_DIR/llama-CONFIG. EVAL_ONLY=1 evaluates the checkpoint on NUM_GPUS (8) ranks, with
# USE_LORA=1 together with the newest adapters of the run. TFDS_DATA_DIR has the files of
# scripts/download_boolq.py. USE_LORA=1 trains adapters of the rank LORA_RANK (32) in
# LORA_TARGET_LAYERS (all, attention, mlp) with Pax's defaults for them: 600 steps, a constant
# learning rate of 1e-4, ICI_MESH_SHAPE=[8,1,1] and DCN_MESH_SHAPE=[1,1,1].
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
LOG_DIR=${LOG_DIR:-/tmp/llama}
if is_on "${EVAL_ONLY:-}"; then
  if [ -z "${CHECKPOINT_RESTORE_PATH:-}" ]; then refuse "EVAL_ONLY=$EVAL_ONLY: CHECKPOINT_RESTORE_PATH is not set"; fi
  gpus=${NUM_GPUS:-8}
  require_number NUM_GPUS "$gpus"
  words=("CONFIG=$CONFIG" "VOCAB_PATH=$VOCAB_PATH" "CHECKPOINT_RESTORE_PATH=$CHECKPOINT_RESTORE_PATH" "LOG_DIR=$LOG_DIR/llama-$CONFIG"
    "--fdl.ICI_MESH_SHAPE=[1,$gpus,1]" "--fdl.DCN_MESH_SHAPE=[1,1,1]")
  variables PREC PERCORE_BATCH_SIZE
  lora_variables
  evaluates_boolq "$TFDS_DATA_DIR"
  start "$gpus" "$@"
fi
without_xla

if is_on "${USE_LORA:-}"; then ici="[8,1,1]" dcn="[1,1,1]"; else ici="[1,8,1]" dcn="[1,2,1]"; fi
ICI_MESH_SHAPE=${ICI_MESH_SHAPE:-$ici}
words=("CONFIG=$CONFIG" "VOCAB_PATH=$VOCAB_PATH" "LOG_DIR=$LOG_DIR/llama-$CONFIG" "--fdl.ICI_MESH_SHAPE=$ICI_MESH_SHAPE"
  "--fdl.DCN_MESH_SHAPE=${DCN_MESH_SHAPE:-$dcn}")
variables CHECKPOINT_RESTORE_PATH ENABLE_TE PREC
case $LOG_DIR in *://*) samples=boolq ;; *) samples=$LOG_DIR/boolq ;; esac
fine_tunes_boolq "$TFDS_DATA_DIR" "$VOCAB_PATH" "$samples"
# The ranks of a node: the product of the numbers in ICI_MESH_SHAPE.
gpus=1
for degree in ${ICI_MESH_SHAPE//[^0-9]/ }; do gpus=$((gpus * degree)); done
start "$gpus" "$@"
