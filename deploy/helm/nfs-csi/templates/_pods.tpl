{{- /* The reference of an image: (list root image). */ -}}
{{- define "nfs-csi.image" -}}
{{- $root := index . 0 -}}
{{- $image := index . 1 -}}
{{- $name := printf "%s/%s" ($root.Values.images.registry | default $image.registry) $image.repository -}}
{{- if $image.digest -}}
{{ $name }}@{{ $image.digest }}
{{- else -}}
{{ $name }}:{{ $image.tag | default $root.Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- /* What both pods have of their values: (list root values). */ -}}
{{- define "nfs-csi.pod" -}}
{{- $root := index . 0 -}}
{{- $values := index . 1 -}}
priorityClassName: {{ $values.priorityClassName }}
terminationGracePeriodSeconds: {{ $values.terminationGracePeriodSeconds }}
dnsPolicy: {{ $values.dnsPolicy }}
{{- with $root.Values.images.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- with $values.hostAliases }}
hostAliases:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.podSecurityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "nfs-csi.podTemplateMetadata" -}}
{{- $root := index . 0 -}}
{{- $values := index . 1 -}}
labels:
  {{- include "nfs-csi.selectorLabels" $root | nindent 2 }}
  app.kubernetes.io/component: {{ index . 2 }}
  {{- with merge (dict) $values.podLabels $root.Values.commonLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with $values.podAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "nfs-csi.pluginSecurityContext" -}}
securityContext:
  {{- toYaml .securityContext | nindent 2 }}
  {{- with .seLinuxOptions }}
  seLinuxOptions:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}

{{- /* Probes of csi-provisioner, which ends if it does not get its port. */ -}}
{{- define "nfs-csi.provisionerProbes" -}}
{{- $host := .Values.controller.bindAddress -}}
startupProbe:
  httpGet:
    path: /healthz
    port: prov-http
    {{- with $host }}
    host: {{ . | trimPrefix "[" | trimSuffix "]" | quote }}
    {{- end }}
  periodSeconds: 1
  timeoutSeconds: 5
  failureThreshold: 60
livenessProbe:
  httpGet:
    # Fails if the leader has not renewed its lease in time.
    path: /healthz/leader-election
    port: prov-http
    {{- with $host }}
    host: {{ . | trimPrefix "[" | trimSuffix "]" | quote }}
    {{- end }}
  periodSeconds: 15
  timeoutSeconds: 5
  failureThreshold: 4
{{- end -}}

{{- /* Probes of nfsplugin, through its socket: another process may have its port, and would
answer in its place. The endpoint is the argument. */ -}}
{{- define "nfs-csi.pluginProbes" -}}
startupProbe:
  exec:
    command: [/nfsplugin, --probe, --endpoint={{ . }}]
  periodSeconds: 1
  timeoutSeconds: 5
  failureThreshold: 60
livenessProbe:
  exec:
    command: [/nfsplugin, --probe, --endpoint={{ . }}]
  periodSeconds: 15
  timeoutSeconds: 5
  failureThreshold: 4
{{- end -}}

{{- /* Flags for the log. */ -}}
{{- define "nfs-csi.logArgs" -}}
- -v={{ .Values.log.level }}
{{- if ne .Values.log.format "text" }}
- --logging-format={{ .Values.log.format }}
{{- end }}
{{- end -}}

{{- define "nfs-csi.podIP" -}}
- name: POD_IP
  valueFrom:
    fieldRef:
      fieldPath: status.podIP
{{- end -}}

{{- /* A variable with a key of a ConfigMap: (list NAME configMap key). */ -}}
{{- define "nfs-csi.envFromConfigMap" -}}
- name: {{ index . 0 }}
  valueFrom:
    configMapKeyRef:
      name: {{ index . 1 }}
      key: {{ index . 2 }}
{{- end -}}

{{- /* Where the controller serves HTTP: "" is all addresses of the pod. */ -}}
{{- define "nfs-csi.controllerAddress" -}}
{{- if .Values.controller.hostNetwork -}}
{{- .Values.controller.bindAddress | default "[$(POD_IP)]" -}}
{{- end -}}
{{- end -}}

{{- /* What the sidecars in the controller have in common. */ -}}
{{- define "nfs-csi.sidecar" -}}
securityContext:
  {{- toYaml .Values.controller.sidecars.securityContext | nindent 2 }}
volumeMounts:
  - name: socket
    mountPath: /run/csi
  - name: token
    mountPath: /var/run/secrets/kubernetes.io/serviceaccount
    readOnly: true
{{- end -}}
