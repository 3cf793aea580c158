{{/* A value for a command line: what stands in a file or an environment variable is not there, and neither is a login in a URL. From value and instead. */}}
{{- define "kubebridge.shown" -}}
{{- $value := toString .value -}}
{{- if or (not .value) (contains "${" $value) -}}{{- .instead -}}{{- else -}}{{- regexReplaceAll "//[^@/]*@" $value "//" -}}{{- end -}}
{{- end -}}

{{/* Settings of a Kafka client that reads what a sink writes, a line each; empty where it needs none. */}}
{{- define "kubebridge.kafkaClient" -}}
{{- $sasl := default dict .sasl -}}
{{- $tls := default dict .tls -}}
{{- if or $sasl.mechanism $tls.enabled -}}
security.protocol={{ if $sasl.mechanism }}SASL_{{ end }}{{ if $tls.enabled }}SSL{{ else }}PLAINTEXT{{ end }}
{{- if $tls.ca }}
ssl.truststore.type=PEM
ssl.truststore.location=ca.crt
{{- end }}
{{- if $tls.cert }}
ssl.keystore.type=PEM
ssl.keystore.location=client.pem
{{- end }}
{{- with $sasl.mechanism }}
sasl.mechanism={{ include "kubebridge.shown" (dict "value" . "instead" "MECHANISM") }}
{{- if or (eq . "PLAIN") (hasPrefix "SCRAM-" .) }}
sasl.jaas.config=org.apache.kafka.common.security.{{ eq . "PLAIN" | ternary "plain.Plain" "scram.Scram" }}LoginModule required username="USER" password="PASSWORD";
{{- end }}
{{- end }}
{{- end -}}
{{- end -}}

{{/* Flags of the nats command for the login and the certificates of a sink. */}}
{{- define "kubebridge.natsFlags" -}}
{{- $auth := default dict .auth -}}
{{- $tls := default dict .tls -}}
{{- if $auth.username }} --user USER --password PASSWORD{{ else if or $auth.token $auth.tokenFile }} --token TOKEN{{ else if $auth.nkey }} --nkey user.nk{{ else if $auth.creds }} --creds user.creds{{ end -}}
{{- if $tls.ca }} --tlsca ca.crt{{ end -}}
{{- if or $tls.cert $tls.clientCA }} --tlscert client.crt --tlskey client.key{{ end -}}
{{- end -}}
