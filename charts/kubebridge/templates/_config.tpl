{{/* The bridge's configuration, as JSON: the user's, and what only the chart knows. */}}
{{- define "kubebridge.config" -}}
{{- $c := deepCopy .Values.config -}}
{{- if not $c.name -}}{{- $_ := set $c "name" (include "kubebridge.fullname" .) -}}{{- end -}}
{{- if include "kubebridge.leads" . -}}
{{- $l := default dict $c.leaderElection -}}
{{- $_ := set $l "enabled" true -}}
{{- if not $l.leaseName -}}{{- $_ := set $l "leaseName" (printf "kubebridge-%s" $c.name) -}}{{- end -}}
{{- $_ := set $c "leaderElection" $l -}}
{{- end -}}
{{- with include "kubebridge.hashKeySecret" . -}}
{{- $_ := set $c "secrets" (set (default dict $c.secrets) "hashKeySecret" (printf "%s/%s" (include "kubebridge.namespace" $) .)) -}}
{{- end -}}
{{- if include "kubebridge.statusPort" . -}}
{{- $s := default dict $c.status -}}
{{- if not $s.listen -}}{{- $_ := set $s "listen" ":8080" -}}{{- end -}}
{{- if and .Values.status.tlsSecret (not $s.tls) -}}
{{- $_ := set $s "tls" (dict "cert" "/etc/kubebridge/status-tls/tls.crt" "key" "/etc/kubebridge/status-tls/tls.key") -}}
{{- end -}}
{{- /* The names that the Service has: a request that is sent to another name is refused. */ -}}
{{- $name := include "kubebridge.fullname" . -}}
{{- $namespace := include "kubebridge.namespace" . -}}
{{- $full := printf "%s.%s.svc" $name $namespace -}}
{{- $own := list $name (printf "%s.%s" $name $namespace) $full (printf "%s.%s" $full (default "cluster.local" .Values.status.clusterDomain)) -}}
{{- range $key, $names := dict "ingress" "hosts" "httpRoute" "hostnames" -}}
{{- with index $.Values $key -}}{{- if .enabled -}}{{- $own = concat $own (default list (index . $names)) -}}{{- end -}}{{- end -}}
{{- end -}}
{{- $_ := set $s "hosts" (concat $own (default list $s.hosts) | uniq) -}}
{{- $_ := set $c "status" $s -}}
{{- end -}}
{{- if .Values.buffer.enabled -}}
{{- $b := set (default dict $c.buffer) "path" (include "kubebridge.bufferPath" .) -}}
{{- if not $b.maxBytes -}}{{- $_ := set $b "maxBytes" (include "kubebridge.nineTenths" .Values.buffer.size) -}}{{- end -}}
{{- if .Values.buffer.standby -}}{{- $_ := set $b "standby" true -}}{{- end -}}
{{- $_ := set $c "buffer" $b -}}
{{- end -}}
{{- if .Values.audit.enabled -}}
{{- $a := set (default dict $c.audit) "path" (include "kubebridge.auditPath" .) -}}
{{- if not $a.maxBytes -}}{{- $_ := set $a "maxBytes" (include "kubebridge.nineTenths" .Values.audit.size) -}}{{- end -}}
{{- $w := default dict $a.webhook -}}
{{- with .Values.audit.webhook.tlsSecret -}}
{{- if not $w.listen -}}{{- $_ := set $w "listen" ":8444" -}}{{- end -}}
{{- $_ := set $w "certFile" "/etc/kubebridge/audit-tls/tls.crt" -}}
{{- $_ := set $w "keyFile" "/etc/kubebridge/audit-tls/tls.key" -}}
{{- end -}}
{{- with .Values.audit.webhook.tokenSecret -}}{{- $_ := set $w "tokenFile" "/etc/kubebridge/audit-token/token" -}}{{- end -}}
{{- with .Values.audit.webhook.clientCASecret -}}{{- $_ := set $w "clientCAFile" "/etc/kubebridge/audit-client-ca/ca.crt" -}}{{- end -}}
{{- if $w -}}{{- $_ := set $a "webhook" $w -}}{{- end -}}
{{- if include "kubebridge.auditReplicas" . -}}
{{- $r := default dict $a.replicas -}}
{{- if not $r.address -}}{{- $_ := set $r "address" (printf "{host}.%s.%s.svc:%s" (include "kubebridge.replicasService" .) (include "kubebridge.namespace" .) (include "kubebridge.auditPort" .)) -}}{{- end -}}
{{- if not $r.caFile -}}{{- $_ := set $r "caFile" "/etc/kubebridge/audit-tls/ca.crt" -}}{{- end -}}
{{- $_ := set $a "replicas" $r -}}
{{- end -}}
{{- $_ := set $c "audit" $a -}}
{{- end -}}
{{- if not (dig "admin" "socket" "" $c) -}}
{{- $_ := set $c "admin" (dict "socket" "/tmp/admin.sock") -}}
{{- end -}}
{{- toJson $c -}}
{{- end -}}

