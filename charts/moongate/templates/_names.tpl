{{/* The names are fixed, as docs/kubernetes.md says; the namespace tells releases apart. */}}
{{- define "moongate.name" -}}moongate-controller{{- end }}

{{/* Names of cluster-wide objects. */}}
{{- define "moongate.clusterName" -}}moongate-controller-{{ .Release.Namespace }}{{- end }}

{{- define "moongate.selector" -}}
app.kubernetes.io/name: moongate-controller
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "moongate.labels" -}}
{{ include "moongate.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "moongate.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}
