{{/* The port of `bridge serve`; empty: only its own pod reaches it. */}}
{{- define "kubebridge.servePort" -}}
{{- $listen := .Values.serve.listen -}}
{{- if not (include "kubebridge.loopback" $listen) -}}{{- regexFind "[0-9]+$" $listen -}}{{- end -}}
{{- end -}}

{{/* Names of the sinks that keep events, as a JSON list. */}}
{{- define "kubebridge.keepsEvents" -}}
{{- $all := list -}}
{{- range .Values.config.sinks -}}
{{- if or .kafka (and .nats (ne (dig "nats" "delivery" "" .) "at-most-once")) -}}{{- $all = append $all (toString .name) -}}{{- end -}}
{{- end -}}
{{- toJson $all -}}
{{- end -}}

{{/* The name of the sink that `bridge serve` reads; with a configuration of the user's as it was set. */}}
{{- define "kubebridge.serveSink" -}}
{{- $names := include "kubebridge.keepsEvents" . | fromJsonArray -}}
{{- if .Values.serve.sink -}}{{- .Values.serve.sink -}}
{{- else if and (eq (len $names) 1) (not (include "kubebridge.existingConfig" .)) -}}{{- first $names -}}
{{- end -}}
{{- end -}}

{{/* The arguments of `bridge serve`, as a JSON list. */}}
{{- define "kubebridge.serveArgs" -}}
{{- $s := .Values.serve -}}
{{- $args := list "serve" "--data" (include "kubebridge.servePath" .) "--listen" $s.listen "--retain" (toString $s.retain) "--max-connections" (toString (int $s.maxConnections)) "--authorization" $s.authorization -}}
{{- with include "kubebridge.serveSink" . -}}{{- $args = concat $args (list "--sink" .) -}}{{- end -}}
{{- range $s.allowOrigins -}}{{- $args = concat $args (list "--allow-origin" .) -}}{{- end -}}
{{- if eq $s.authorization "bus" -}}{{- $args = concat $args (list "--rights-max-age" (toString $s.rightsMaxAge)) -}}{{- end -}}
{{- if $s.tlsSecret -}}{{- $args = concat $args (list "--tls-cert" "/etc/kubebridge/serve-tls/tls.crt" "--tls-key" "/etc/kubebridge/serve-tls/tls.key") -}}{{- end -}}
{{- if $s.clientCASecret -}}{{- $args = concat $args (list "--client-ca" "/etc/kubebridge/serve-client-ca/ca.crt") -}}{{- end -}}
{{- toJson $args -}}
{{- end -}}

{{/* Where the volume with the copy of the bus is mounted. */}}
{{- define "kubebridge.servePath" -}}/var/lib/kubebridge-serve{{- end -}}

{{/* The Secrets of `bridge serve`, as a JSON list of {name, secret}: each is mounted at /etc/kubebridge/<name>. */}}
{{- define "kubebridge.serveSecrets" -}}
{{- $all := list -}}
{{- range $name, $key := dict "serve-tls" "tlsSecret" "serve-client-ca" "clientCASecret" -}}
{{- with index $.Values.serve $key -}}{{- $all = append $all (dict "name" $name "secret" .) -}}{{- end -}}
{{- end -}}
{{- toJson $all -}}
{{- end -}}

{{/* What `bridge serve` asks the API server. It reads no objects there. */}}
{{- define "kubebridge.serveRules" -}}
{{- if ne .Values.serve.authorization "none" -}}
# Whose a token is.
- apiGroups: [authentication.k8s.io]
  resources: [tokenreviews]
  verbs: [create]
# Its UID says which cluster it is: another one's users and rights do not count.
- apiGroups: [""]
  resources: [namespaces]
  resourceNames: [kube-system]
  verbs: [get]
{{- end }}
{{- if eq .Values.serve.authorization "cluster" }}
# What this user may read.
- apiGroups: [authorization.k8s.io]
  resources: [subjectaccessreviews]
  verbs: [create]
{{- end }}
{{- end -}}

