{{/* The namespace tells releases apart. */}}
{{- define "moongate.name" -}}{{ .Values.nameOverride | default "moongate-controller" }}{{- end }}

{{/* Names of cluster-wide objects. */}}
{{- define "moongate.clusterName" -}}{{ include "moongate.name" . }}-{{ .Release.Namespace }}{{- end }}

{{- define "moongate.selector" -}}
app.kubernetes.io/name: moongate-controller
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "moongate.labels" -}}
{{ include "moongate.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with omit .Values.commonLabels "app.kubernetes.io/name" "app.kubernetes.io/instance" "app.kubernetes.io/version" "app.kubernetes.io/managed-by" }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "moongate.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}
