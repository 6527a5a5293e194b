#!/bin/bash
# Downloads C4 as TFDS has it, with the arguments of MaxText's script of this name:
#
#   bash scripts/download_dataset.sh GCP_PROJECT FOLDER
#
# The data set is in a bucket whose reader pays: GCP_PROJECT is billed, with the credentials of
# `gcloud auth login`. FOLDER is a local folder or a gs:// address; the files go to
# FOLDER/c4/en/3.0.1, some 300 GB. The same command again fetches what is missing or differs.
set -euo pipefail

say() { echo "muster: $*" >&2; }
refuse() { say "error: $*"; exit 2; }

usage="usage: download_dataset.sh GCP_PROJECT FOLDER"
case ${1:-} in -h | --help) echo "$usage"; exit 0 ;; esac
if [ $# -ne 2 ]; then refuse "$usage"; fi
project=$1 source=${C4_BUCKET:-gs://allennlp-tensorflow-datasets}/c4/en/3.0.1 target=${2%/}/c4/en/3.0.1
by_hand="Without a network, copy c4-train.tfrecord-00000-of-01024 and the other files of $source, with dataset_info.json and features.json, to
$target. Hugging Face has the same text: hf download allenai/c4 --repo-type dataset --include 'en/*' --local-dir FOLDER (dataset_type=hf)"

case $target in *://*) ;; *) mkdir -p "$target" ;; esac
# Both tools compare checksums, and skip what is there.
if command -v gcloud > /dev/null; then
  copy=(gcloud storage rsync --billing-project "$project" --recursive "$source" "$target")
elif command -v gsutil > /dev/null; then
  copy=(gsutil -u "$project" -m rsync -r "$source" "$target")
else
  refuse "there is neither gcloud nor gsutil: install the Google Cloud CLI (https://cloud.google.com/sdk/docs/install), then gcloud auth login
$by_hand"
fi
if ! "${copy[@]}"; then
  refuse "${copy[0]} failed; the same command resumes
$by_hand"
fi
case $target in *://*) exit ;; esac
for split in train:1024 validation:8; do
  files=("$target"/c4-"${split%:*}".tfrecord-*-of-*)
  if [ ! -e "${files[0]}" ] || [ "${#files[@]}" != "${split#*:}" ]; then
    refuse "$target has ${#files[@]} files of the split ${split%:*}, not ${split#*:}; the same command fetches the others"
  fi
done
say "train on it: dataset_type=c4 dataset_path=$2"
