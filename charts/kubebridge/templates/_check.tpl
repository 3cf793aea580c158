{{/* Fails with a sentence where values contradict each other. What the bridge itself can check is left to it. */}}
{{- define "kubebridge.check" -}}
{{- $c := .Values.config -}}
{{- $missing := list -}}
{{- range list "cluster" "sinks" -}}{{- if not (index $c .) -}}{{- $missing = append $missing (printf "config.%s" .) -}}{{- end -}}{{- end -}}
{{- if and .Values.existingConfigMap .Values.existingConfigSecret -}}
{{- fail "existingConfigMap and existingConfigSecret are both set: choose one" -}}
{{- end -}}
{{- if and $missing (not (include "kubebridge.existingConfig" .)) -}}
{{- fail (printf "%s: nothing is set. The bridge needs at least config.cluster, a name for this cluster that stands in every event, config.resources or a preset, what is watched, and config.sinks, where it goes. docs/configuration.md has an example" (join " and " $missing)) -}}
{{- end -}}
{{- if not (or (include "kubebridge.existingConfig" .) (eq .Values.configIn "Secret")) -}}
{{- with include "kubebridge.clearText" (dict "path" "config" "name" "" "value" $c) -}}
{{- fail (printf "%s: a credential in clear text, and a ConfigMap is no place for it. Put it into a Secret, and write \"${file:/etc/kubebridge/credentials/KEY}\" with existingSecret, or \"${env:NAME}\" with extraEnv. Or set configIn: Secret" (trimSuffix ", " .)) -}}
{{- end -}}
{{- end -}}
{{- range $c.sinks -}}
{{- if ne (len (pick . "kafka" "nats" "file" "stdout")) 1 -}}
{{- fail (printf "sink %q: exactly one of kafka, nats, file and stdout says where it writes" (toString .name)) -}}
{{- end -}}
{{- if and .nats (ne (len (pick .nats "url" "embedded")) 1) -}}
{{- fail (printf "sink %q: exactly one of nats.url and nats.embedded says which NATS it writes to" (toString .name)) -}}
{{- end -}}
{{- if not (or .resources $c.resources) -}}
{{- fail (printf "sink %q has no resources: name some under config.resources or in the sink, or enable a preset" (toString .name)) -}}
{{- end -}}
{{- $onBus := or .kafka (and .nats (eq (dig "nats" "delivery" "exactly-once" .) "exactly-once")) -}}
{{- if not (or $onBus (dig "checkpoint" "file" "path" "" $c)) -}}
{{- fail (printf "sink %q cannot keep its checkpoint on its bus: set config.checkpoint.file.path: %s, for which the chart makes a volume" (toString .name) $.Values.persistence.mountPath) -}}
{{- end -}}
{{- end -}}

{{- $replicas := include "kubebridge.replicas" . | int -}}
{{- $disk := include "kubebridge.disk" . | fromJsonArray -}}
{{- $own := $disk -}}
{{- if include "kubebridge.bufferClaim" . -}}{{- $own = append $own (dict "key" "the volume of buffer.persistence") -}}{{- end -}}
{{- if and (include "kubebridge.auditClaim" .) (not (include "kubebridge.auditReplicas" .)) -}}{{- $own = append $own (dict "key" "the volume of audit.persistence") -}}{{- end -}}
{{- if and (gt $replicas 1) $own -}}
{{- fail (printf "replicaCount is %d, and %s is a directory, which two bridges cannot share: set replicaCount: 1, or keep nothing on a disk" $replicas (first $own).key) -}}
{{- end -}}
{{- if and (gt $replicas 1) (not (include "kubebridge.leads" .)) -}}
{{- fail (printf "replicaCount is %d without leader election: all of them would write. Set replicaCount: 1, or leave config.leaderElection.enabled out" $replicas) -}}
{{- end -}}
{{- if and $own (include "kubebridge.leads" .) -}}
{{- fail (printf "config.leaderElection is enabled, and %s is a directory, which two bridges cannot share: leave one of them out" (first $own).key) -}}
{{- end -}}
{{- with dig "buffer" "path" "" $c -}}
{{- if $.Values.buffer.enabled -}}
{{- fail (printf "config.buffer.path is %s, and buffer.enabled makes a volume and sets that path: leave config.buffer.path out" .) -}}
{{- end -}}
{{- $disk = append $disk (dict "key" "config.buffer.path" "path" .) -}}
{{- end -}}
{{- if and .Values.buffer.enabled (not (include "kubebridge.nineTenths" .Values.buffer.size)) -}}
{{- fail (printf "buffer.size is %s: write a number and k, M, G, T, Ki, Mi, Gi or Ti, such as 10Gi" .Values.buffer.size) -}}
{{- end -}}
{{- if and .Values.buffer.standby (not .Values.buffer.enabled) -}}
{{- fail "buffer.standby is set, and buffer.enabled is not: there is no volume for a buffer. Set buffer.enabled, or leave buffer.standby out" -}}
{{- end -}}
{{- if include "kubebridge.standbysBuffer" . -}}
{{- if not (include "kubebridge.leads" .) -}}
{{- fail "buffer.standby is set without leader election: there are no standbys. Leave one of buffer.standby and config.leaderElection.enabled out" -}}
{{- end -}}
{{- if and .Values.buffer.enabled .Values.buffer.persistence.enabled .Values.buffer.persistence.existingClaim -}}
{{- fail (printf "buffer.persistence.existingClaim is %s, and with buffer.standby each pod needs a volume of its own: leave existingClaim out" .Values.buffer.persistence.existingClaim) -}}
{{- end -}}
{{- range $mount := .Values.extraVolumeMounts -}}
{{- $path := clean (dig "buffer" "path" "" $c) -}}
{{- range $volume := $.Values.extraVolumes -}}
{{- if and (eq $mount.name $volume.name) $volume.persistentVolumeClaim (hasPrefix (printf "%s/" (clean $mount.mountPath)) (printf "%s/" $path)) -}}
{{- fail (printf "config.buffer.path is %s, on the volume claim %s that all pods share, and with buffer.standby each pod needs a volume of its own: mount an emptyDir or an ephemeral volume there" $path $volume.persistentVolumeClaim.claimName) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- include "kubebridge.checkAudit" . -}}
{{- if .Values.serve.enabled -}}{{- include "kubebridge.checkServe" . -}}{{- end -}}
{{- $roots := list .Values.persistence.mountPath -}}
{{- range .Values.extraVolumeMounts -}}{{- $roots = append $roots .mountPath -}}{{- end -}}
{{- range $d := $disk -}}
{{- $within := false -}}
{{- range $roots -}}
{{- if or (eq (clean $d.path) (clean .)) (hasPrefix (printf "%s/" (clean .)) (clean $d.path)) -}}{{- $within = true -}}{{- end -}}
{{- end -}}
{{- if not $within -}}
{{- fail (printf "%s is %s, where no volume is mounted: put it below persistence.mountPath, %s, or mount one there with extraVolumes and extraVolumeMounts" $d.key $d.path $.Values.persistence.mountPath) -}}
{{- end -}}
{{- end -}}

