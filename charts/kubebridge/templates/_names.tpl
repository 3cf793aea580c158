{{- define "kubebridge.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 58 | trimSuffix "-" -}}
{{- end -}}

{{- define "kubebridge.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 53 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 53 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 53 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "kubebridge.namespace" -}}
{{- default .Release.Namespace .Values.namespaceOverride -}}
{{- end -}}

{{- define "kubebridge.selector" -}}
app.kubernetes.io/name: {{ include "kubebridge.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* Labels of an object of the chart: those in "with" come first, the user's common ones second; nobody replaces what selectors select by. */}}
{{- define "kubebridge.labels" -}}
{{- $own := dict
  "app.kubernetes.io/version" .root.Chart.AppVersion
  "app.kubernetes.io/managed-by" .root.Release.Service
  "helm.sh/chart" (printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-") -}}
{{- $selector := include (default "kubebridge.selector" .selector) .root | fromYaml -}}
{{- merge dict $selector (default dict .with) (default dict .root.Values.commonLabels) $own | toYaml -}}
{{- end -}}

{{/*
The metadata of an object, from
  root         the chart
  name         default: that of all objects
  namespace    default: that of all objects; "-" for an object without one
  labels, annotations
  selector     the template of the labels that selectors select by; default: kubebridge.selector
*/}}
{{- define "kubebridge.metadata" -}}
{{- $m := dict "name" (default (include "kubebridge.fullname" .root) .name) "labels" (include "kubebridge.labels" (dict "root" .root "with" .labels "selector" .selector) | fromYaml) -}}
{{- if ne (default "" .namespace) "-" -}}{{- $_ := set $m "namespace" (default (include "kubebridge.namespace" .root) .namespace) -}}{{- end -}}
{{- with .annotations -}}{{- $_ := set $m "annotations" . -}}{{- end -}}
{{- toYaml $m -}}
{{- end -}}

{{/* The first fields of a monitor's spec. From root and set, the monitor's values. */}}
{{- define "kubebridge.monitored" -}}
{{- with .set.jobLabel }}
  jobLabel: {{ . }}
{{- end }}
{{- with .set.namespace }}
  namespaceSelector: {matchNames: [{{ include "kubebridge.namespace" $.root }}]}
{{- end }}
{{- end -}}

{{- define "kubebridge.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "kubebridge.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* Name of the objects of `serve`. A StatefulSet's name has at most 52 characters, because its pods have a label with it. */}}
{{- define "kubebridge.serveName" -}}
{{- printf "%s-serve" (include "kubebridge.fullname" . | trunc 46 | trimSuffix "-") -}}
{{- end -}}

{{- define "kubebridge.serveSelector" -}}
app.kubernetes.io/name: {{ include "kubebridge.name" . | trunc 57 | trimSuffix "-" }}-serve
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "kubebridge.serveAccount" -}}
{{- if .Values.serve.serviceAccount.create -}}
{{- default (include "kubebridge.serveName" .) .Values.serve.serviceAccount.name -}}
{{- else -}}
{{- .Values.serve.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* Cluster-scoped objects of two namespaces must not have one name. */}}
{{- define "kubebridge.clusterName" -}}
{{- printf "%s:%s" (include "kubebridge.namespace" .) (include "kubebridge.fullname" .) -}}
{{- end -}}

{{- define "kubebridge.image" -}}
{{- $i := .Values.image -}}
{{- $name := default "kubebridge" $i.repository -}}
{{- with default $i.registry .Values.global.imageRegistry -}}{{- $name = printf "%s/%s" (trimSuffix "/" .) $name -}}{{- end -}}
{{- if $i.digest -}}
{{- printf "%s@%s" $name $i.digest -}}
{{- else -}}
{{- printf "%s:%s" $name (default .Chart.AppVersion $i.tag | toString) -}}
{{- end -}}
{{- end -}}

{{/* The pull secrets, each as a map with its name. */}}
{{- define "kubebridge.pullSecrets" -}}
{{- $all := list -}}
{{- range concat (default list .Values.global.imagePullSecrets) (default list .Values.imagePullSecrets) -}}
{{- $all = append $all (kindIs "string" . | ternary (dict "name" .) .) -}}
{{- end -}}
{{- with uniq $all -}}{{- toYaml . -}}{{- end -}}
{{- end -}}
