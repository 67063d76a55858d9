{{- define "kvmserver.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- /* 59: `-api` follows. */}}
{{- define "kvmserver.fullname" -}}
{{- $name := include "kvmserver.name" . }}
{{- $whole := contains $name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $name) }}
{{- default $whole .Values.fullnameOverride | trunc 59 | trimSuffix "-" }}
{{- end }}

{{- define "kvmserver.selector" -}}
app.kubernetes.io/name: {{ include "kvmserver.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "kvmserver.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{ include "kvmserver.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- /* The files of Secrets that are in use: a list of {folder, secret, items}. */}}
{{- define "kvmserver.secrets" -}}
{{- $files := list }}
{{- with .Values.requests.tlsSecret }}
{{- $files = append $files (dict "folder" "tls" "secret" . "items" (dict "tls.crt" "tls.crt" "tls.key" "tls.key")) }}
{{- end }}
{{- with .Values.api.tlsSecret }}
{{- $files = append $files (dict "folder" "api-tls" "secret" . "items" (dict "tls.crt" "tls.crt" "tls.key" "tls.key")) }}
{{- end }}
{{- if and .Values.chunks.url .Values.chunks.credentialsSecret.name }}
{{- with .Values.chunks.credentialsSecret }}
{{- $files = append $files (dict "folder" "chunks" "secret" .name "items" (dict .key "credentials")) }}
{{- end }}
{{- end }}
{{- if .Values.cluster.enabled }}
{{- with .Values.cluster.keySecret }}
{{- $files = append $files (dict "folder" "cluster" "secret" .name "items" (dict .key "key")) }}
{{- end }}
{{- with .Values.cluster.credentialsSecret }}
{{- if .name }}
{{- $files = append $files (dict "folder" "etcd" "secret" .name "items" (dict .key "credentials")) }}
{{- end }}
{{- end }}
{{- with .Values.cluster.caSecret }}
{{- if .name }}
{{- $files = append $files (dict "folder" "etcd-ca" "secret" .name "items" (dict .key "ca.crt")) }}
{{- end }}
{{- end }}
{{- end }}
{{- toYaml $files }}
{{- end }}

{{- define "kvmserver.args" -}}
- serve
- --listen
- :{{ .Values.requests.port }}
- --store
- /var/lib/kvmserver/store
- --jail
- {{ .Values.jail }}
- --admin
- {{ ternary "127.0.0.1" "0.0.0.0" (empty .Values.api.tlsSecret) }}:{{ .Values.api.port }}
{{- if .Values.api.tlsSecret }}
- --admin-certificate
- /etc/kvmserver/api-tls/tls.crt
- --admin-key
- /etc/kvmserver/api-tls/tls.key
{{- end }}
{{- if .Values.requests.tlsSecret }}
- --tls-certificate
- /etc/kvmserver/tls/tls.crt
- --tls-key
- /etc/kvmserver/tls/tls.key
{{- end }}
{{- if .Values.chunks.url }}
- --chunks
- {{ .Values.chunks.url | quote }}
{{- if .Values.chunks.credentialsSecret.name }}
- --chunks-credentials
- /etc/kvmserver/chunks/credentials
{{- end }}
{{- with .Values.chunks.cacheSize }}
- --chunk-cache-size
- {{ . | quote }}
{{- end }}
{{- end }}
{{- if .Values.cluster.enabled }}
- --cluster
- {{ .Values.cluster.url | quote }}
- --cluster-key
- /etc/kvmserver/cluster/key
- --node
- $(NODE_NAME)
{{- if .Values.cluster.credentialsSecret.name }}
- --cluster-credentials
- /etc/kvmserver/etcd/credentials
{{- end }}
{{- with .Values.cluster.awayLimit }}
- --cluster-away-limit
- {{ . | int64 | quote }}
{{- end }}
{{- end }}
{{- with .Values.extraArgs }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* The kubelet asks the API if that has an address for it. Else the container asks itself; bash is in the image. */}}
{{- define "kvmserver.probe" -}}
{{- if .root.Values.api.tlsSecret }}
httpGet:
  path: {{ .path }}
  port: api
  scheme: HTTPS
{{- else }}
exec:
  command:
    - bash
    - -c
    - >-
      exec 3<>/dev/tcp/127.0.0.1/{{ .root.Values.api.port }}
      && printf 'GET {{ .path }} HTTP/1.0\r\n\r\n' >&3
      && read -r _ status _ <&3
      && [[ $status == 200 ]]
{{- end }}
{{- end }}

{{- /* Of an emptyDir. */}}
{{- define "kvmserver.limit" -}}
{{- empty .sizeLimit | ternary dict (dict "sizeLimit" .sizeLimit) | toJson }}
{{- end }}
