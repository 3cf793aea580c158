{{/* A probe of the status server, with the user's settings; the user's own handler replaces the chart's. From root, probe and path. */}}
{{- define "kubebridge.probe" -}}
{{- $probe := dict -}}
{{- if not (or .probe.exec .probe.httpGet .probe.tcpSocket .probe.grpc) -}}
{{- $get := dict "path" .path "port" "status" -}}
{{- if eq (include "kubebridge.statusScheme" .root) "HTTPS" -}}{{- $_ := set $get "scheme" "HTTPS" -}}{{- end -}}
{{- $_ := set $probe "httpGet" $get -}}
{{- end -}}
{{- omit (merge $probe .probe) "enabled" | toYaml -}}
{{- end -}}

{{/* The bridge's environment. */}}
{{- define "kubebridge.env" -}}
- name: KUBEBRIDGE_CONFIG
  value: /etc/kubebridge/config/config.yaml
- name: TMPDIR
  value: /tmp
{{- with include "kubebridge.memory" . }}
- name: GOMEMLIMIT
  value: {{ quote . }}
{{- end }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Mounts of what the configuration names. Directories, not single files: those would never change in a running pod. */}}
{{- define "kubebridge.volumeMounts" -}}
- {name: config, mountPath: /etc/kubebridge/config, readOnly: true}
- {name: scratch, mountPath: /tmp}
{{- if .Values.status.tlsSecret }}
- {name: status-tls, mountPath: /etc/kubebridge/status-tls, readOnly: true}
{{- end }}
{{- if .Values.existingSecret }}
- {name: credentials, mountPath: /etc/kubebridge/credentials, readOnly: true}
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "kubebridge.volumes" -}}
- name: config
  {{- if or .Values.existingConfigSecret (and (eq .Values.configIn "Secret") (not .Values.existingConfigMap)) }}
  secret: {secretName: {{ default (include "kubebridge.fullname" .) .Values.existingConfigSecret }}, defaultMode: 0440}
  {{- else }}
  configMap: {name: {{ default (include "kubebridge.fullname" .) .Values.existingConfigMap }}}
  {{- end }}
- name: scratch
  {{- $dir := dict }}
  {{- range $name, $value := .Values.scratch }}{{- with $value }}{{- $_ := set $dir $name . }}{{- end }}{{- end }}
  emptyDir: {{- toYaml $dir | nindent 4 }}
{{- with .Values.status.tlsSecret }}
- name: status-tls
  secret: {secretName: {{ . }}, defaultMode: 0440}
{{- end }}
{{- with .Values.existingSecret }}
- name: credentials
  secret: {secretName: {{ . }}, defaultMode: 0440}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The bridge's image and what its containers may do. */}}
{{- define "kubebridge.container" -}}
image: {{ include "kubebridge.image" . | quote }}
imagePullPolicy: {{ default "IfNotPresent" .Values.image.pullPolicy }}
{{- with .Values.securityContext }}
securityContext: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.resizePolicy }}
resizePolicy: {{- toYaml . | nindent 2 }}
{{- end }}
env: {{- include "kubebridge.env" . | nindent 2 }}
{{- with .Values.extraEnvFrom }}
envFrom: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* What all pods of the chart have in common. With withoutToken they do not ask the API server. */}}
{{- define "kubebridge.pod" -}}
serviceAccountName: {{ include "kubebridge.serviceAccount" . }}
automountServiceAccountToken: {{ and (ne (toString .Values.automountServiceAccountToken) "false") (not (hasKey . "withoutToken")) }}
{{- if hasKey .Values "hostUsers" }}
hostUsers: {{ .Values.hostUsers }}
{{- end }}
enableServiceLinks: false # their variables begin with a Service's name, ours with KUBEBRIDGE_
{{- with include "kubebridge.pullSecrets" . }}
imagePullSecrets: {{- . | nindent 2 }}
{{- end }}
{{- range $name := list "podSecurityContext" "nodeSelector" "tolerations" "affinity" "dnsConfig" "hostAliases" }}
{{- with index $.Values $name }}
{{ trimPrefix "pod" $name | untitle }}: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- range $name := list "priorityClassName" "runtimeClassName" "schedulerName" "dnsPolicy" }}
{{- with index $.Values $name }}
{{ $name }}: {{ . }}
{{- end }}
{{- end }}
{{- end -}}

{{/* A volume claim of a StatefulSet, from its name and its settings. In full, as the API server returns it: tools that compare without asking it would see a difference. */}}
{{- define "kubebridge.claim" -}}
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: {{ .name }}
  {{- with .set.annotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  accessModes: {{- toYaml .set.accessModes | nindent 4 }}
  {{- with .set.storageClass }}
  storageClassName: {{ eq . "-" | ternary "" . | quote }}
  {{- end }}
  volumeMode: Filesystem
  resources:
    requests: {storage: {{ .set.size }}}
status: {phase: Pending}
{{- end -}}

{{/* Not what the Service and the disruption budget select. */}}
{{- define "kubebridge.testSelector" -}}
app.kubernetes.io/name: {{ include "kubebridge.name" . }}-test
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* Rules of a NetworkPolicy for DNS and, unless withoutAPIServer, the API server, as a JSON list. From root and withoutAPIServer. */}}
{{- define "kubebridge.egress" -}}
{{- $out := .root.Values.networkPolicy.egress -}}
{{- $dns := default dict $out.dns -}}
{{- $api := default dict $out.apiServer -}}
{{- $rules := list -}}
{{- if $dns.enabled -}}
{{- $rule := dict "ports" (list (dict "port" 53 "protocol" "UDP") (dict "port" 53 "protocol" "TCP")) -}}
{{- with $dns.to -}}{{- $_ := set $rule "to" . -}}{{- end -}}
{{- $rules = append $rules $rule -}}
{{- end -}}
{{- if and $api.enabled (not .withoutAPIServer) -}}
{{- $ports := list -}}
{{- range default (list 443 6443) $api.ports -}}{{- $ports = append $ports (dict "port" (int .) "protocol" "TCP") -}}{{- end -}}
{{- $rule := dict "ports" $ports -}}
{{- with $api.to -}}{{- $_ := set $rule "to" . -}}{{- end -}}
{{- $rules = append $rules $rule -}}
{{- end -}}
{{- toJson $rules -}}
{{- end -}}
