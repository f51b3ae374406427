{{- define "nfs-csi.fullname" -}}
{{- $default := contains .Chart.Name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name .Chart.Name) -}}
{{- .Values.fullnameOverride | default $default -}}
{{- end -}}

{{- define "nfs-csi.controllerAccount" -}}
{{- .Values.serviceAccounts.controller.name | default (printf "%s-controller" (include "nfs-csi.fullname" .)) -}}
{{- end -}}

{{- define "nfs-csi.nodeAccount" -}}
{{- .Values.serviceAccounts.node.name | default (printf "%s-node" (include "nfs-csi.fullname" .)) -}}
{{- end -}}

{{- /* The driver's name as in the names of leases and ConfigMaps. */ -}}
{{- define "nfs-csi.driverSlug" -}}
{{- .Values.driver.name | replace "." "-" -}}
{{- end -}}

{{- define "nfs-csi.selectorLabels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "nfs-csi.labels" -}}
{{ include "nfs-csi.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- /* metadata of an object: (list root suffix), with a namespace. */ -}}
{{- define "nfs-csi.metadata" -}}
{{- $root := index . 0 -}}
name: {{ include "nfs-csi.fullname" $root }}-{{ index . 1 }}
namespace: {{ $root.Release.Namespace }}
labels:
  {{- include "nfs-csi.labels" $root | nindent 2 }}
{{- end -}}

{{- /* metadata of a cluster-wide object: (list root suffix). */ -}}
{{- define "nfs-csi.clusterMetadata" -}}
{{- $root := index . 0 -}}
name: {{ include "nfs-csi.fullname" $root }}-{{ index . 1 }}
labels:
  {{- include "nfs-csi.labels" $root | nindent 2 }}
{{- end -}}

{{- /* metadata of a class from the values: (list root class annotationOfTheDefault). */ -}}
{{- define "nfs-csi.classMetadata" -}}
{{- $root := index . 0 -}}
{{- $class := index . 1 -}}
name: {{ $class.name }}
labels:
  {{- include "nfs-csi.labels" $root | nindent 2 }}
  {{- with $class.labels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
annotations:
  # Claims and volumes refer to the class after the release is gone.
  helm.sh/resource-policy: keep
  {{- if $class.default }}
  {{ index . 2 }}: "true"
  {{- end }}
  {{- with $class.annotations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{- /* roleRef and subjects: (list root kind suffixOfTheRole). */ -}}
{{- define "nfs-csi.bindController" -}}
{{- $root := index . 0 -}}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ index . 1 }}
  name: {{ include "nfs-csi.fullname" $root }}-{{ index . 2 }}
subjects:
  - kind: ServiceAccount
    name: {{ include "nfs-csi.controllerAccount" $root }}
    namespace: {{ $root.Release.Namespace }}
{{- end -}}
