#!/usr/bin/env bash
# Makes the Secrets that the chart wants: a certificate for the coordinator, signed by an authority of its own, and a token for each role.
# What is there already stays as it is, so a second run changes nothing.
#
#   deploy/make-secrets.sh [-n NAMESPACE] [--coordinator NAME] [--tls NAME] [--tokens NAME] [--days N] [NAME-OR-ADDRESS …]
#
# NAMESPACE is kubectl's. --coordinator is the coordinator's Service (muster-coordinator, which the release `muster` has), --tls and --tokens
# are the Secrets' names (muster-tls, muster-tokens), and further names are those by which people reach a LoadBalancer.
set -euo pipefail

namespace=() coordinator=muster-coordinator tls=muster-tls tokens=muster-tokens days=825 names=()
fail() { echo "deploy/make-secrets.sh: $1" >&2; exit 2; }
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 0 ;;
    -n | --namespace | --coordinator | --tls | --tokens | --days)
      [ $# -gt 1 ] || fail "$1 needs a value"
      case $1 in
        -n | --namespace) namespace=(--namespace "$2") ;;
        --coordinator) coordinator=$2 ;;
        --tls) tls=$2 ;;
        --tokens) tokens=$2 ;;
        --days) days=$2 ;;
      esac
      shift 2 ;;
    -*) fail "unknown option $1; try --help" ;;
    *) names+=("$1"); shift ;;
  esac
done
[[ $days =~ ^[1-9][0-9]{0,4}$ ]] || fail "--days $days: a number of days is wanted"
for program in kubectl openssl; do command -v "$program" > /dev/null || fail "no $program here"; done

is_there() { [ -n "$(kubectl ${namespace[@]+"${namespace[@]}"} get secret "$1" --ignore-not-found -o name)" ]; }
in_namespace=${namespace[1]:-$(kubectl config view --minify -o 'jsonpath={..namespace}')}
in_namespace=${in_namespace:-default}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
umask 077

if is_there "$tls"; then
  echo "secret $tls is there already"
else
  also=DNS:$coordinator,DNS:$coordinator.$in_namespace,DNS:$coordinator.$in_namespace.svc,DNS:$coordinator.$in_namespace.svc.cluster.local
  also+=,DNS:localhost,IP:127.0.0.1
  for name in ${names[@]+"${names[@]}"}; do
    if [[ $name =~ ^[0-9.]+$ || $name == *:* ]]; then also+=,IP:$name; else also+=,DNS:$name; fi
  done
  curve=(-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes)
  openssl req -x509 "${curve[@]}" -days "$days" -subj "/CN=$coordinator authority" -keyout "$folder/ca.key" -out "$folder/ca.crt" 2> /dev/null
  openssl req "${curve[@]}" -subj "/CN=$coordinator" -keyout "$folder/tls.key" -out "$folder/tls.csr" 2> /dev/null
  openssl x509 -req -in "$folder/tls.csr" -CA "$folder/ca.crt" -CAkey "$folder/ca.key" -CAcreateserial -days "$days" \
    -extfile <(echo "subjectAltName=$also") -out "$folder/tls.crt" 2> /dev/null
  # The authority's key is kept nowhere: the next certificate has another authority, which workers take up by themselves.
  kubectl ${namespace[@]+"${namespace[@]}"} create secret generic "$tls" --type=kubernetes.io/tls --from-file=tls.crt="$folder/tls.crt" \
    --from-file=tls.key="$folder/tls.key" --from-file=ca.crt="$folder/ca.crt"
fi

if is_there "$tokens"; then
  echo "secret $tokens is there already"
else
  files=()
  for role in worker viewer submitter admin; do
    openssl rand -hex 24 > "$folder/$role"
    files+=(--from-file="$role=$folder/$role")
  done
  kubectl ${namespace[@]+"${namespace[@]}"} create secret generic "$tokens" "${files[@]}"
fi
