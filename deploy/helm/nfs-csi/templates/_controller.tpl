{{- define "nfs-csi.controllerPlugin" -}}
{{- $plugin := .Values.controller.plugin -}}
- name: nfsplugin
  image: {{ include "nfs-csi.image" (list . .Values.images.nfsplugin) }}
  imagePullPolicy: {{ .Values.images.pullPolicy }}
  args:
    - --mode=controller
    - --endpoint=unix:///run/csi/socket
    - --driver-name={{ .Values.driver.name }}
    - --working-mount-dir=/run/nfs-csi
    - --http-endpoint={{ include "nfs-csi.controllerAddress" . }}:{{ $plugin.port }}
    - --directory-mode={{ .Values.driver.directoryMode }}
    - --mount-permissions={{ .Values.driver.mountPermissions }}
    - --default-ondelete-policy={{ .Values.driver.onDelete }}
    {{- with .Values.driver.mountOptions }}
    - {{ printf "--mount-options=%s" (join "," .) | quote }}
    {{- end }}
    {{- with .Values.driver.listExports }}
    - {{ printf "--list-exports=%s" (join "," .) | quote }}
    {{- end }}
    {{- if .Values.cluster.idFromConfigMap }}
    - --cluster-id=$(CLUSTER_ID)
    {{- else if .Values.cluster.id }}
    - {{ printf "--cluster-id=%s" .Values.cluster.id | quote }}
    {{- end }}
    {{- include "nfs-csi.logArgs" . | nindent 4 }}
    {{- range $plugin.extraArgs }}
    - {{ . | quote }}
    {{- end }}
  env:
    {{- include "nfs-csi.podIP" . | nindent 4 }}
    {{- with .Values.cluster.idFromConfigMap }}
    {{- include "nfs-csi.envFromConfigMap" (list "CLUSTER_ID" . "id") | nindent 4 }}
    {{- end }}
    {{- with $plugin.extraEnv }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  ports:
    - name: plugin-http
      containerPort: {{ $plugin.port }}
  {{- include "nfs-csi.pluginProbes" "unix:///run/csi/socket" | nindent 2 }}
  resources:
    {{- toYaml $plugin.resources | nindent 4 }}
  {{- include "nfs-csi.pluginSecurityContext" $plugin | nindent 2 }}
  volumeMounts:
    - name: socket
      mountPath: /run/csi
    - name: exports
      mountPath: /run/nfs-csi
    {{- with $plugin.extraVolumeMounts }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}

{{- define "nfs-csi.provisioner" -}}
{{- $provisioner := .Values.provisioner -}}
- name: csi-provisioner
  image: {{ include "nfs-csi.image" (list . .Values.images.csiProvisioner) }}
  imagePullPolicy: {{ .Values.images.pullPolicy }}
  args:
    - --csi-address=/run/csi/socket
    - --leader-election
    # subDir of a class may contain namespace and name of the claim.
    - --extra-create-metadata
    - --http-endpoint={{ include "nfs-csi.controllerAddress" . }}:{{ $provisioner.port }}
    # What deleted volumes left on the exports of the classes is removed from the start.
    - --announce-classes
    {{- if .Values.capacity.enabled }}
    - --enable-capacity
    # The owner is the Deployment, since the ReplicaSet is replaced at an upgrade.
    - --capacity-ownerref-level=2
    - --capacity-poll-interval={{ .Values.capacity.pollInterval }}
    {{- if .Values.capacity.immediateBinding }}
    - --capacity-for-immediate-binding
    {{- end }}
    {{- end }}
    {{- include "nfs-csi.logArgs" . | nindent 4 }}
    {{- range $provisioner.extraArgs }}
    - {{ . | quote }}
    {{- end }}
  env:
    {{- include "nfs-csi.podIP" . | nindent 4 }}
    {{- if .Values.capacity.enabled }}
    - name: NAMESPACE
      valueFrom:
        fieldRef:
          fieldPath: metadata.namespace
    - name: POD_NAME
      valueFrom:
        fieldRef:
          fieldPath: metadata.name
    {{- end }}
    {{- with $provisioner.extraEnv }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  ports:
    - name: prov-http
      containerPort: {{ $provisioner.port }}
  # The liveness probe fails if the leader has not renewed its lease in time.
  {{- include "nfs-csi.provisionerProbes" . | nindent 2 }}
  resources:
    {{- toYaml $provisioner.resources | nindent 4 }}
  {{- include "nfs-csi.sidecar" . | nindent 2 }}
{{- end -}}

{{- define "nfs-csi.resizer" -}}
- name: csi-resizer
  image: {{ include "nfs-csi.image" (list . .Values.images.csiResizer) }}
  imagePullPolicy: {{ .Values.images.pullPolicy }}
  args:
    - --csi-address=/run/csi/socket
    - --leader-election
    # The driver expands volumes in use, so external-resizer need not wait.
    - --handle-volume-inuse-error=false
    - -v={{ .Values.log.level }}
    {{- range .Values.resizer.extraArgs }}
    - {{ . | quote }}
    {{- end }}
  resources:
    {{- toYaml .Values.resizer.resources | nindent 4 }}
  {{- include "nfs-csi.sidecar" . | nindent 2 }}
{{- end -}}

{{- define "nfs-csi.snapshotter" -}}
- name: csi-snapshotter
  image: {{ include "nfs-csi.image" (list . .Values.images.csiSnapshotter) }}
  imagePullPolicy: {{ .Values.images.pullPolicy }}
  args:
    - --csi-address=/run/csi/socket
    - --leader-election
    {{- if .Values.snapshotter.groupSnapshots }}
    - --feature-gates=CSIVolumeGroupSnapshot=true
    {{- end }}
    - -v={{ .Values.log.level }}
    {{- range .Values.snapshotter.extraArgs }}
    - {{ . | quote }}
    {{- end }}
  resources:
    {{- toYaml .Values.snapshotter.resources | nindent 4 }}
  {{- include "nfs-csi.sidecar" . | nindent 2 }}
{{- end -}}
