{{- /* Rejects values that contradict each other, and names allowed ones. The schema rejects wrong types and unknown names before. */ -}}
{{- define "muster.validate" -}}
{{- $v := .Values -}}
{{- $mode := include "muster.tlsMode" . -}}
{{- if not $v.image.repository -}}
{{- fail "image.repository is empty: set the repository of your Muster image; there is no public one" -}}
{{- end -}}
{{- $etcd := $v.coordinator.etcd | default dict -}}
{{- if and (gt (int $v.coordinator.replicas) 1) (not $etcd.endpoints) -}}
{{- fail (printf "coordinator.replicas is %d: several coordinators need a common store; name the members of etcd in coordinator.etcd.endpoints, or set replicas to 1" (int $v.coordinator.replicas)) -}}
{{- end -}}
{{- if and $etcd.secretName (not $etcd.endpoints) -}}
{{- fail (printf "coordinator.etcd.secretName is %s and coordinator.etcd.endpoints is empty: name the members of etcd" $etcd.secretName) -}}
{{- end -}}
{{- if and $etcd.moveState (or (not $etcd.endpoints) (ne (int $v.coordinator.replicas) 1) (not $v.coordinator.persistence.enabled)) -}}
{{- fail "coordinator.etcd.moveState is true: it needs coordinator.etcd.endpoints, one replica (others would begin without jobs), and coordinator.persistence.enabled" -}}
{{- end -}}
{{- if and $etcd.endpoints (not $etcd.moveState) $v.coordinator.persistence.enabled -}}
{{- range lookup "apps/v1" "StatefulSet" .Release.Namespace (include "muster.coordinator" .) | dig "spec" "template" "spec" "containers" (list) -}}
{{- if not (contains "--etcd=" (join " " .args)) -}}
{{- fail "coordinator.etcd.endpoints is set, and the coordinator of this release has its jobs on its volume: upgrade first with coordinator.etcd.moveState=true and coordinator.replicas=1, which moves them to etcd" -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $etcd.endpoints -}}
{{- if and $etcd.secretName (not (hasPrefix "https://" .)) -}}
{{- fail (printf "coordinator.etcd.endpoints has %s and coordinator.etcd.secretName is set: certificates need https://" .) -}}
{{- end -}}
{{- end -}}
{{- if lt (int $v.coordinator.workerLeaseMs) (mul 2 (int $v.coordinator.heartbeatIntervalMs)) -}}
{{- fail (printf "coordinator.workerLeaseMs is %d: must be at least twice heartbeatIntervalMs (%d)" (int $v.coordinator.workerLeaseMs) (int $v.coordinator.heartbeatIntervalMs)) -}}
{{- end -}}
{{- if eq $mode "off" -}}
{{- if ne $v.coordinator.service.type "ClusterIP" -}}
{{- fail (printf "tls.mode is off and coordinator.service.type is %s: an API without TLS is not served beyond the cluster; set tls.mode to chart, certManager or secret, or the type to ClusterIP" $v.coordinator.service.type) -}}
{{- end -}}
{{- if not $v.networkPolicy.enabled -}}
{{- fail "tls.mode is off and networkPolicy.enabled is false: every pod of the cluster could run jobs; enable one of them" -}}
{{- end -}}
{{- if $v.networkPolicy.clients -}}
{{- fail "tls.mode is off and networkPolicy.clients lets others in: without TLS callers need no credentials; set tls.mode to chart, certManager or secret" -}}
{{- end -}}
{{- if $v.tokens.secretName -}}
{{- fail (printf "tls.mode is off and tokens.secretName is %s: tokens are only sent over TLS; set tls.mode to chart, certManager or secret, or leave tokens.secretName unset" $v.tokens.secretName) -}}
{{- end -}}
{{- end -}}
{{- if and (eq $mode "secret") (not $v.tls.secretName) -}}
{{- fail "tls.mode is secret and tls.secretName is empty: name a Secret with tls.crt, tls.key and ca.crt, or set tls.mode to chart or certManager" -}}
{{- end -}}
{{- if and $v.tls.secretName (ne $mode "secret") -}}
{{- fail (printf "tls.secretName is %s and tls.mode is %s: set tls.mode to secret, or leave tls.secretName unset" $v.tls.secretName $mode) -}}
{{- end -}}
{{- if and $v.tls.extraNames (or (eq $mode "secret") (eq $mode "off")) -}}
{{- fail (printf "tls.extraNames applies to the release's own certificate, but tls.mode is %s: put the names into your own certificate" $mode) -}}
{{- end -}}
{{- if and $v.coordinator.service.loadBalancerSourceRanges (ne $v.coordinator.service.type "LoadBalancer") -}}
{{- fail (printf "coordinator.service.loadBalancerSourceRanges is for the type LoadBalancer, and the type is %s" $v.coordinator.service.type) -}}
{{- end -}}
{{- include "muster.validateStorage" . -}}
{{- range $name, $given := $v.pools -}}
{{- include "muster.validatePool" (dict "root" $ "name" $name "pool" (include "muster.pool" (dict "root" $ "pool" $given) | fromYaml)) -}}
{{- /* The controller puts the name and a hash of 10 characters into a label, which has at most 63. */ -}}
{{- $workload := printf "%s-%s" (include "muster.fullname" $) $name -}}
{{- if gt (len $workload) 52 -}}
{{- fail (printf "pools.%s: the pool's workload is called %s, which has %d characters, and it may have 52: shorten the pool's name, or set fullnameOverride" $name $workload (len $workload)) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* "yes" if the label selector matches pods with these labels. Without a selector Kubernetes matches no pod. */ -}}
{{- define "muster.selects" -}}
{{- $labels := .labels -}}
{{- $selects := kindIs "map" .selector -}}
{{- $selector := .selector | default dict -}}
{{- range $key, $value := $selector.matchLabels -}}
{{- if ne (get $labels $key) $value -}}{{- $selects = false -}}{{- end -}}
{{- end -}}
{{- range $selector.matchExpressions -}}
{{- $has := hasKey $labels .key -}}
{{- $in := and $has (has (get $labels .key) (.values | default list)) -}}
{{- $holds := dict "Exists" $has "DoesNotExist" (not $has) "In" $in "NotIn" (not $in) -}}
{{- if not (get $holds .operator) -}}{{- $selects = false -}}{{- end -}}
{{- end -}}
{{- if $selects -}}yes{{- end -}}
{{- end -}}

