#!/bin/bash
#SBATCH -t 01:00:00
#SBATCH -J maxtext-llama2-70b
#SBATCH --exclusive
#SBATCH --mem=0
#SBATCH --ntasks-per-node=8     # ranks per node; GPUS_PER_NODE overrides it
#SBATCH --overcommit
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=B:USR1@120
#
# Llama 2 70B for 50 steps on synthetic data, as the recipe's launch.sh:
#
#   DTYPE=bf16 sbatch -A ACCOUNT -p PARTITION -N NODES $STAGE_PATH/launch.sh [key=value …]
#
# DTYPE is bf16 or fp8. Step lines are in log-maxtext-*.out in the folder
# $STAGE_PATH/results/$GSW_VERSION/$DTYPE/70b/$JOB_TOTAL_GPUS. If nsys is installed, profiles of the
# first steps (*-prof) and of the run (*-perf) are in nsys/ in the same folder.
# Slurm runs a copy of this file; wrapper.sh is in the folder of the original.
here=$(dirname "${BASH_SOURCE[0]}")
if [ ! -f "$here/wrapper.sh" ]; then
  script=$(scontrol show job "$SLURM_JOB_ID" | sed -n "s/^ *Command=//p" | head -n 1)
  while [ -n "$script" ] && [ ! -f "$script" ]; do
    case $script in *" "*) script=${script% *} ;; *) script= ;; esac
  done
  here=$(dirname "$script")
fi
if [ ! -f "$here/wrapper.sh" ]; then echo "muster: error: wrapper.sh is not beside the script that was submitted" >&2; exit 2; fi
# shellcheck source-path=SCRIPTDIR
. "$here/wrapper.sh"

case ${DTYPE:-} in
  bf16) precision=(dtype=bfloat16) ;;
  fp8) precision=(dtype=bfloat16 quantization=fp8) ;;
  *) refuse "DTYPE=${DTYPE:-}: bf16 or fp8 is required" ;;
esac
STAGE_PATH=${STAGE_PATH:-$(cd "$here" && pwd)}
GSW_VERSION=${GSW_VERSION:-25.02}
GPUS_PER_NODE=${GPUS_PER_NODE:-${SLURM_NTASKS_PER_NODE:-8}}
# The training nodes: --nodes, else all but --spares.
nodes='' spares=0 option=''
for word; do
  case $option$word in
    --) break ;;
    --nodes=*) nodes=${word#--nodes=}; nodes=${nodes#=} ;;
    --spares=*) spares=${word#--spares=}; spares=${spares#=} ;;
  esac
  case $word in --nodes | --spares) option=$word= ;; *) option='' ;; esac
done
case $nodes$spares in *[!0-9]*) refuse "--nodes $nodes and --spares $spares: numbers are required" ;; esac
nodes=${nodes:-$((SLURM_JOB_NUM_NODES - spares))}
JOB_TOTAL_GPUS=${JOB_TOTAL_GPUS:-$((nodes * GPUS_PER_NODE))}
if [ "$JOB_TOTAL_GPUS" != $((nodes * GPUS_PER_NODE)) ]; then
  say "warning: JOB_TOTAL_GPUS=$JOB_TOTAL_GPUS names the folder of the results, but $nodes nodes with $GPUS_PER_NODE ranks each train"
fi
without_effect PREC "DTYPE is the recipe's precision"
without_effect ENABLE_FP8 "DTYPE is the recipe's precision"
without_effect ENABLE_TE "there is no Transformer Engine here"
of_others PERCORE_BATCH_SIZE CONFIG MODEL RUN_NAME BASE_TFDS_DATA_DIR BASE_VOCAB_PATH BASE_CHECKPOINT_RESTORE_PATH BASE_CHECKPOINT_DIR \
  BASE_WORKSPACE_DIR LOG_DIR_LOCAL OUTPUT_DIR MAXTEXT_DIR PAXML_DIR BASE_SCRIPT
unset BASE_TFDS_DATA_DIR BASE_VOCAB_PATH BASE_CHECKPOINT_RESTORE_PATH BASE_CHECKPOINT_DIR
BASE_WORKSPACE_DIR=$STAGE_PATH
if [ -f "$STAGE_PATH/muster.sqsh" ]; then CONTAINER=${CONTAINER:-$STAGE_PATH/muster.sqsh}; fi
without_xla
only_training
without_lora
workspace_and_container

# The recipe's table: FSDP over all GPUs up to 256, in groups of 128 from 512 on. The table counts
# nodes, so that spares do not count.
group=$((128 / GPUS_PER_NODE))
if [ $((nodes * GPUS_PER_NODE)) -ge 512 ] && [ "$group" -gt 0 ] && [ $((nodes % group)) = 0 ]; then
  mesh=(dcn_data_parallelism=-1 dcn_fsdp_parallelism="$group")
else
  mesh=(dcn_data_parallelism=1 dcn_fsdp_parallelism=-1)
fi

results=$STAGE_PATH/results/$GSW_VERSION/$DTYPE/70b/$JOB_TOTAL_GPUS
name=maxtext-${JOB_TOTAL_GPUS}_70b_${SLURM_JOB_ID:-0}
mkdir -p "$results/nsys"
# recipe STEPS RUN: sets the training command. Only step lines and profiles are retained.
recipe() {
  words=(
    python3 MaxText/train.py
    MaxText/configs/base.yml
    model_name=llama2-70b
    ici_fsdp_parallelism=-1
    "${mesh[@]}"
    "${precision[@]}"
    per_device_batch_size=2
    max_target_length=4096
    steps="$1"
    log_period=1
    remat_policy=full
    dataset_type=synthetic
    enable_checkpointing=false
    base_output_directory="$results/runs"
    run_name="$2"
  )
}

# profile KEY=VALUE…: runs a separate profiling run first. This shell receives Slurm's signals and
# forwards them. A request to leave ends the whole job; a failed profile is skipped.
profile() {
  local child status=0
  (start_job --profile "$results/nsys/$name-prof" "$@") > "$results/$name-prof.out" 2>&1 &
  child=$!
  trap 'kill -USR1 "$child" 2> /dev/null' USR1
  trap 'kill -TERM "$child" 2> /dev/null' TERM
  while true; do
    status=0
    wait "$child" || status=$?
    kill -0 "$child" 2> /dev/null || break
  done
  trap - USR1 TERM
  if [ "$status" = 75 ]; then tail -n 3 "$results/$name-prof.out" >&2; exit 75; fi
  [ "$status" = 0 ] || say "the profile failed with exit code $status ($results/$name-prof.out has why); the benchmark continues without it"
}

say "results go to $results/log-$name.out"
exec >> "$results/log-$name.out" 2>&1
if command -v nsys > /dev/null; then
  recipe 5 "$name-prof"
  profile "$@" steps=5
  options+=(--profile "$results/nsys/$name-perf")
else
  say "there is no nsys here: no profiles"
fi
recipe 50 "$name"
start_job "$@"
