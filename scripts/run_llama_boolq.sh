#!/bin/bash
# Supervised fine-tuning of LLaMA-2 on BoolQ, with the variables and defaults of Pax's script of
# this name:
#
#   VOCAB_PATH=… TFDS_DATA_DIR=… CHECKPOINT_RESTORE_PATH=… [CONFIG=LLaMA7B LOG_DIR=/tmp/llama
#       LEARNING_RATE=1e-6 LR_SCHEDULE=linear_rampup_cosine_decay LR_COS_WARMUP=500 MAX_STEPS=1000
#       PERCORE_BATCH_SIZE=2 MAX_SEQ_LEN=4096 ICI_MESH_SHAPE=[1,8,1] DCN_MESH_SHAPE=[1,2,1]] \
#       bash scripts/run_llama_boolq.sh [key=value …]
#
# The loss counts the answers only. The samples and their tokens go to LOG_DIR/boolq. EVAL_ONLY=1
# evaluates the checkpoint on NUM_GPUS (8) ranks. TFDS_DATA_DIR has the files of
# scripts/download_boolq.py. USE_LORA=1 trains adapters of the rank LORA_RANK (32) in
# LORA_TARGET_LAYERS (all, attention or mlp).
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
if is_on "${EVAL_ONLY:-}"; then
  if [ -z "${CHECKPOINT_RESTORE_PATH:-}" ]; then refuse "EVAL_ONLY=$EVAL_ONLY: CHECKPOINT_RESTORE_PATH is not set"; fi
  EVAL_ONLY=0
  only_training
  gpus=${NUM_GPUS:-8}
  require_number NUM_GPUS "$gpus"
  words=("CONFIG=$CONFIG" "VOCAB_PATH=$VOCAB_PATH" "CHECKPOINT_RESTORE_PATH=$CHECKPOINT_RESTORE_PATH" "LOG_DIR=${LOG_DIR:-/tmp/llama}"
    "--fdl.ICI_MESH_SHAPE=[1,$gpus,1]" "--fdl.DCN_MESH_SHAPE=[1,1,1]")
  variables PREC PERCORE_BATCH_SIZE
  evaluates_boolq "$TFDS_DATA_DIR"
  start "$gpus" "$@"
fi
only_training
questions=$TFDS_DATA_DIR/bool_q/train.jsonl
if [ ! -e "$questions" ]; then refuse "$questions: there is no such file; scripts/download_boolq.py fetches BoolQ"; fi
without_xla

LOG_DIR=${LOG_DIR:-/tmp/llama}
ICI_MESH_SHAPE=${ICI_MESH_SHAPE:-[1,8,1]}
mkdir -p "$LOG_DIR/boolq" || refuse "LOG_DIR=$LOG_DIR: cannot make the folder"
python3 "$scripts/boolq_samples.py" "$questions" "$LOG_DIR/boolq/train.jsonl" || exit 2
"$muster" tokenize --sft --bos --text "$LOG_DIR/boolq/train.jsonl" --tokenizer "$VOCAB_PATH" --out "$LOG_DIR/boolq/tokens" || exit
words=("CONFIG=$CONFIG" "VOCAB_PATH=$VOCAB_PATH" "LOG_DIR=$LOG_DIR/llama-$CONFIG" dataset_type=shards "dataset_path=$LOG_DIR/boolq/tokens" use_sft=True
  "--fdl.ICI_MESH_SHAPE=$ICI_MESH_SHAPE" "--fdl.DCN_MESH_SHAPE=${DCN_MESH_SHAPE:-[1,2,1]}" "PERCORE_BATCH_SIZE=${PERCORE_BATCH_SIZE:-2}"
  "--fdl.MAX_SEQ_LEN=${MAX_SEQ_LEN:-4096}" "--fdl.MAX_STEPS=${MAX_STEPS:-1000}" "--fdl.LEARNING_RATE=${LEARNING_RATE:-1e-6}"
  "--fdl.LR_SCHEDULE=${LR_SCHEDULE:-linear_rampup_cosine_decay}" "--fdl.LR_COS_WARMUP=${LR_COS_WARMUP:-500}")
variables CHECKPOINT_RESTORE_PATH ENABLE_TE
lora_variables
if is_on "${USE_LORA:-}"; then variables USE_LORA LORA_RANK LORA_TARGET_LAYERS; fi
# The ranks of a node: the product of the numbers in ICI_MESH_SHAPE.
gpus=1
for degree in ${ICI_MESH_SHAPE//[^0-9]/ }; do gpus=$((gpus * degree)); done
start "$gpus" "$@"
