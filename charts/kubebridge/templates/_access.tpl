{{/*
What the bridge needs in the cluster, as JSON:
  grants      by namespace ("" is all of them), API group and resource, or resource/name where one object alone is
              watched: "list" (and watch), or "get" (as well)
  namespaces  that are named
  selects     whether namespaces are chosen by their labels
  custom      whether there may be custom resources: their groups have a dot
Each of it comes from one entry of resources, of the bridge or of a sink.
*/}}
{{- define "kubebridge.access" -}}
{{- $known := .Files.Get "files/kubernetes-resources.yaml" | fromYaml -}}
{{- $out := dict "grants" dict "namespaces" dict "selects" false "custom" false -}}
{{- range $sink := .Values.config.sinks -}}
{{- range $entry := default $.Values.config.resources $sink.resources -}}
{{- $e := $entry -}}
{{- if kindIs "string" $entry -}}{{- $e = dict "resource" $entry -}}{{- end -}}
{{- $wanted := include "kubebridge.parse" (dict "entry" $e "known" $known) | fromJson -}}
{{- $group := $wanted.group -}}
{{- $names := list $wanted.resource -}}
{{- if or (eq $group "*") (contains "." $group) -}}{{- $_ := set $out "custom" true -}}{{- end -}}
{{- /* A "get" of one object shows whether it left the selection or was deleted. Where everything is watched, that is
       pods/exec as well, and an account that may "get" these may run commands. */ -}}
{{- $leaves := or $e.labelSelector $e.fieldSelector (and $e.excludeNamespaces (not $e.namespaceSelector)) | not | not -}}
{{- $verb := ternary "get" "list" (and (ne $group "*") $leaves) -}}
{{- if eq $wanted.resource "*" -}}
{{- if eq $group "*" -}}
{{- if not $.Values.rbac.allowEverything -}}
{{- fail (printf "resource %q is all that the cluster has, and RBAC cannot leave out Secrets: the bridge would not read them, but its service account could. Name groups instead, as in *.apps, or set rbac.allowEverything: true" $e.resource) -}}
{{- end -}}
{{- else if eq $group "" -}}
{{- /* Of the core group by name: a "*" would hand out Secrets. */ -}}
{{- $left := list "secrets" -}}
{{- if or $e.namespaces $e.namespaceSelector -}}{{- $left = concat $left (list "namespaces" "nodes" "persistentvolumes") -}}{{- end -}}
{{- range $.Values.config.exclude -}}
{{- $not := include "kubebridge.parse" (dict "entry" (dict "resource" .) "known" $known "unknown" true) | fromJson -}}
{{- if eq $not.group "" -}}{{- $left = append $left $not.resource -}}{{- end -}}
{{- end -}}
{{- $names = list -}}
{{- range $name := keys (index $known "") | sortAlpha -}}
{{- if not (has $name $left) -}}{{- $names = append $names $name -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- with include "kubebridge.onlyName" $e -}}
{{- $all := $names -}}
{{- $only := . -}}
{{- $names = list -}}
{{- range $all -}}{{- $names = append $names (printf "%s/%s" . $only) -}}{{- end -}}
{{- end -}}
{{- $scopes := list "" -}}
{{- if $e.namespaces -}}
{{- $scopes = $e.namespaces -}}
{{- range $e.namespaces -}}{{- $_ := set $out.namespaces . true -}}{{- end -}}
{{- else if not $.Values.rbac.clusterScope -}}
{{- fail (printf "rbac.clusterScope is false, and resource %q is watched in all namespaces: name its namespaces" (toString $e.resource)) -}}
{{- end -}}
{{- if $e.namespaceSelector -}}{{- $_ := set $out "selects" true -}}{{- end -}}
{{- range $scope := $scopes -}}
{{- if not (hasKey $out.grants $scope) -}}{{- $_ := set $out.grants $scope dict -}}{{- end -}}
{{- $groups := index $out.grants $scope -}}
{{- range $each := $wanted.other | empty | ternary (list $group) (list $group $wanted.other) -}}
{{- if not (hasKey $groups $each) -}}{{- $_ := set $groups $each dict -}}{{- end -}}
{{- $resources := index $groups $each -}}
{{- range $names -}}
{{- if or (eq $verb "get") (not (hasKey $resources .)) -}}{{- $_ := set $resources . $verb -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toJson $out -}}
{{- end -}}