{{- $listen := dig "status" "listen" ":8080" $c -}}
{{- if include "kubebridge.loopback" $listen -}}
{{- fail (printf "config.status.listen is %s, where the kubelet's probes do not reach it: leave it out, or set it to off" $listen) -}}
{{- end -}}
{{- range $key := list "podMonitor" "serviceMonitor" -}}
{{- if and (index $.Values $key).enabled (eq $listen "off") -}}
{{- fail (printf "%s is enabled, and config.status.listen is off: there is nothing to scrape" $key) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.podMonitor.enabled .Values.serviceMonitor.enabled -}}
{{- fail "podMonitor and serviceMonitor are both enabled: every number would come twice. Choose one" -}}
{{- end -}}

{{- range $key, $names := dict "ingress" "hosts" "httpRoute" "parentRefs" -}}
{{- $route := index $.Values $key -}}
{{- if and $route.enabled (eq $listen "off") -}}
{{- fail (printf "%s is enabled, and config.status.listen is off: there is nothing to reach" $key) -}}
{{- end -}}
{{- if and $route.enabled (not (index $route $names)) -}}
{{- fail (printf "%s is enabled, and %s.%s is empty: name at least one" $key $key $names) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.strategy (not (include "kubebridge.stateful" .)) (not (include "kubebridge.leads" .)) (ne (toString .Values.strategy.type) "Recreate") -}}
{{- fail "strategy is set without leader election: two pods at once would both write. Leave it out, or set strategy.type: Recreate" -}}
{{- end -}}
{{- range $name, $_ := dict "ports" 1 "nodePorts" 2 -}}
{{- $known := list -}}
{{- range include "kubebridge.ports" $ | fromJsonArray -}}{{- $known = append $known .name -}}{{- end -}}
{{- range $port, $_ := index $.Values.service $name -}}
{{- if not (has $port $known) -}}
{{- fail (printf "service.%s.%s: there is no such port; there are %s" $name $port (join ", " $known)) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- if and .Values.status.tlsSecret (eq $listen "off") -}}
{{- fail "status.tlsSecret is set, and config.status.listen is off: leave out one of the two" -}}
{{- end -}}
{{- if and (include "kubebridge.statusByRBAC" .) .Values.rbac.create (not .Values.rbac.clusterScope) -}}
{{- fail "config.status.login.kubernetes asks the API server whose a token is, which takes a ClusterRole, and rbac.clusterScope is false: use config.status.login.tokenFile" -}}
{{- end -}}

{{- if and (not .Values.rbac.clusterScope) (not (dig "kubernetes" "clusterUID" "" $c)) -}}
{{- fail "rbac.clusterScope is false, and without a ClusterRole the bridge may not ask which cluster this is: set config.kubernetes.clusterUID to what `kubectl get namespace kube-system -o jsonpath={.metadata.uid}` prints" -}}
{{- end -}}
{{- if and (not .Values.serviceAccount.create) (not .Values.serviceAccount.name) -}}
{{- fail "serviceAccount.create is false, and no serviceAccount.name says whose rights the bridge has: name one" -}}
{{- end -}}
{{- end -}}