{{/* Not empty where the configuration is in an object of the user's. */}}
{{- define "kubebridge.existingConfig" -}}
{{- default .Values.existingConfigMap .Values.existingConfigSecret -}}
{{- end -}}

{{/* Where the volume of the disk buffer is mounted. */}}
{{- define "kubebridge.bufferPath" -}}/var/lib/kubebridge-buffer{{- end -}}

{{/* Not empty where every replica accepts audit records, with a volume of its own. */}}
{{- define "kubebridge.auditReplicas" -}}
{{- if and .Values.audit.enabled .Values.audit.replicas -}}yes{{- end -}}
{{- end -}}

{{/* Name of the Service by which replicas reach one another. */}}
{{- define "kubebridge.replicasService" -}}{{ include "kubebridge.fullname" . | trunc 54 | trimSuffix "-" }}-replicas{{- end -}}

{{/* Where the volume of audit records is mounted. */}}
{{- define "kubebridge.auditPath" -}}/var/lib/kubebridge-audit{{- end -}}

{{/* The port to which API servers send audit records; empty: there is none that they can reach. */}}
{{- define "kubebridge.auditPort" -}}
{{- $listen := dig "audit" "webhook" "listen" "" .Values.config -}}
{{- if and .Values.audit.enabled .Values.audit.webhook.tlsSecret (not $listen) -}}{{- $listen = ":8444" -}}{{- end -}}
{{- if not (include "kubebridge.loopback" $listen) -}}{{- regexFind "[0-9]+$" $listen -}}{{- end -}}
{{- end -}}

{{/* Not empty where audit records outlive a pod, on a volume of their own. */}}
{{- define "kubebridge.auditClaim" -}}
{{- if and .Values.audit.enabled .Values.audit.persistence.enabled -}}yes{{- end -}}
{{- end -}}

{{/* The Secrets of the audit webhook, as a JSON list of {name, secret}: each is mounted at /etc/kubebridge/<name>. */}}
{{- define "kubebridge.auditSecrets" -}}
{{- $all := list -}}
{{- if .Values.audit.enabled -}}
{{- range $name, $key := dict "audit-tls" "tlsSecret" "audit-token" "tokenSecret" "audit-client-ca" "clientCASecret" -}}
{{- with index $.Values.audit.webhook $key -}}{{- $all = append $all (dict "name" $name "secret" .) -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- toJson $all -}}
{{- end -}}

{{/* What the configuration keeps on the volume data, as a JSON list of {key, path}. */}}
{{- define "kubebridge.disk" -}}
{{- $all := list -}}
{{- with dig "checkpoint" "file" "path" "" .Values.config -}}
{{- $all = append $all (dict "key" "config.checkpoint.file.path" "path" .) -}}
{{- end -}}
{{- if not .Values.audit.enabled -}}
{{- with dig "audit" "path" "" .Values.config -}}
{{- $all = append $all (dict "key" "config.audit.path" "path" .) -}}
{{- end -}}
{{- end -}}
{{- range .Values.config.sinks -}}
{{- $sink := . -}}
{{- with dig "nats" "embedded" "dir" "" . -}}
{{- $all = append $all (dict "key" (printf "sink %q's nats.embedded.dir" $sink.name) "path" .) -}}
{{- end -}}
{{- with dig "file" "path" "" . -}}
{{- $all = append $all (dict "key" (printf "sink %q's file.path" $sink.name) "path" .) -}}
{{- end -}}
{{- end -}}
{{- toJson $all -}}
{{- end -}}

