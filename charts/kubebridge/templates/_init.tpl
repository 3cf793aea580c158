{{/*
The first line of every template. It brings the values into the form that the others rely on, whichever template is
rendered first: no nulls, every group there, the presets' resources in config, nothing that is unknown or contradicts
itself. The marker saves doing it again for every template.
*/}}
{{- define "kubebridge.init" -}}
{{- $v := .Values -}}
{{- if not (hasKey $v "initialized") -}}
{{- include "kubebridge.dropNulls" $v -}}
{{- $groups := list "global" "config" "presets" "image" "hashKey" "serviceAccount" "rbac" "persistence" "buffer" "audit" "serve" "scratch" "podDisruptionBudget" "service" "status" "networkPolicy" "ingress" "httpRoute" "podMonitor" "serviceMonitor" "prometheusRule" "dashboard" "flowControl" -}}
{{- range $groups -}}
{{- if not (index $v .) -}}{{- $_ := set $v . dict -}}{{- end -}}
{{- end -}}
{{- range $group, $names := dict "networkPolicy" (list "ingress" "egress") "presets" (list "workloads" "events" "audit") "buffer" (list "persistence") "audit" (list "webhook" "persistence") "serve" (list "persistence" "service" "serviceAccount" "monitor") -}}
{{- $in := index $v $group -}}
{{- range $names -}}{{- if not (index $in .) -}}{{- $_ := set $in . dict -}}{{- end -}}{{- end -}}
{{- end -}}
{{- range $name, $default := dict "mountPath" "/var/lib/kubebridge" "size" "10Gi" "accessModes" (list "ReadWriteOnce") -}}
{{- if not (index $v.persistence $name) -}}{{- $_ := set $v.persistence $name $default -}}{{- end -}}
{{- end -}}
{{- range $name, $default := dict "authorization" "cluster" "listen" ":8443" "retain" "168h" "maxConnections" 1024 "rightsMaxAge" "2m" -}}
{{- if not (index $v.serve $name) -}}{{- $_ := set $v.serve $name $default -}}{{- end -}}
{{- end -}}
{{- if not (hasKey $v.serve.persistence "enabled") -}}{{- $_ := set $v.serve.persistence "enabled" true -}}{{- end -}}
{{- if not $v.serve.persistence.size -}}{{- $_ := set $v.serve.persistence "size" "10Gi" -}}{{- end -}}
{{- if not (hasKey $v.serve.serviceAccount "create") -}}{{- $_ := set $v.serve.serviceAccount "create" true -}}{{- end -}}
{{- if not $v.audit.size -}}{{- $_ := set $v.audit "size" "2Gi" -}}{{- end -}}
{{- if not (hasKey $v.audit.persistence "enabled") -}}{{- $_ := set $v.audit.persistence "enabled" true -}}{{- end -}}
{{- if not $v.buffer.size -}}{{- $_ := set $v.buffer "size" "10Gi" -}}{{- end -}}
{{- if not (hasKey $v.rbac "clusterScope") -}}{{- $_ := set $v.rbac "clusterScope" true -}}{{- end -}}
{{- if not $v.configIn -}}{{- $_ := set $v "configIn" "ConfigMap" -}}{{- end -}}
{{- include "kubebridge.known" . -}}
{{- include "kubebridge.presets" . -}}
{{- include "kubebridge.check" . -}}
{{- $_ := set $v "initialized" true -}}
{{- end -}}
{{- end -}}

{{/* Removes what is null, at any depth. */}}
{{- define "kubebridge.dropNulls" -}}
{{- $in := . -}}
{{- if kindIs "map" $in -}}
{{- range $name, $value := $in -}}
{{- if kindIs "invalid" $value -}}{{- $_ := unset $in $name -}}{{- else -}}{{- include "kubebridge.dropNulls" $value -}}{{- end -}}
{{- end -}}
{{- else if kindIs "slice" $in -}}
{{- range $in -}}{{- include "kubebridge.dropNulls" . -}}{{- end -}}
{{- end -}}
{{- end -}}

{{/* Adds the resources of the presets that are enabled, except those that config names itself. */}}
{{- define "kubebridge.presets" -}}
{{- $known := .Files.Get "files/kubernetes-resources.yaml" | fromYaml -}}
{{- $presets := .Files.Get "files/presets.yaml" | fromYaml -}}
{{- $resources := default list .Values.config.resources -}}
{{- $named := dict -}}
{{- range $resources -}}
{{- $e := . -}}
{{- if kindIs "string" . -}}{{- $e = dict "resource" . -}}{{- end -}}
{{- $_ := set $named (include "kubebridge.parse" (dict "entry" $e "known" $known "unknown" true)) true -}}
{{- end -}}
{{- range $preset := list "audit" "workloads" "events" -}}
{{- if (index $.Values.presets $preset).enabled -}}
{{- range $entry := index $presets $preset -}}
{{- $resource := include "kubebridge.parse" (dict "entry" $entry "known" $known) -}}
{{- if not (hasKey $named $resource) -}}
{{- $_ := set $named $resource true -}}
{{- $resources = append $resources $entry -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if $resources -}}{{- $_ := set .Values.config "resources" $resources -}}{{- end -}}
{{- end -}}

