# Common functions of the wrappers in this folder, which source it. They find `muster` and convert
# the variables of MaxText's, Pax' and the Llama recipe's scripts to one command line of `muster
# slurm run`, which does the rest.
#
# The functions below fill the arrays `options` (of muster slurm run) and `words` (the training
# command); start_job starts the job.
# shellcheck shell=bash
set -euo pipefail

options=() words=()

say() { echo "muster: $*" >&2; }

# refuse TEXT: reports bad input and ends the job before anything starts.
refuse() { say "error: $*"; exit 2; }

# Slurm runs a copy with another name; a script with its own name was not submitted.
case ${0##*/} in
  *.sub | launch.sh) [ -n "${SLURM_JOB_ID:-}" ] || refuse "not in a Slurm job: submit it with sbatch -N NODES $0; without Slurm, muster run trains on this machine" ;;
esac

# not_built TEXT: reports a feature that this version does not have, and ends the job.
not_built() { say "not built yet: $*"; exit 3; }

# without_effect NAME WHY: prints a warning when the variable is set, and unsets it: `muster` reads
# exported variables, too.
without_effect() {
  [ -z "${!1:-}" ] || say "warning: $1=${!1} has no effect: $2"
  unset "$1"
}

# Warns about variables for JAX that no program here reads.
without_xla() {
  local name
  for name in XLA_FLAGS BASE_XLA_FLAGS XLA_PYTHON_CLIENT_MEM_FRACTION; do without_effect "$name" "there is no XLA here"; done
  without_effect NVTE_FUSED_ATTN "there is no Transformer Engine here; attention is always blocked flash"
}

# of_others NAME…: warns about variables that other wrappers read, but not the calling one.
of_others() {
  local name
  for name; do without_effect "$name" "this script does not read it (docs/slurm.md)"; done
}

is_on() { case ${1:-0} in 0 | "" | false | False | FALSE) return 1 ;; *) return 0 ;; esac; }

# boolq_file DATA FILE: prints the path of a file of BoolQ. DATA is the folder of
# scripts/download_boolq.py.
boolq_file() {
  local file=$1/bool_q/$2
  if [ ! -f "$file" ]; then refuse "BoolQ: there is no file $file; scripts/download_boolq.py fetches it"; fi
  echo "$file"
}

# boolq_accuracy FILE: adds the words of the task. LLaMA's texts begin with the token 1.
boolq_accuracy() { words+=("eval_tasks=boolq=$1" eval_bos_id=1 eval_add_bos=true); }

# evaluates_boolq DATA: adds the words that evaluate a checkpoint of LLaMA on BoolQ, zero-shot. DATA
# may also be the file of the questions.
evaluates_boolq() {
  local file=$1
  if [ ! -f "$file" ]; then file=$(boolq_file "$1" dev.jsonl); fi
  words+=(dataset_type=synthetic eval_only=true)
  boolq_accuracy "$file"
}

# fine_tunes_boolq DATA TOKENIZER FOLDER: makes samples and tokens of BoolQ in FOLDER, and adds the
# words that fine-tune on the answers and then evaluate the checkpoint on BoolQ's other questions.
# The defaults are those of Pax's run_llama_boolq.sh; its variables replace them.
fine_tunes_boolq() {
  local questions others
  if [ -f "$1" ]; then refuse "BoolQ: $1 is a file; training and evaluation need the folder of scripts/download_boolq.py, with train.jsonl and dev.jsonl"; fi
  questions=$(boolq_file "$1" train.jsonl)
  others=$(boolq_file "$1" dev.jsonl)
  mkdir -p "$3" || refuse "$3: cannot make the folder"
  python3 "$wrappers/../scripts/boolq_samples.py" "$questions" "$3/train.jsonl" || exit 2
  "$muster" tokenize --sft --bos --text "$3/train.jsonl" --tokenizer "$2" --out "$3/tokens" || exit
  words+=(dataset_type=shards "dataset_path=$3/tokens" use_sft=True "PERCORE_BATCH_SIZE=${PERCORE_BATCH_SIZE:-2}"
    "--fdl.MAX_SEQ_LEN=${MAX_SEQ_LEN:-4096}")
  lora_variables
  if is_on "${USE_LORA:-}"; then
    words+=("--fdl.MAX_STEPS=${MAX_STEPS:-600}" "--fdl.LEARNING_RATE=${LEARNING_RATE:-1e-4}" "--fdl.LR_SCHEDULE=${LR_SCHEDULE:-constant}")
    if [ -n "${LR_COS_WARMUP:-}" ]; then words+=("--fdl.LR_COS_WARMUP=$LR_COS_WARMUP"); fi
  else
    words+=("--fdl.MAX_STEPS=${MAX_STEPS:-1000}" "--fdl.LEARNING_RATE=${LEARNING_RATE:-1e-6}"
      "--fdl.LR_SCHEDULE=${LR_SCHEDULE:-linear_rampup_cosine_decay}" "--fdl.LR_COS_WARMUP=${LR_COS_WARMUP:-500}")
  fi
  boolq_accuracy "$others"
}