{{- define "muster.validatePool" -}}
{{- $p := .pool -}}
{{- $where := printf "pools.%s" .name -}}
{{- $resources := $p.resources | default dict -}}
{{- $limits := $resources.limits | default dict -}}
{{- $requests := $resources.requests | default dict -}}
{{- if and (or (gt (int $p.gpus) 0) (gt (int $p.efa) 0)) (not $p.nodeSelector) (not $p.affinity) -}}
{{- fail (printf "%s requests devices (gpus %d, efa %d) and names no node pool: give it a nodeSelector or an affinity" $where (int $p.gpus) (int $p.efa)) -}}
{{- end -}}
{{- $devices := dict "nvidia.com/gpu" "gpus" $p.gpuResource "gpus" "vpc.amazonaws.com/efa" "efa" "hugepages-2Mi" "hugepages2Mi" -}}
{{- range $kind := tuple "requests" "limits" -}}
{{- range $name, $count := index $resources $kind -}}
{{- with get $devices $name -}}
{{- fail (printf "%s.resources.%s has %s %v: give it as %s of the pool, which slots and node selection depend on" $where $kind $name $count .) -}}
{{- end -}}
{{- if and (contains "/" $name) (not $p.nodeSelector) (not $p.affinity) -}}
{{- fail (printf "%s.resources.%s has %s %v and the pool names no nodes: give it a nodeSelector or an affinity" $where $kind $name $count) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and (gt (int $p.gpus) 0) (eq (toString $p.gpuResource) "vpc.amazonaws.com/efa") -}}
{{- fail (printf "%s has gpuResource vpc.amazonaws.com/efa, which is not a GPU: give EFA interfaces as efa of the pool, and GPUs as nvidia.com/gpu" $where) -}}
{{- end -}}
{{- $memory := $limits.memory | default "" -}}
{{- $limit := include "muster.quantity" $memory | float64 -}}
{{- if and (gt $limit 0.0) (gt (include "muster.quantity" $p.sharedMemory | float64) $limit) -}}
{{- fail (printf "%s has sharedMemory %v and resources.limits.memory %v: /dev/shm counts as the container's memory; increase the memory or reduce sharedMemory" $where $p.sharedMemory $memory) -}}
{{- end -}}
{{- /* GPUs do not separate workers: a node may have enough for two. */ -}}
{{- $apart := false -}}
{{- $labels := merge (include "muster.poolSelector" . | fromYaml) ($p.podLabels | default dict) -}}
{{- range $index, $constraint := $p.topologySpreadConstraints -}}
{{- if not (include "muster.selects" (dict "selector" $constraint.labelSelector "labels" $labels)) -}}
{{- fail (printf "%s.topologySpreadConstraints[%d] has labelSelector %s, which does not match the pool's own pods, so that it spreads none of them: give {matchLabels: {muster-pool: %s}}" $where $index (toJson $constraint.labelSelector) $.name) -}}
{{- end -}}
{{- if and (eq (get . "topologyKey" | toString) "kubernetes.io/hostname") (eq (get . "whenUnsatisfiable" | toString) "DoNotSchedule") (eq (get . "maxSkew" | int) 1) -}}{{- $apart = true -}}{{- end -}}
{{- end -}}
{{- $affinity := $p.affinity | default dict -}}
{{- $antiAffinity := $affinity.podAntiAffinity | default dict -}}
{{- range $antiAffinity.requiredDuringSchedulingIgnoredDuringExecution -}}
{{- if and (eq (get . "topologyKey" | toString) "kubernetes.io/hostname") (include "muster.selects" (dict "selector" .labelSelector "labels" $labels)) -}}{{- $apart = true -}}{{- end -}}
{{- end -}}
{{- if and (eq $p.kind "StatefulSet") (eq $p.nameBy "node") (gt (int $p.replicas) 1) (not $apart) -}}
{{- fail (printf "%s has nameBy node and replicas %d, and nothing keeps two of them from one node, where the second has the first one's name and is refused: give it topologySpreadConstraints (maxSkew: 1, whenUnsatisfiable: DoNotSchedule) or a required podAntiAffinity with the topologyKey kubernetes.io/hostname and the labelSelector {matchLabels: {muster-pool: %s}}, or set nameBy to pod" $where (int $p.replicas) .name) -}}
{{- end -}}
{{- $away := toString $p.maxUnavailable -}}
{{- if hasSuffix "%" $away -}}
{{- if gt (float64 (trimSuffix "%" $away)) 100.0 -}}
{{- fail (printf "%s has maxUnavailable %s: of all workers at most 100%% can be away; give 1%% to 100%%, or a number of workers" $where $away) -}}
{{- end -}}
{{- end -}}
{{- $without := false -}}
{{- range $p.env -}}{{- if and (eq .name "FI_EFA_USE_HUGE_PAGE") (has (toString .value | lower) (tuple "0" "false" "no" "off")) -}}{{- $without = true -}}{{- end -}}{{- end -}}
{{- if and (gt (int $p.efa) 0) (not $p.hugepages2Mi) (not $without) -}}
{{- fail (printf "%s has efa %d and no hugepages2Mi: libfabric takes its buffers from huge pages unless env has FI_EFA_USE_HUGE_PAGE=0; AWS recommends 5120Mi" $where (int $p.efa)) -}}
{{- end -}}
{{- if and $p.hugepages2Mi $without -}}
{{- fail (printf "%s has hugepages2Mi %s, which has no use with FI_EFA_USE_HUGE_PAGE=0 in env: omit one of them" $where $p.hugepages2Mi) -}}
{{- end -}}
{{- if and $p.hugepages2Mi (not $limits.memory) (not $requests.memory) -}}
{{- fail (printf "%s has hugepages2Mi and no memory: Kubernetes gives huge pages only to containers that request cpu or memory, too; set resources.requests.memory" $where) -}}
{{- end -}}
{{- if and (gt (int $p.slots) 0) (gt (int $p.gpus) 0) (gt (int $p.slots) (int $p.gpus)) -}}
{{- fail (printf "%s has slots %d and gpus %d: every rank needs its own GPU; leave slots unset" $where (int $p.slots) (int $p.gpus)) -}}
{{- end -}}
{{- $places := list -}}
{{- range tuple "size" "hostPath" "claim" -}}{{- if hasKey $p.workDir . -}}{{- if index $p.workDir . -}}{{- $places = append $places . -}}{{- end -}}{{- end -}}{{- end -}}
{{- if and (eq $p.kind "DaemonSet") (has "claim" $places) -}}
{{- fail (printf "%s is a DaemonSet and has workDir.claim: its pods have no claims of their own; give workDir.hostPath or workDir.size, or make it a StatefulSet" $where) -}}
{{- end -}}
{{- if and (has "hostPath" $places) (has "claim" $places) -}}
{{- fail (printf "%s has both workDir.hostPath and workDir.claim: one of them is where the ranks' files are" $where) -}}
{{- end -}}
{{- if and (eq $p.kind "DaemonSet") (ne (int $p.replicas) 1) -}}
{{- fail (printf "%s is a DaemonSet and has replicas %d: it has one worker on each node that matches; leave replicas unset" $where (int $p.replicas)) -}}
{{- end -}}
{{- if and $p.switches $p.switchesFromNode -}}
{{- fail (printf "%s has switches and switchesFromNode: switches applies to all nodes, switchesFromNode reads each node's labels; omit one of them" $where) -}}
{{- end -}}
{{- if and $p.domainFromNode (not $p.switchesFromNode) -}}
{{- fail (printf "%s has domainFromNode without switchesFromNode, whose container reads the label; give switchesFromNode, for example [topology.kubernetes.io/zone]" $where) -}}
{{- end -}}
{{- range $p.env -}}
{{- if hasPrefix "MUSTER_WORKER_" .name -}}
{{- fail (printf "%s.env has %s: names that begin with MUSTER_WORKER_ are reserved for the chart" $where .name) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "muster.validateStorage" -}}
{{- $s := .Values.storage -}}
{{- $places := list -}}
{{- if $s.claimName -}}{{- $places = append $places "claimName" -}}{{- end -}}
{{- if $s.hostPath -}}{{- $places = append $places "hostPath" -}}{{- end -}}
{{- if ($s.create | default dict).size -}}{{- $places = append $places "create.size" -}}{{- end -}}
{{- if gt (len $places) 1 -}}
{{- fail (printf "storage has %s: one of them is where checkpoints are" (join " and " $places)) -}}
{{- end -}}
{{- $path := clean (toString ($s.mountPath | default "")) -}}
{{- range tuple "/var/lib/muster" "/dev/shm" "/etc/muster/ca" "/etc/muster/token" "/run/muster" -}}
{{- if hasPrefix (printf "%s/" .) (printf "%s/" $path) -}}
{{- fail (printf "storage.mountPath is %s, a folder that the worker's pod uses itself: give another path, for example /shared" $s.mountPath) -}}
{{- end -}}
{{- end -}}
{{- if and $s.mountPath (hasPrefix (printf "%s/" (trimSuffix "/" $path)) (printf "%s/" (clean .Values.image.binDir))) -}}
{{- fail (printf "storage.mountPath is %s, which would hide the programs in image.binDir (%s): give another path, for example /shared" $s.mountPath .Values.image.binDir) -}}
{{- end -}}
{{- if and $places (not $s.mountPath) -}}
{{- fail (printf "storage has %s and no mountPath: set the mount point in workers, for example /shared" (first $places)) -}}
{{- end -}}
{{- if and $s.mountPath (not $places) -}}
{{- fail (printf "storage.mountPath is %s and there is nothing to mount: give storage.claimName, storage.hostPath or storage.create.size" $s.mountPath) -}}
{{- end -}}
{{- end -}}