{{/* Fails where a value is not known, and says which one may be meant. The schema leaves this to the template: its own message has no suggestion. */}}
{{- define "kubebridge.known" -}}
{{- $known := .Files.Get "files/known-values.json" | fromJson -}}
{{- $found := include "kubebridge.unknown" (dict "path" "" "value" .Values "known" $known) | trim -}}
{{- if $found -}}{{- fail (printf "\n%s" $found) -}}{{- end -}}
{{- end -}}

{{- define "kubebridge.unknown" -}}
{{- $path := .path -}}
{{- $known := .known -}}
{{- if and (kindIs "map" .value) (kindIs "map" $known) -}}
{{- range $name, $value := .value -}}
{{- $below := printf "%s%s" (empty $path | ternary "" (printf "%s." $path)) $name -}}
{{- if hasKey $known $name -}}
{{- include "kubebridge.unknown" (dict "path" $below "value" $value "known" (index $known $name)) -}}
{{- else if hasKey $known "*" -}}
{{- include "kubebridge.unknown" (dict "path" $below "value" $value "known" (index $known "*")) -}}
{{- else }}
{{ $below }}: there is no such value{{ include "kubebridge.suggestion" (dict "path" $path "name" $name "known" $known) }}
{{- end -}}
{{- end -}}
{{- else if and (kindIs "slice" .value) (kindIs "map" $known) -}}
{{- range $i, $value := .value -}}
{{- include "kubebridge.unknown" (dict "path" (printf "%s[%d]" $path $i) "value" $value "known" (index $known "[]")) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* What is meant by an unknown name: the way to what other charts call so, else a known name that is spelt nearly so, else all known ones. */}}
{{- define "kubebridge.suggestion" -}}
{{- $full := printf "%s%s" (empty .path | ternary "" (printf "%s." .path)) .name -}}
{{- $others := dict
  "replicas" "replicaCount" "configMap" "existingConfigMap" "existingConfigmap" "existingConfigMap"
  "env" "extraEnv" "extraEnvs" "extraEnv" "extraEnvVars" "extraEnv" "envFrom" "extraEnvFrom" "extraEnvsFrom" "extraEnvFrom"
  "volumes" "extraVolumes" "volumeMounts" "extraVolumeMounts" "sidecars" "extraContainers" "extraInitContainers" "initContainers"
  "extraManifests" "extraObjects" "extraDeploy" "extraObjects" "lifecycleHooks" "lifecycle" "pdb" "podDisruptionBudget"
  "additionalLabels" "commonLabels" "extraLabels" "commonLabels" "customLabels" "commonLabels" "commonAnnotations" "annotations"
  "containerSecurityContext" "securityContext" "updateStrategy" "strategy" "deploymentStrategy" "strategy" "secret" "existingSecret"
  "storage" "persistence" "route" "httpRoute" "gateway" "httpRoute" "grafana" "dashboard" "alerts" "prometheusRule.alerts"
  "metrics" "podMonitor, serviceMonitor or prometheusRule" "monitoring" "podMonitor, serviceMonitor or prometheusRule"
  "cluster" "config.cluster" "sinks" "config.sinks" "kafka" "config.sinks" "nats" "config.sinks" "labels" "commonLabels"
  "logLevel" "config.log.level" "kubeconfig" "config.kubernetes.kubeconfig" "service.port" "service.ports.status" "service.nodePort" "service.nodePorts.status"
  "ingress.host" "ingress.hosts" "ingress.ingressClassName" "ingress.className" "prometheusRule.rules" "prometheusRule.additionalRules" "prometheusRule.groups" "prometheusRule.additionalRules"
  "serviceAccount.automountServiceAccountToken" "automountServiceAccountToken" "serviceAccount.automount" "automountServiceAccountToken"
  "image.name" "image.repository" "podMonitor.additionalLabels" "podMonitor.labels" "serviceMonitor.additionalLabels" "serviceMonitor.labels"
  "persistence.storageClassName" "persistence.storageClass" -}}
{{- $ways := dict
  "autoscaling" "one replica writes and the others stand by, so there is nothing to scale: set replicaCount"
  "args" "the bridge has no arguments here: write settings into config" "command" "the bridge has no other command: write settings into config" -}}
{{- $best := get $others $full -}}
{{- if not $best -}}
{{- $pairs := include "kubebridge.pairs" .name | fromJson -}}
{{- $most := 0.55 -}}
{{- range $candidate := keys .known | sortAlpha -}}
{{- $with := include "kubebridge.pairs" $candidate | fromJson -}}
{{- $common := 0 -}}
{{- range $pair, $_ := $pairs -}}{{- if hasKey $with $pair -}}{{- $common = add1 $common -}}{{- end -}}{{- end -}}
{{- $score := divf (mul 2 $common) (max 1 (add (len $pairs) (len $with))) -}}
{{- if gt $score $most -}}{{- $most = $score -}}{{- $best = $candidate -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- if hasKey $ways $full -}}
{{- printf ": %s" (get $ways $full) -}}
{{- else if $best -}}
{{- printf ", did you mean %s?" $best -}}
{{- else -}}
{{- printf "; there are %s" (keys .known | sortAlpha | join ", ") -}}
{{- end -}}
{{- end -}}

{{/* The pairs of neighbouring letters in a name, as JSON. */}}
{{- define "kubebridge.pairs" -}}
{{- $name := lower . -}}
{{- $pairs := dict -}}
{{- range $i := until (max 0 (sub (len $name) 1) | int) -}}
{{- $_ := set $pairs (substr $i (add $i 2 | int) $name) true -}}
{{- end -}}
{{- toJson $pairs -}}
{{- end -}}
