{{- define "turnstile.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* The prefix of every name. 30 characters leave room for "-validating-webhook-configuration" within 63. */}}
{{- define "turnstile.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 30 | trimSuffix "-" -}}
{{- else -}}
{{- $name := include "turnstile.name" . -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 30 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 30 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "turnstile.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/name: {{ include "turnstile.name" . }}
app.kubernetes.io/instance: {{ .Release.Name | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Labels by which a role's pods are found. Call with (list $ "controller"). */}}
{{- define "turnstile.selectorLabels" -}}
{{- $top := index . 0 -}}
app.kubernetes.io/name: {{ include "turnstile.name" $top }}
app.kubernetes.io/instance: {{ $top.Release.Name | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{- define "turnstile.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}{{ .repository }}@{{ .digest }}
{{- else -}}{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "turnstile.secretName" -}}
{{- if eq .Values.webhook.certs.mode "existing" -}}
{{- required "webhook.certs.secretName: name the Secret with tls.crt and tls.key when webhook.certs.mode is existing" .Values.webhook.certs.secretName -}}
{{- else -}}
{{- include "turnstile.fullname" . }}-webhook-server-cert
{{- end -}}
{{- end -}}

{{- define "turnstile.neverIntercepted" -}}
- key: kubernetes.io/metadata.name
  operator: NotIn
  values:
    {{- range concat (list "kube-system" .Release.Namespace) (eq .Values.managedNamespaces.mode "exclude" | ternary .Values.managedNamespaces.exclude list) | uniq }}
    - {{ . | quote }}
    {{- end }}
{{- end -}}

{{/* The namespaces whose jobs are managed; the webhooks and the controller use the same selector. */}}
{{- define "turnstile.namespaceSelector" -}}
{{- if eq .Values.managedNamespaces.mode "optIn" -}}
{{- $label := splitn "=" 2 .Values.managedNamespaces.label -}}
matchLabels:
  {{ $label._0 }}: {{ $label._1 | quote }}
{{ end -}}
matchExpressions:
  {{- include "turnstile.neverIntercepted" . | nindent 2 }}
{{- end -}}

{{/* Arguments that both roles share, as a JSON list. Call with (list $ "controller"). */}}
{{- define "turnstile.arguments" -}}
{{- $top := index . 0 -}}
{{- $role := index . 1 -}}
{{- $arguments := list "serve" "--role" $role "--namespace" "$(POD_NAMESPACE)" "--name" (include "turnstile.fullname" $top) "--log-level" (index $top.Values $role).logLevel -}}
{{- with $top.Values.managedNamespaces -}}
{{- if eq .mode "optIn" -}}
{{- $arguments = concat $arguments (list "--managed-namespace-label" .label) -}}
{{- else -}}
{{- range .exclude -}}
{{- $arguments = concat $arguments (list "--exclude-namespace" .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if $top.Values.manageJobsWithoutQueueName -}}
{{- $arguments = append $arguments "--manage-jobs-without-queue-name" -}}
{{- end -}}
{{- toJson $arguments -}}
{{- end -}}

{{/* The pod of a role. Call with (list $ "controller" args-as-yaml ports-as-yaml probes-as-yaml). */}}
{{- define "turnstile.podTemplate" -}}
{{- $top := index . 0 -}}
{{- $role := index . 1 -}}
{{- $values := index $top.Values $role -}}
{{- $fullname := include "turnstile.fullname" $top -}}
{{- $certificateFiles := and (eq $role "webhook") (ne $top.Values.webhook.certs.mode "self") -}}
metadata:
  labels:
    {{- include "turnstile.labels" $top | nindent 4 }}
    app.kubernetes.io/component: {{ $role }}
    {{- with $values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with $values.podAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  serviceAccountName: {{ $fullname }}-{{ $role }}
  automountServiceAccountToken: true
  {{- with $top.Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  terminationGracePeriodSeconds: {{ $values.terminationGracePeriodSeconds }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 65532
    runAsGroup: 65532
    fsGroup: 65532
    seccompProfile:
      type: RuntimeDefault
  {{- with $values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $values.topologySpreadConstraints }}
  topologySpreadConstraints:
    {{- range . }}
    {{- list . | toYaml | nindent 4 }}
      {{- if not .labelSelector }}
      labelSelector:
        matchLabels:
          {{- include "turnstile.selectorLabels" (list $top $role) | nindent 10 }}
      matchLabelKeys: [pod-template-hash]
      {{- end }}
    {{- end }}
  {{- end }}
  containers:
    - name: {{ $role }}
      image: {{ include "turnstile.image" $top | quote }}
      imagePullPolicy: {{ $top.Values.image.pullPolicy }}
      args:
        {{- index . 2 | nindent 8 }}
        {{- range $values.extraArgs }}
        - {{ . | quote }}
        {{- end }}
      env:
        - name: POD_NAMESPACE
          valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
        - name: POD_NAME
          valueFrom: {fieldRef: {fieldPath: metadata.name}}
      ports:
        {{- index . 3 | nindent 8 }}
      {{- index . 4 | nindent 6 }}
      resources:
        {{- toYaml $values.resources | nindent 8 }}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities:
          drop: [ALL]
      volumeMounts:
        - {name: tmp, mountPath: /tmp}
        {{- if $certificateFiles }}
        - {name: tls, mountPath: /etc/turnstile/tls, readOnly: true}
        {{- end }}
  volumes:
    - name: tmp
      emptyDir: {}
    {{- if $certificateFiles }}
    - name: tls
      secret:
        secretName: {{ include "turnstile.secretName" $top }}
        items: [{key: tls.crt, path: tls.crt}, {key: tls.key, path: tls.key}]
    {{- end }}
{{- end -}}

{{/* A PodDisruptionBudget of a role. Call with (list $ "controller"). */}}
{{- define "turnstile.podDisruptionBudget" -}}
{{- $top := index . 0 -}}
{{- $role := index . 1 -}}
{{- $values := index $top.Values $role -}}
{{- $pdb := $values.podDisruptionBudget -}}
{{- if and $pdb.enabled (gt (int $values.replicas) 1) -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ include "turnstile.fullname" $top }}-{{ $role }}
  namespace: {{ $top.Release.Namespace }}
  labels:
    {{- include "turnstile.labels" $top | nindent 4 }}
    app.kubernetes.io/component: {{ $role }}
spec:
  {{- if $pdb.minAvailable }}
  minAvailable: {{ $pdb.minAvailable }}
  {{- else }}
  maxUnavailable: {{ $pdb.maxUnavailable }}
  {{- end }}
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- include "turnstile.selectorLabels" (list $top $role) | nindent 6 }}
{{- end -}}
{{- end -}}
