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
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "muster.labels" -}}
{{ include "muster.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | quote }}
{{- end -}}

{{- define "muster.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{- /* The Secret that serves TLS: the user's, or cert-manager's. */ -}}
{{- define "muster.tlsSecret" -}}
{{- if eq .Values.tls.mode "certManager" -}}{{ include "muster.fullname" . }}-tls{{- else -}}{{ .Values.tls.secretName }}{{- end -}}
{{- end -}}

{{- define "muster.coordinator" -}}{{ include "muster.fullname" . }}-coordinator{{- end -}}

{{- /* A pool's values over the defaults; maps are merged, lists replaced. A false or an empty value counts. */ -}}
{{- define "muster.pool" -}}
{{- mergeOverwrite (deepCopy .root.Values.poolDefaults) (deepCopy (.pool | default dict)) | toYaml -}}
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

{{- /* Probes of both daemons: alive at once, ready when they are of use. */ -}}
{{- define "muster.probes" -}}
startupProbe: {httpGet: {path: /healthz, port: http}, periodSeconds: 2, failureThreshold: 90}
livenessProbe: {httpGet: {path: /healthz, port: http}, periodSeconds: 10, timeoutSeconds: 5, failureThreshold: 6}
readinessProbe: {httpGet: {path: /readyz, port: http}, periodSeconds: 5, timeoutSeconds: 5}
{{- end -}}

{{- /* What all workers share. */ -}}
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

{{- /* Labels of a node, with dots between them, as jsonpath wants them: the labels' own dots are escaped. */ -}}
{{- define "muster.switchesPath" -}}
{{- $parts := list -}}
{{- range . -}}{{- $parts = append $parts (printf "{.metadata.labels.%s}" (. | replace "." "\\.")) -}}{{- end -}}
{{- join "." $parts -}}
{{- end -}}

{{- /* "yes" where a pool asks for its nodes' labels. */ -}}
{{- define "muster.readsNodes" -}}
{{- range $name, $given := .Values.pools -}}
{{- if (include "muster.pool" (dict "root" $ "pool" $given) | fromYaml).switchesFromNode.labels -}}yes{{- end -}}
{{- end -}}
{{- end -}}
