# Common functions of MaxText's benchmark configs in this folder, which source it.
# shellcheck shell=bash
# shellcheck source-path=SCRIPTDIR
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"

given=()

# read_arguments KEY=VALUE…: upper-case names are the script's variables, as in MaxText; others are
# keys of the config, which come last.
read_arguments() {
  local word
  for word; do
    case $word in
      [A-Z]*=*) export "${word?}" ;;
      *) given+=("$word") ;;
    esac
  done
}

# train KEY=VALUE…: trains with the script's keys and variables.
train() {
  words=(python3 "MaxText/${EXECUTABLE:-train.py}" MaxText/configs/base.yml steps="${STEPS:-15}" max_target_length=2048 use_iota_embed=true
    reuse_example_batch=1 attention=flash "$@")
  if [ -n "${RUN_NAME:-${M_RUN_NAME:-}}" ]; then words+=(run_name="${RUN_NAME:-$M_RUN_NAME}"); fi
  if [ -n "${OUTPUT_PATH:-}" ]; then words+=(base_output_directory="$OUTPUT_PATH"); fi
  if [ -n "${HARDWARE:-}" ]; then words+=(hardware="$HARDWARE"); fi
  without_effect PLATFORM "no network is set up here"
  without_effect LIBTPU_INIT_ARGS "there are no TPUs here"
  if [ -n "${SLURM_JOB_ID:-}" ]; then start_job "${given[@]}"; fi
  forget_variables
  exec "$muster" run "${words[@]}" "${given[@]}"
}