{{/*
The group and the full name that an entry of resources means, as JSON. Names are the bridge's:
pods, pods.core, deployments.apps, deployments.v1.apps, *.apps, *.core, *.*
In codebases.v2.edp.example.com, v2 may be a version or a part of the group: "other" is then the group with it.
A short name that is not known is refused, unless "unknown" lets it pass; so is a pattern of another form, which must not be
granted as if it covered its group.
*/}}
{{- define "kubebridge.parse" -}}
{{- $e := .entry -}}
{{- if and (contains "*" (toString $e.resource)) (not (regexMatch "^\\*\\.(\\*|[^*]*)$" (toString $e.resource))) -}}
{{- fail (printf "%q is no pattern: write *.* for everything, *.GROUP for an API group, or *.core for the core group" (toString $e.resource)) -}}
{{- end -}}
{{- $parts := splitn "." 2 (toString $e.resource) -}}
{{- $name := $parts._0 -}}
{{- $group := default "" $parts._1 -}}
{{- $bare := not (contains "." (toString $e.resource)) -}}
{{- $version := "^v[1-9][0-9]*((alpha|beta)[1-9][0-9]*)?\\." -}}
{{- $other := "" -}}
{{- if or $e.version $e.group -}}{{- $group = default "" $e.group -}}{{- $bare = false -}}
{{- else if and (ne $name "*") (regexMatch $version $group) -}}
{{- $other = $group -}}
{{- $group = regexReplaceAll $version $group "" -}}
{{- if or (eq $group "core") (hasKey .known $group) -}}{{- $other = "" -}}{{- end -}}
{{- end -}}
{{- if eq $group "core" -}}{{- $group = "" -}}{{- end -}}
{{- $found := "" -}}
{{- if ne $name "*" -}}
{{- /* The core group comes first, and full names before short ones, as with kubectl. */ -}}
{{- range $g, $resources := .known -}}
{{- if and (not $found) (or $bare (eq $g $group)) (hasKey $resources $name) -}}{{- $found = list $g $name -}}{{- end -}}
{{- end -}}
{{- range $g, $resources := .known -}}
{{- range $plural, $others := $resources -}}
{{- if and (not $found) (or $bare (eq $g $group)) (has $name $others) -}}{{- $found = list $g $plural -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if $found -}}
{{- toJson (dict "group" (first $found) "resource" (last $found)) -}}
{{- else if and $bare $name (not .unknown) -}}
{{- fail (printf "resource %q is none of Kubernetes' own, and a template cannot ask the cluster which API group has it: write name and group in full, as in certificates.cert-manager.io" (toString $e.resource)) -}}
{{- else -}}
{{- toJson (dict "group" $group "resource" $name "other" $other) -}}
{{- end -}}
{{- end -}}

{{/* The one name that an entry's fieldSelector selects; empty if there may be more. Within a value "=" is escaped. */}}
{{- define "kubebridge.onlyName" -}}
{{- $found := "" -}}
{{- $form := "^metadata\\.name==?([^=\\\\]+)$" -}}
{{- range splitList "," (default "" .fieldSelector) -}}
{{- if and (not $found) (regexMatch $form .) -}}{{- $found = regexReplaceAll $form . "${1}" -}}{{- end -}}
{{- end -}}
{{- $found -}}
{{- end -}}

{{/* Rules for one scope's groups. */}}
{{- define "kubebridge.rules" -}}
{{- range $group, $resources := . -}}
{{- range $verb, $verbs := dict "get" (list "get" "list" "watch") "list" (list "list" "watch") -}}
{{- $names := list -}}
{{- $single := list -}}
{{- range $name, $v := $resources -}}
{{- if ne $v $verb -}}
{{- else if contains "/" $name -}}{{- $single = append $single (splitList "/" $name) -}}
{{- else -}}{{- $names = append $names $name -}}
{{- end -}}
{{- end -}}
{{- if $names }}
- apiGroups: [{{ quote $group }}]
  resources: {{ toJson (sortAlpha $names) }}
  verbs: {{ toJson $verbs }}
{{- end -}}
{{- range $single }}
- apiGroups: [{{ quote $group }}]
  resources: [{{ first . | quote }}]
  resourceNames: [{{ last . | quote }}]
  verbs: {{ toJson $verbs }}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Rules beside those of the resources, which only a ClusterRole can have. */}}
{{- define "kubebridge.clusterRules" -}}
{{- $access := .access -}}
# How it learns at once what is installed, and what is gone for good.
- apiGroups: [apiextensions.k8s.io]
  resources: [customresourcedefinitions]
  verbs: {{ $access.custom | ternary "[get, list, watch]" "[list, watch]" }}
- apiGroups: [apiregistration.k8s.io]
  resources: [apiservices]
  verbs: [list, watch]
# Their UIDs say which cluster this is, and which namespace. A configured clusterUID is compared: another cluster may answer one day.
- apiGroups: [""]
  resources: [namespaces]
  resourceNames: {{ append (keys $access.namespaces) "kube-system" | uniq | sortAlpha | toJson }}
  verbs: [get]
{{- if include "kubebridge.statusByRBAC" .root }}
# Whose a token is, and whether they may see the status.
- apiGroups: [authentication.k8s.io]
  resources: [tokenreviews]
  verbs: [create]
- apiGroups: [authorization.k8s.io]
  resources: [subjectaccessreviews]
  verbs: [create]
# For `bridge status` in its own pod.
- nonResourceURLs: [/kubebridge/api/status]
  verbs: [get]
{{- end }}
{{- if $access.selects }}
- apiGroups: [""]
  resources: [namespaces]
  verbs: [get, list, watch]
{{- end }}
{{- end -}}

{{/* A Role with its binding to the account, by default the bridge's; with the namespace "-" a ClusterRole. From root, name, namespace, rules (YAML), account and selector (as in kubebridge.metadata). */}}
{{- define "kubebridge.role" -}}
{{- $kind := eq .namespace "-" | ternary "ClusterRole" "Role" -}}
{{- $metadata := include "kubebridge.metadata" (dict "root" .root "name" .name "namespace" .namespace "selector" .selector) -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $kind }}
metadata: {{- $metadata | nindent 2 }}
rules:
  {{- .rules | trim | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $kind }}Binding
metadata: {{- $metadata | nindent 2 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ $kind }}
  name: {{ .name | quote }}
subjects:
  - kind: ServiceAccount
    name: {{ default (include "kubebridge.serviceAccount" .root) .account }}
    namespace: {{ include "kubebridge.namespace" .root }}
{{- end -}}
