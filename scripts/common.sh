# Common functions of the scripts in this folder, which source it: they take the positional
# arguments and variables of MaxText's and Pax's scripts of the same names, and start the job.
# shellcheck shell=bash
scripts=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source-path=SCRIPTDIR/../slurm
. "$scripts/../slurm/wrapper.sh"

# leave_to_first_task: exits in every task but the first one. The original scripts run once per
# rank, under srun; Muster starts the ranks itself, so the first task does everything.
leave_to_first_task() {
  if [ "${SLURM_PROCID:-0}" = 0 ]; then return; fi
  say "task $SLURM_PROCID has nothing to do: the first task starts all ranks"
  exit 0
}

# help_on_request TEXT "$@": prints TEXT and exits if the first argument is -h or --help.
help_on_request() {
  case ${2:-} in -h | --help) ;; *) return 0 ;; esac
  echo "$1"
  exit 0
}

# require_number NAME VALUE: checks a positional argument.
require_number() {
  case $2 in "" | *[!0-9.]*) refuse "$1=$2: a number is required" ;; esac
}

# pile_126m SCRIPT NODES "$@": starts GPT 126M on the Pile on NODES nodes, with the positional
# arguments of Pax's scripts.
pile_126m() {
  local script=$1 nodes=$2
  shift 2
  local usage="usage: $script TFDS_DATA_DIR VOCAB_PATH [PRECISION [NUM_GPUS [PERCORE_BATCH_SIZE [LOG_DIR]]]]"
  help_on_request "$usage" "$@"
  if [ $# -lt 2 ]; then refuse "$usage"; fi
  local gpus=${4:-8} batch=${5:-4}
  require_number NUM_GPUS "$gpus"
  require_number PERCORE_BATCH_SIZE "$batch"
  without_xla
  words=(CONFIG=Pile126M "TFDS_DATA_DIR=$1" "VOCAB_PATH=$2" "PREC=${3:-bfloat16}" "PERCORE_BATCH_SIZE=$batch" "LOG_DIR=${6:-test_logdir}"
    "--fdl.ICI_MESH_SHAPE=[$gpus,1,1]" "--fdl.DCN_MESH_SHAPE=[$nodes,1,1]")
  variables ENABLE_FP8
  if [ $# -gt 6 ]; then shift 6; else shift $#; fi
  start "$gpus" "$@"
}

# start GPUS "$@": starts the command in `words` with GPUS ranks on each node: on the nodes of a
# Slurm job, else on this machine. The other arguments come last, so that they win.
start() {
  local gpus=$1
  shift
  if [ -n "${SLURM_JOB_ID:-}" ]; then
    options+=(--ranks-per-node "$gpus")
    start_job "$@"
  fi
  forget_variables
  exec "$muster" run --ranks "$gpus" "${words[@]}" "$@"
}
