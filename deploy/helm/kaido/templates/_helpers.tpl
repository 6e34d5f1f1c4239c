{{- define "kaido.name" -}}
{{- $name := .Release.Name -}}
{{- if contains .Chart.Name $name -}}{{ $name | trunc 52 | trimSuffix "-" }}{{- else -}}{{ printf "%s-%s" $name .Chart.Name | trunc 52 | trimSuffix "-" }}{{- end -}}
{{- end }}

{{- define "kaido.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "kaido.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{ include "kaido.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "kaido.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{/* What Multus reads: names, interfaces and addresses of the networks. */}}
{{- define "kaido.networks" -}}
{{- $networks := list -}}
{{- range .Values.networks -}}
{{- $network := dict "interface" .interface -}}
{{- $parts := splitList "/" .name -}}
{{- if eq (len $parts) 2 -}}
{{- $network = merge $network (dict "namespace" (first $parts) "name" (last $parts)) -}}
{{- else if hasKey $.Values.networkDefinitions .name -}}
{{- $network = merge $network (dict "name" (printf "%s-%s" (include "kaido.name" $) .name)) -}}
{{- else -}}
{{- $network = merge $network (dict "name" .name) -}}
{{- end -}}
{{- with .ips }}{{- $network = merge $network (dict "ips" .) -}}{{- end -}}
{{- with .mac }}{{- $network = merge $network (dict "mac" .) -}}{{- end -}}
{{- with .defaultRoute }}{{- $network = merge $network (dict "default-route" .) -}}{{- end -}}
{{- $networks = append $networks $network -}}
{{- end -}}
{{- $networks | toJson -}}
{{- end }}
