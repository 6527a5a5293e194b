{{- define "muster.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "muster.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "muster.labels" -}}
{{ include "muster.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | quote }}
{{- end -}}

{{- /* The labels that select a pool's pods. */ -}}
{{- define "muster.poolSelector" -}}
{{ include "muster.selector" .root }}
app.kubernetes.io/component: worker
muster-pool: {{ .name | quote }}
{{- end -}}

{{- define "muster.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{- /* An unquoted `off` in a values file is YAML's false. */ -}}
{{- define "muster.tlsMode" -}}
{{- if eq (toString .Values.tls.mode) "false" -}}off{{- else -}}{{ .Values.tls.mode }}{{- end -}}
{{- end -}}

{{- /* The Secret that serves TLS: the user's, or the release's (the chart's or cert-manager's). */ -}}
{{- define "muster.tlsSecret" -}}
{{- if eq (include "muster.tlsMode" .) "secret" -}}{{ .Values.tls.secretName }}{{- else -}}{{ include "muster.fullname" . }}-tls{{- end -}}
{{- end -}}

{{- define "muster.tokensSecret" -}}
{{- .Values.tokens.secretName | default (printf "%s-tokens" (include "muster.fullname" .)) -}}
{{- end -}}

{{- /* The names in the coordinator's certificate: {dns: […], ip: […]}. kubectl port-forward needs 127.0.0.1. */ -}}
{{- define "muster.names" -}}
{{- $c := include "muster.coordinator" . -}}
{{- $within := printf "%s.%s" $c .Release.Namespace -}}
{{- $dns := list $c $within (printf "%s.svc" $within) (printf "%s.svc.cluster.local" $within) "localhost" -}}
{{- $ip := list "127.0.0.1" -}}
{{- range .Values.tls.extraNames -}}
{{- if regexMatch "^([0-9.]+|.*:.*)$" . -}}{{- $ip = append $ip . -}}{{- else -}}{{- $dns = append $dns . -}}{{- end -}}
{{- end -}}
{{- dict "dns" $dns "ip" $ip | toJson -}}
{{- end -}}

{{- define "muster.coordinator" -}}{{ include "muster.fullname" . }}-coordinator{{- end -}}

{{- /* A pool's values over the defaults; maps are merged, lists replaced. A false or an empty value counts. */ -}}
{{- define "muster.pool" -}}
{{- mergeOverwrite (deepCopy .root.Values.poolDefaults) (deepCopy (.pool | default dict)) | toYaml -}}
{{- end -}}

{{- /* A quantity of Kubernetes as a number; 0 if it is not a quantity. */ -}}
{{- define "muster.quantity" -}}
{{- $units := dict "" 1 "n" 1e-9 "u" 1e-6 "m" 1e-3 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 "E" 1e18 "Ki" 0x1p10 "Mi" 0x1p20 "Gi" 0x1p30 "Ti" 0x1p40 "Pi" 0x1p50 "Ei" 0x1p60 -}}
{{- $unit := regexFind "[A-Za-z]*$" (toString .) -}}
{{- mulf (float64 (trimSuffix $unit (toString .))) (float64 (get $units $unit | default 0)) -}}
{{- end -}}

{{- define "muster.podSecurity" -}}
runAsNonRoot: true
runAsUser: 64000
runAsGroup: 64000
fsGroup: 64000
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "muster.containerSecurity" -}}
allowPrivilegeEscalation: false
capabilities: {drop: [ALL]}
{{- end -}}

{{- /* Probes of both daemons: alive at once, ready when they can serve. A page answers within 2 s (daemon/http_server.h); Kubernetes' default timeout is 1 s. */ -}}
{{- define "muster.probes" -}}
{{- $timeout := .Values.probes.timeoutSeconds }}
startupProbe: {httpGet: {path: /healthz, port: http}, periodSeconds: 2, timeoutSeconds: {{ $timeout }}, failureThreshold: 90}
livenessProbe: {httpGet: {path: /healthz, port: http}, periodSeconds: 10, timeoutSeconds: {{ $timeout }}, failureThreshold: 6}
readinessProbe: {httpGet: {path: /readyz, port: http}, periodSeconds: 5, timeoutSeconds: {{ $timeout }}}
{{- end -}}

{{- /* The storage that all workers share. */ -}}
{{- define "muster.storage" -}}
{{- $s := .Values.storage -}}
{{- if $s.claimName -}}
persistentVolumeClaim: {claimName: {{ $s.claimName }}}
{{- else if $s.hostPath -}}
hostPath: {path: {{ $s.hostPath }}, type: Directory}
{{- else -}}
persistentVolumeClaim: {claimName: {{ include "muster.fullname" . }}-storage}
{{- end -}}
{{- end -}}

{{- /* "yes" if a pool reads labels of its nodes. */ -}}
{{- define "muster.readsNodes" -}}
{{- range $name, $given := .Values.pools -}}
{{- if (include "muster.pool" (dict "root" $ "pool" $given) | fromYaml).switchesFromNode -}}yes{{- end -}}
{{- end -}}
{{- end -}}

{{- /* The flags of a coordinator. */ -}}
{{- define "muster.coordinatorArgs" -}}
{{- $c := .Values.coordinator -}}
{{- $etcd := $c.etcd | default dict -}}
- --listen=0.0.0.0:7070
- --http=0.0.0.0:7071
- --state-dir=/var/lib/muster/state
- --worker-lease-ms={{ int $c.workerLeaseMs }}
- --heartbeat-interval-ms={{ int $c.heartbeatIntervalMs }}
- --log-level={{ $c.logLevel }}
- --log-format={{ $c.logFormat }}
{{- if ne (include "muster.tlsMode" .) "off" }}
- --trusted-network
- --tls-cert=/etc/muster/tls/tls.crt
- --tls-key=/etc/muster/tls/tls.key
- --token-dir=/etc/muster/tokens
{{- else }}
- --insecure
{{- end }}
{{- with $etcd.endpoints }}
- --etcd={{ join "," . }}
- --etcd-prefix={{ $etcd.prefix | default (printf "/%s/%s" $.Release.Namespace $.Release.Name) }}
- --advertise=$(POD_NAME).{{ include "muster.coordinator" $ }}-pods:7070
{{- end }}
{{- if $etcd.secretName }}
- --etcd-ca=/etc/muster/etcd/ca.crt
- --etcd-cert=/etc/muster/etcd/tls.crt
- --etcd-key=/etc/muster/etcd/tls.key
{{- end }}
{{- range $c.extraArgs }}
- {{ . | quote }}
{{- end }}
{{- end -}}

{{- /* What the containers of a coordinator have in common beside their flags. */ -}}
{{- define "muster.coordinatorPlace" -}}
{{- if (.Values.coordinator.etcd | default dict).endpoints }}
env:
  - name: POD_NAME
    valueFrom: {fieldRef: {fieldPath: metadata.name}}
{{- end }}
securityContext:
  {{- include "muster.containerSecurity" . | nindent 2 }}
  readOnlyRootFilesystem: true
volumeMounts:
  - {name: state, mountPath: /var/lib/muster}
  - {name: tmp, mountPath: /tmp}
  {{- if ne (include "muster.tlsMode" .) "off" }}
  - {name: tls, mountPath: /etc/muster/tls, readOnly: true}
  - {name: tokens, mountPath: /etc/muster/tokens, readOnly: true}
  {{- end }}
  {{- if (.Values.coordinator.etcd | default dict).secretName }}
  - {name: etcd, mountPath: /etc/muster/etcd, readOnly: true}
  {{- end }}
{{- end -}}