{{/* Not empty where something is kept on a disk: that belongs to one bridge alone. */}}
{{- define "kubebridge.stateful" -}}
{{- if or (include "kubebridge.disk" . | fromJsonArray) (include "kubebridge.bufferClaim" .) (include "kubebridge.auditClaim" .) -}}yes{{- end -}}
{{- end -}}

{{/* Not empty where the disk buffer outlives a pod. */}}
{{- define "kubebridge.bufferClaim" -}}
{{- if and .Values.buffer.enabled .Values.buffer.persistence.enabled (not (include "kubebridge.standbysBuffer" .)) -}}yes{{- end -}}
{{- end -}}

{{/* Not empty where standbys have a disk buffer, too. */}}
{{- define "kubebridge.standbysBuffer" -}}
{{- if or .Values.buffer.standby (dig "buffer" "standby" false .Values.config) -}}yes{{- end -}}
{{- end -}}

{{/* Not empty where a Lease says who leads. */}}
{{- define "kubebridge.leads" -}}
{{- $shared := or (not (include "kubebridge.stateful" .)) (include "kubebridge.auditReplicas" .) -}}
{{- $wanted := dig "leaderElection" "enabled" (not (empty $shared)) .Values.config -}}
{{- if $wanted -}}yes{{- end -}}
{{- end -}}

{{- define "kubebridge.replicas" -}}
{{- if hasKey .Values "replicaCount" -}}
{{- int .Values.replicaCount -}}
{{- else if and (include "kubebridge.leads" .) (or (not (include "kubebridge.stateful" .)) (include "kubebridge.auditReplicas" .)) -}}2{{- else -}}1{{- end -}}
{{- end -}}

{{/* Name of the Secret with the hash key, if the bridge hashes and the configuration names no key. */}}
{{- define "kubebridge.hashKeySecret" -}}
{{- $s := default dict .Values.config.secrets -}}
{{- if and (eq (default "hash" $s.values) "hash") (not $s.hashKeyFile) (not $s.hashKeySecret) -}}
{{- if .Values.hashKey.existingSecret -}}
{{- .Values.hashKey.existingSecret -}}
{{- else if .Values.hashKey.create -}}
{{- include "kubebridge.fullname" . }}-hash-key
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The name of the Lease, and its namespace, as namespace/name. */}}
{{- define "kubebridge.lease" -}}
{{- $l := (include "kubebridge.config" . | fromJson).leaderElection -}}
{{- printf "%s/%s" (default (include "kubebridge.namespace" .) $l.namespace) $l.leaseName -}}
{{- end -}}

{{/* The status server's port; empty where it is off. */}}
{{- define "kubebridge.statusPort" -}}
{{- $listen := dig "status" "listen" ":8080" .Values.config -}}
{{- if ne $listen "off" -}}{{- regexFind "[0-9]+$" $listen -}}{{- end -}}
{{- end -}}

{{/* HTTP or HTTPS, as the status server speaks. */}}
{{- define "kubebridge.statusScheme" -}}
{{- if or .Values.status.tlsSecret (dig "status" "tls" "cert" "" .Values.config) -}}HTTPS{{- else -}}HTTP{{- end -}}
{{- end -}}

{{/* Not empty where the API server decides who may see the status. */}}
{{- define "kubebridge.statusByRBAC" -}}
{{- if and (include "kubebridge.statusPort" .) (dig "status" "login" "kubernetes" false .Values.config) -}}yes{{- end -}}
{{- end -}}