{{/* Fails where `bridge serve` would end at its start, or would show everything to everybody. */}}
{{- define "kubebridge.checkServe" -}}
{{- $s := .Values.serve -}}
{{- if not (include "kubebridge.existingConfig" .) -}}
{{- $names := include "kubebridge.keepsEvents" . | fromJsonArray -}}
{{- if not $names -}}
{{- fail "serve.enabled is set, and no sink keeps events: only Kafka and JetStream do. Add such a sink, or leave serve.enabled out" -}}
{{- end -}}
{{- if and (not $s.sink) (gt (len $names) 1) -}}
{{- fail (printf "serve.enabled is set, and several sinks keep events: set serve.sink to one of %s" (join ", " $names)) -}}
{{- end -}}
{{- if and $s.sink (not (has $s.sink $names)) -}}
{{- fail (printf "serve.sink is %q, and the sinks that keep events are %s: set serve.sink to one of them" $s.sink (join ", " $names)) -}}
{{- end -}}
{{- $name := include "kubebridge.serveSink" . -}}
{{- range .Values.config.sinks -}}
{{- if eq (toString .name) $name -}}
{{- if and .nats (hasKey .nats "embedded") -}}
{{- fail (printf "serve reads the sink %q, whose NATS server is in the pod of the bridge: use nats.url or kafka, because serve has a pod of its own" $name) -}}
{{- end -}}
{{- if dig "kafka" "tombstones" false . -}}
{{- fail (printf "serve reads the sink %q, whose topics are compacted (tombstones: true): what Kafka removes there would look like changes that did not happen. Set serve.sink to another sink, or leave tombstones out" $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if eq $s.authorization "none" -}}
{{- if include "kubebridge.servePort" . -}}
{{- fail (printf "serve.authorization is none, and serve.listen is %s, where everybody who reaches the pod could read everything: set serve.authorization to cluster or bus, or set serve.listen: 127.0.0.1:8443, which only `kubectl port-forward` reaches" $s.listen) -}}
{{- end -}}
{{- if $s.clientCASecret -}}
{{- fail "serve.clientCASecret is set, and serve.authorization is none, which knows no users: set serve.authorization to cluster or bus, or leave serve.clientCASecret out" -}}
{{- end -}}
{{- else if not $s.tlsSecret -}}
{{- fail (printf "serve.authorization is %s, and serve.tlsSecret is not set: clients send credentials over TLS only. Set serve.tlsSecret to the name of a Secret of type kubernetes.io/tls" $s.authorization) -}}
{{- end -}}
{{- if and .Values.rbac.create (not .Values.rbac.clusterScope) (or (eq $s.authorization "cluster") (and (eq $s.authorization "bus") (not $s.clientCASecret))) -}}
{{- fail (printf "serve.authorization is %s, and rbac.clusterScope is false: it takes a ClusterRole to ask the API server whose a token is. Set rbac.clusterScope, or set serve.authorization: bus and serve.clientCASecret" $s.authorization) -}}
{{- end -}}
{{- if and (not $s.serviceAccount.create) (not $s.serviceAccount.name) -}}
{{- fail "serve.serviceAccount.create is false, and no serve.serviceAccount.name says whose rights serve has: name one" -}}
{{- end -}}
{{- if $s.monitor.enabled -}}
{{- if not (or .Values.podMonitor.enabled .Values.serviceMonitor.enabled) -}}
{{- fail "serve.monitor.enabled is set, and podMonitor.enabled and serviceMonitor.enabled are not: choose one of them" -}}
{{- end -}}
{{- if not (include "kubebridge.servePort" .) -}}
{{- fail (printf "serve.monitor.enabled is set, and serve.listen is %s, where Prometheus does not reach it: leave one of them out" $s.listen) -}}
{{- end -}}
{{- end -}}
{{- end -}}
