#!/bin/bash
#SBATCH -N 1
#SBATCH -t 00:30:00
#SBATCH -J maxtext-setup
#
# Creates the staging area of the Llama 2 70B recipe, as its setup.sh does:
#
#   export STAGE_PATH=/shared/folder
#   sbatch -A ACCOUNT -p PARTITION -N 1 slurm/setup.sh
#   DTYPE=bf16 sbatch -A ACCOUNT -p PARTITION -N NODES $STAGE_PATH/launch.sh
#
# If CONTAINER is set, enroot imports the image to $STAGE_PATH/muster.sqsh, which launch.sh then
# uses.
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

if [ -z "${STAGE_PATH:-}" ]; then refuse "STAGE_PATH is not set: a folder that all nodes see"; fi
mkdir -p "$STAGE_PATH"
cp "$here/launch.sh" "$here/wrapper.sh" "$STAGE_PATH/"
dirname "$muster" > "$STAGE_PATH/muster-bin-dir"
"$muster" version
"$(dirname "$muster")/muster-trainer" check-node --work-dir "$STAGE_PATH"
if [ -n "${CONTAINER:-}" ]; then
  if command -v enroot > /dev/null; then
    # enroot's form is docker://[USER@][REGISTRY#]IMAGE[:TAG]; users write REGISTRY/IMAGE, as for
    # docker pull.
    image=${CONTAINER#docker://}
    case $image in
      *"#"*) ;;
      *.*/* | *:*/* | localhost/*) case ${image%%/*} in *.* | *:* | localhost) image=${image%%/*}#${image#*/} ;; esac ;;
    esac
    # The existing image stays until the new one is complete.
    imported=$STAGE_PATH/muster.sqsh.${SLURM_JOB_ID:-$$}
    trap 'rm -f "$imported"' EXIT
    rm -f "$imported"  # left by this job before a requeue: enroot does not overwrite files
    enroot import --output "$imported" "docker://$image"
    mv -f "$imported" "$STAGE_PATH/muster.sqsh"
  else
    without_effect CONTAINER "there is no enroot here to import it; jobs run on the nodes as they are"
  fi
fi
say "the staging area is ready: DTYPE=bf16 sbatch -N NODES $STAGE_PATH/launch.sh"
