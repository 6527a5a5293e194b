#!/usr/bin/env bash
# Creates Secrets for rendered JobSets and for a chart with tls.mode=secret and tokens.secretName,
# and renews those that the chart created: a certificate for the coordinator, signed by its own
# authority, and a token for each role. Existing Secrets stay unchanged, so a second run changes
# nothing.
#
#   deploy/make-secrets.sh [-n NAMESPACE] [--coordinator NAME] [--tls NAME] [--tokens NAME]
#                          [--days N] [--tokens-only] [NAME-OR-ADDRESS …]
#   deploy/make-secrets.sh … --renew certificate|worker|viewer|submitter|admin
#
# NAMESPACE is kubectl's. --coordinator is the coordinator's Service (default: muster-coordinator,
# that of the release `muster`); --tls and --tokens are the names of the Secrets (muster-tls,
# muster-tokens). Further names are those by which clients reach a LoadBalancer. --tokens-only
# creates no certificate, for instance because cert-manager issues it. --renew replaces one
# certificate or token in existing Secrets; nothing has to restart. A new certificate has a new
# authority, and ca.crt also has the previous one. A role has the new token in its first line and
# the previous one in its second line, until the next renewal.
set -euo pipefail

namespace=() coordinator=muster-coordinator tls=muster-tls tokens=muster-tokens days=825 names=() tokens_only='' renew=''
fail() { echo "deploy/make-secrets.sh: $1" >&2; exit 2; }
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) sed -n '2,17s/^# \{0,1\}//p' "$0"; exit 0 ;;
    --tokens-only) tokens_only=yes; shift ;;
    -n | --namespace | --coordinator | --tls | --tokens | --days | --renew)
      [ $# -gt 1 ] || fail "$1 needs a value"
      case $1 in
        -n | --namespace) namespace=(--namespace "$2") ;;
        --coordinator) coordinator=$2 ;;
        --tls) tls=$2 ;;
        --tokens) tokens=$2 ;;
        --days) days=$2 ;;
        --renew) renew=$2 ;;
      esac
      shift 2 ;;
    -*) fail "unknown option $1; try --help" ;;
    *) names+=("$1"); shift ;;
  esac
done
[[ $days =~ ^[1-9][0-9]{0,4}$ ]] || fail "--days $days: a number of days is required"
case $renew in
  '' | certificate | worker | viewer | submitter | admin) ;;
  *) fail "--renew $renew: certificate, worker, viewer, submitter or admin is required" ;;
esac
for program in kubectl openssl; do command -v "$program" > /dev/null || fail "no $program here"; done

# Runs kubectl in the namespace.
k() { kubectl ${namespace[@]+"${namespace[@]}"} "$@"; }
is_there() { [ -n "$(k get secret "$1" --ignore-not-found -o name)" ]; }
value_of() { k get secret "$1" -o "go-template={{with index .data \"$2\"}}{{.}}{{end}}" | base64 -d; }
in_namespace=${namespace[1]:-$(kubectl config view --minify -o 'jsonpath={..namespace}')}
in_namespace=${in_namespace:-default}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
umask 077

# Creates ca.crt, tls.crt and tls.key in the folder. The authority's key is not stored: the next
# certificate has another authority, which workers adopt without a restart.
make_certificate() {
  local also=DNS:$coordinator,DNS:$coordinator.$in_namespace,DNS:$coordinator.$in_namespace.svc,DNS:$coordinator.$in_namespace.svc.cluster.local
  also+=,DNS:localhost,IP:127.0.0.1
  local name curve
  for name in ${names[@]+"${names[@]}"}; do
    if [[ $name =~ ^[0-9.]+$ || $name == *:* ]]; then also+=,IP:$name; else also+=,DNS:$name; fi
  done
  curve=(-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes)
  # A common name has at most 64 characters; clients check the alternative names below.
  openssl req -x509 "${curve[@]}" -days "$days" -subj "/CN=${coordinator:0:50} authority" -keyout "$folder/ca.key" -out "$folder/ca.crt" 2> /dev/null
  openssl req "${curve[@]}" -subj "/CN=${coordinator:0:64}" -keyout "$folder/tls.key" -out "$folder/tls.csr" 2> /dev/null
  openssl x509 -req -in "$folder/tls.csr" -CA "$folder/ca.crt" -CAkey "$folder/ca.key" -CAcreateserial -days "$days" \
    -extfile <(echo "subjectAltName=$also") -out "$folder/tls.crt" 2> /dev/null
}

# Writes files of the folder into an existing Secret in one request; its other keys stay.
replace() {
  local secret=$1 key data=''
  shift
  for key in "$@"; do data+=${data:+,}\"$key\":\"$(base64 -w0 "$folder/$key")\"; done
  echo "{\"data\":{$data}}" > "$folder/patch"
  k patch secret "$secret" --type=merge --patch-file "$folder/patch"
}

renew_certificate() {
  is_there "$tls" || fail "there is no secret $tls to renew: leave --renew out"
  # Additional names are taken from the present certificate.
  if [ ${#names[@]} -eq 0 ]; then
    value_of "$tls" tls.crt > "$folder/before"
    mapfile -t names < <(openssl x509 -in "$folder/before" -noout -ext subjectAltName | tail -n +2 | tr ',' '\n' |
      sed -E 's/^ *(DNS|IP Address)://' | grep -vxE "localhost|127\.0\.0\.1|${coordinator}(\.${in_namespace}(\.svc(\.cluster\.local)?)?)?" || true)
  fi
  make_certificate
  # ca.crt has the two newest authorities, so that both certificates are accepted until every
  # process has the new one.
  value_of "$tls" ca.crt | openssl x509 >> "$folder/ca.crt"
  replace "$tls" tls.crt tls.key ca.crt
}

renew_token() {
  is_there "$tokens" || fail "there is no secret $tokens to renew: leave --renew out"
  { openssl rand -hex 24; value_of "$tokens" "$renew" | grep -v '^#' | head -n 1; } > "$folder/$renew"
  replace "$tokens" "$renew"
}

if [ "$renew" = certificate ]; then
  renew_certificate
  exit
elif [ -n "$renew" ]; then
  renew_token
  exit
fi

if [ -n "$tokens_only" ]; then
  :
elif is_there "$tls"; then
  echo "secret $tls is there already"
else
  make_certificate
  k create secret generic "$tls" --type=kubernetes.io/tls --from-file=tls.crt="$folder/tls.crt" --from-file=tls.key="$folder/tls.key" \
    --from-file=ca.crt="$folder/ca.crt"
fi

if is_there "$tokens"; then
  echo "secret $tokens is there already"
else
  files=()
  for role in worker viewer submitter admin; do
    openssl rand -hex 24 > "$folder/$role"
    files+=(--from-file="$role=$folder/$role")
  done
  k create secret generic "$tokens" "${files[@]}"
fi
