# Functions for the scripts of this folder, which source it: the progress of long steps. Needs only
# Bash 4.2 or newer.
# shellcheck shell=bash

# duration SECONDS: prints "59s", "3m 07s" or "2h 05m".
duration() {
  if (($1 < 60)); then printf '%ds' "$1"
  elif (($1 < 3600)); then printf '%dm %02ds' $(($1 / 60)) $(($1 % 60))
  else printf '%dh %02dm' $(($1 / 3600)) $(($1 / 60 % 60)); fi
}

# progress LABEL: reads lines `DONE TOTAL what` until they end. On a terminal it draws one line each
# second, which never exceeds the width; elsewhere it prints a line every 10 seconds.
progress() {
  local label=$1 done=0 total=0 what="" started=$SECONDS drawn=$SECONDS status part text="" a b percent line columns filled terminal
  [ ! -t 1 ] || drawn=-1
  exec {terminal}>&1  # to query the width when standard output is a pipe
  while :; do
    status=0
    # A read may time out in the middle of a line: the next read continues it.
    IFS= read -r -t 1 part || status=$?
    text+=$part
    if [ "$status" -eq 0 ]; then
      read -r a b what <<< "$text"
      done=$a total=$b text=""
    elif [ "$status" -le 128 ]; then break  # not a timeout: the end
    fi
    if [ -t 1 ]; then [ "$SECONDS" -ne "$drawn" ] || continue
    else [ $((SECONDS - drawn)) -ge 10 ] || continue; fi
    drawn=$SECONDS
    percent=$((total > 0 ? 100 * done / total : 0))
    line="$percent%  $(duration $((SECONDS - started)))"
    # Before the first result, and within the first 2 s, there is no estimate of the time left.
    ((done == 0 || SECONDS - started < 2)) || line+=", $(duration $(((SECONDS - started) * (total - done) / done))) left"
    if [ ! -t 1 ]; then
      echo "$label: $line  $what"
      continue
    fi
    read -r _ columns <<< "$(stty size 2> /dev/null <&"$terminal" || echo 24 80)"
    ((columns > 0)) || columns=80
    if ((columns >= 60)); then
      filled=$((percent * 16 / 100))
      line="[$(printf '%*s' "$filled" '' | tr ' ' '#')$(printf '%*s' $((16 - filled)) '')] $line"
    fi
    line="$label $line  $what"
    # The last column stays free: some terminals wrap when it is written.
    ((${#line} < columns)) || line="${line:0:columns-2}…"
    printf '\r\033[2K%s' "$line"
  done
  [ ! -t 1 ] || printf '\r\033[2K'
  exec {terminal}>&-
}

# with_progress LABEL REGEX REPLACEMENT COMMAND…: runs a command that reports its progress in lines
# that match REGEX; REPLACEMENT converts these to `DONE TOTAL what`. Prints the rest of the
# command's output if the command fails, and returns its status. The caller must have set pipefail.
with_progress() {
  local label=$1 regex=$2 replacement=$3 log fd status=0
  shift 3
  log=$(mktemp)
  exec {fd}<> "$log"
  rm "$log"  # the open descriptor still reads and writes it, and Ctrl-C leaves no file
  "$@" 2>&1 < /dev/null | tee "/dev/fd/$fd" | sed -unE "s~$regex~$replacement~p" | progress "$label" || status=$?
  [ "$status" -eq 0 ] || grep -vE "$regex" "/dev/fd/$fd" | tail -n 60 >&2 || true
  exec {fd}>&-
  return "$status"
}