{{/* Not empty for an address that nothing outside the pod reaches. */}}
{{- define "kubebridge.loopback" -}}
{{- if regexMatch "^(127\\.|localhost:|\\[::1\\])" . -}}yes{{- end -}}
{{- end -}}

{{/* Ports of embedded NATS servers that can be reached, as a JSON list of {name, port}. */}}
{{- define "kubebridge.natsPorts" -}}
{{- $all := list -}}
{{- range $i, $sink := .Values.config.sinks -}}
{{- with dig "nats" "embedded" "listen" "" $sink -}}
{{- if not (include "kubebridge.loopback" .) -}}
{{- $all = append $all (dict "name" (printf "nats-%d" $i) "port" (regexFind "[0-9]+$" . | int)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toJson $all -}}
{{- end -}}

{{/* All ports of the bridge, as a JSON list of {name, port}. */}}
{{- define "kubebridge.ports" -}}
{{- $ports := include "kubebridge.natsPorts" . | fromJsonArray -}}
{{- with include "kubebridge.auditPort" . -}}{{- $ports = append $ports (dict "name" "audit" "port" (int .)) -}}{{- end -}}
{{- with include "kubebridge.statusPort" . -}}{{- $ports = prepend $ports (dict "name" "status" "port" (int .)) -}}{{- end -}}
{{- toJson $ports -}}
{{- end -}}

{{/* The port of the Service for a port of the pods. From root, name and port, the port of the pods. */}}
{{- define "kubebridge.servicePort" -}}
{{- dig .name .port (default dict .root.Values.service.ports) | int -}}
{{- end -}}

{{/* Fields of a Service's spec, from its values and, for both Services, those of the bridge's. From root and set. */}}
{{- define "kubebridge.serviceSpec" -}}
type: {{ default "ClusterIP" .set.type }}
{{- range $name := list "externalTrafficPolicy" "loadBalancerIP" "loadBalancerClass" }}
{{- with index $.set $name }}
{{ $name }}: {{ . }}
{{- end }}
{{- end }}
{{- with .set.loadBalancerSourceRanges }}
loadBalancerSourceRanges: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.service.ipFamilyPolicy }}
ipFamilyPolicy: {{ . }}
{{- end }}
{{- with .root.Values.service.ipFamilies }}
ipFamilies: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* What a running bridge does not take over from a changed configuration: a change of it is a restart. */}}
{{- define "kubebridge.restartsOn" -}}
{{- $c := include "kubebridge.config" . | fromJson -}}
{{- $routes := list -}}
{{- range $c.resources -}}
{{- if and (kindIs "map" .) (or .topic .key .subject .headers) -}}{{- $routes = append $routes (pick . "resource" "topic" "key" "subject" "headers") -}}{{- end -}}
{{- end -}}
{{- $c = omit $c "resources" "exclude" -}}
{{- if $routes -}}{{- $_ := set $c "routes" $routes -}}{{- end -}}
{{- with $c.log -}}{{- $_ := set $c "log" (omit . "level") -}}{{- end -}}
{{- $sinks := list -}}
{{- range $c.sinks -}}{{- $sinks = append $sinks (omit . "resources") -}}{{- end -}}
{{- $_ := set $c "sinks" $sinks -}}
{{- toJson $c | sha256sum -}}
{{- end -}}

{{/* Nine tenths of the memory limit, in bytes; empty without one. */}}
{{- define "kubebridge.memory" -}}
{{- with dig "limits" "memory" "" (default dict .Values.resources) -}}{{- include "kubebridge.nineTenths" . -}}{{- end -}}
{{- end -}}

{{/* Nine tenths of a quantity, as a whole number; empty where it is none. */}}
{{- define "kubebridge.nineTenths" -}}
{{- $text := toString . -}}
{{- $number := regexFind "^[0-9.]+" $text -}}
{{- $units := dict "" 1 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 -}}
{{- $unit := trimPrefix $number $text -}}
{{- if and $number (hasKey $units $unit) -}}
{{- mulf (float64 $number) (index $units $unit) 0.9 | int64 -}}
{{- end -}}
{{- end -}}