{{/* The paths of passwords, of tokens, and of URLs with a login, that are in clear text. From path, name and value. */}}
{{- define "kubebridge.clearText" -}}
{{- $path := .path -}}
{{- $name := .name -}}
{{- if kindIs "map" .value -}}
{{- range $key, $value := .value -}}
{{- include "kubebridge.clearText" (dict "path" (printf "%s.%s" $path $key) "name" $key "value" $value) -}}
{{- end -}}
{{- else if kindIs "slice" .value -}}
{{- range $i, $value := .value -}}
{{- include "kubebridge.clearText" (dict "path" (printf "%s[%d]" $path $i) "name" $name "value" $value) -}}
{{- end -}}
{{- else if not (regexMatch "^$|\\$\\{(env|file):" (toString .value)) -}}
{{- if or (has $name (list "password" "token")) (and (eq $name "url") (regexMatch "//[^/@]+@" (toString .value))) -}}
{{ $path }}, {{ end -}}
{{- end -}}
{{- end -}}

{{/* Fails where audit records would have no way in, or would be lost. */}}
{{- define "kubebridge.checkAudit" -}}
{{- $a := .Values.audit -}}
{{- $c := default dict .Values.config.audit -}}
{{- $w := $a.webhook -}}
{{- $listen := dig "webhook" "listen" "" $c -}}
{{- if and $a.replicas (not $a.enabled) -}}
{{- fail "audit.replicas is set, and audit.enabled is not: set audit.enabled, or leave it out" -}}
{{- end -}}
{{- if include "kubebridge.auditReplicas" . -}}
{{- if not (include "kubebridge.auditPort" .) -}}
{{- fail "audit.replicas is set, and replicas send records to the webhook of the leader: set audit.webhook.tlsSecret" -}}
{{- end -}}
{{- if $a.persistence.existingClaim -}}
{{- fail (printf "audit.replicas is set, and audit.persistence.existingClaim is %s, which two replicas cannot share: leave it out, and each replica gets a claim of its own" $a.persistence.existingClaim) -}}
{{- end -}}
{{- if not (include "kubebridge.leads" .) -}}
{{- fail "audit.replicas is set, and config.leaderElection.enabled is false: leave one of them out" -}}
{{- end -}}
{{- end -}}
{{- if not $a.enabled -}}
{{- range $key := list "tlsSecret" "tokenSecret" "clientCASecret" -}}
{{- if index $w $key -}}
{{- fail (printf "audit.webhook.%s is set, and audit.enabled is not: set audit.enabled, or leave it out" $key) -}}
{{- end -}}
{{- end -}}
{{- if and $listen $c.path -}}
{{- $volumes := dict -}}
{{- range .Values.extraVolumes -}}{{- if hasKey . "emptyDir" -}}{{- $_ := set $volumes .name true -}}{{- end -}}{{- end -}}
{{- $lost := list -}}
{{- if not .Values.persistence.enabled -}}{{- $lost = append $lost .Values.persistence.mountPath -}}{{- end -}}
{{- range .Values.extraVolumeMounts -}}{{- if hasKey $volumes .name -}}{{- $lost = append $lost .mountPath -}}{{- end -}}{{- end -}}
{{- range $lost -}}
{{- if hasPrefix (printf "%s/" (clean .)) (printf "%s/" (clean $c.path)) -}}
{{- fail (printf "config.audit.path is %s, on an emptyDir, which is lost with the pod: an API server does not repeat audit records that the bridge has accepted. Use a volume claim" $c.path) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- else -}}
{{- with $c.path -}}
{{- fail (printf "config.audit.path is %s, and audit.enabled makes a volume and sets that path: leave config.audit.path out" .) -}}
{{- end -}}
{{- if not (include "kubebridge.nineTenths" $a.size) -}}
{{- fail (printf "audit.size is %s: write a number and k, M, G, T, Ki, Mi, Gi or Ti, such as 2Gi" $a.size) -}}
{{- end -}}
{{- if not (or $w.tlsSecret $listen $c.file $c.kafka) -}}
{{- fail "audit.enabled is set, and nothing says where audit records come from: set audit.webhook.tlsSecret, config.audit.kafka, or config.audit.file and a volume that has the file" -}}
{{- end -}}
{{- if and $w.tlsSecret (not (or $w.tokenSecret $w.clientCASecret (dig "webhook" "tokenFile" "" $c) (dig "webhook" "clientCAFile" "" $c))) -}}
{{- fail "audit.webhook.tlsSecret is set, and anybody could say who made a change: set audit.webhook.tokenSecret or audit.webhook.clientCASecret" -}}
{{- end -}}
{{- if and (or $w.tlsSecret $listen) (not $a.persistence.enabled) -}}
{{- fail "audit.persistence.enabled is false, and an emptyDir is lost with the pod: an API server does not repeat audit records that the bridge has accepted. Set audit.persistence.enabled, or use config.audit.file or config.audit.kafka without a webhook" -}}
{{- end -}}
{{- end -}}
{{- end -}}