# Rejects evaluations, which example_slurm_llama.sub has.
only_training() {
  if is_on "${EVAL_ONLY:-}"; then
    not_built "EVAL_ONLY=$EVAL_ONLY: evaluation in this script. example_slurm_llama.sub evaluates BoolQ; eval_only=true at the end of the line evaluates a checkpoint's loss, and with eval_tasks the accuracy of answers (docs/evaluation.md)"
  fi
}

# Rejects LoRA in a script that pre-trains.
without_lora() {
  if is_on "${USE_LORA:-}"; then
    refuse "USE_LORA=$USE_LORA: this script does not fine-tune; example_slurm_llama.sub does"
  fi
  lora_variables
}

# Adds the variables of LoRA, or warns about them if it is off.
lora_variables() {
  if is_on "${USE_LORA:-}"; then
    variables USE_LORA LORA_RANK LORA_TARGET_LAYERS
    return
  fi
  without_effect LORA_RANK "USE_LORA is not set"
  without_effect LORA_TARGET_LAYERS "USE_LORA is not set"
}

# variables NAME…: adds those that are set to the training command as NAME=VALUE, the form of Pax'
# own scripts.
variables() {
  local name
  for name; do
    [ -z "${!name:-}" ] || words+=("$name=${!name}")
  done
}

# Sets the workspace and the image, which all wrappers have.
workspace_and_container() {
  BASE_WORKSPACE_DIR=${BASE_WORKSPACE_DIR:-$PWD}
  mkdir -p "$BASE_WORKSPACE_DIR"
  BASE_WORKSPACE_DIR=$(cd "$BASE_WORKSPACE_DIR" && pwd)
  BASE_CHECKPOINT_RESTORE_PATH=${BASE_CHECKPOINT_RESTORE_PATH:-${BASE_CHECKPOINT_DIR:-}}
  local name
  for name in BASE_TFDS_DATA_DIR BASE_VOCAB_PATH BASE_CHECKPOINT_RESTORE_PATH; do
    case ${!name:-} in "" | /* | *://*) ;; *) printf -v "$name" %s "$PWD/${!name}" ;; esac
  done
  if [ -n "${GPUS_PER_NODE:-}" ]; then options+=(--ranks-per-node "$GPUS_PER_NODE"); fi
  if [ -z "${CONTAINER:-}" ]; then return; fi
  options+=(--container "$CONTAINER" --container-mounts "$BASE_WORKSPACE_DIR:$BASE_WORKSPACE_DIR")
  for name in BASE_TFDS_DATA_DIR BASE_VOCAB_PATH BASE_CHECKPOINT_RESTORE_PATH; do
    case ${!name:-} in /*) options+=(--container-mounts "${!name}:${!name}") ;; esac
  done
}

# All tasks of an array train the same run, one after the other. `muster slurm run` requires one
# task at a time (%1).
tasks_are_turns() {
  if [ -n "${SLURM_ARRAY_TASK_ID:-}" ]; then options+=(--chain); fi
}

# Writes the output to FOLDER/output-JOB-0-0.txt, the original scripts' file for the first rank. A
# requeued job appends to it.
output_to() {
  mkdir -p "$1"
  local file=$1/output-${SLURM_JOB_ID:-0}-0-0.txt
  say "output goes to $file"
  exec >> "$file" 2>&1
}

# Finds the program in $MUSTER_BIN_DIR, else in the source tree or installation of this folder, else
# in PATH.
find_muster() {
  local here=$1 folder
  for folder in "${MUSTER_BIN_DIR:-}" "$(cat "$here/muster-bin-dir" 2> /dev/null)" "$here/../build/release/bin" "$here/../../../bin"; do
    if [ -n "$folder" ] && [ -x "$folder/muster" ]; then
      (cd "$folder" && echo "$PWD/muster")
      return
    fi
  done
  command -v muster || refuse "there is no muster beside $here and none in PATH; set MUSTER_BIN_DIR to its folder"
}

# Unsets the variables that a script has converted to words: `muster` names exported variables that
# its line does not read.
forget_variables() {
  unset CONFIG MODEL RUN_NAME PREC DTYPE ENABLE_FP8 PERCORE_BATCH_SIZE LOG_DIR LOG_DIR_LOCAL BASE_WORKSPACE_DIR OUTPUT_DIR TFDS_DATA_DIR \
    BASE_TFDS_DATA_DIR VOCAB_PATH BASE_VOCAB_PATH CHECKPOINT_RESTORE_PATH BASE_CHECKPOINT_RESTORE_PATH BASE_CHECKPOINT_DIR NUM_GPUS GPUS_PER_NODE CONTAINER STAGE_PATH GSW_VERSION JOB_TOTAL_GPUS \
    EVAL_ONLY USE_LORA LORA_RANK LORA_TARGET_LAYERS
}

# start_job "$@": executes the job. Words after the script's name on sbatch's command line come
# last, so that they override earlier ones: options of `muster slurm run`, and keys of the config.
#
# Several nodes need listeners that other machines can reach, hence --insecure; everybody who can
# reach them can run jobs as you (docs/trust.md).
start_job() {
  forget_variables
  exec "$muster" slurm run --insecure "${options[@]}" "${words[@]}" "$@"
}

wrappers=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
muster=$(find_muster "$wrappers")
