{{- define "sibyl.name" -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "sibyl.selector" -}}
app.kubernetes.io/name: sibyl
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "sibyl.labels" -}}
{{ include "sibyl.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{- define "sibyl.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
