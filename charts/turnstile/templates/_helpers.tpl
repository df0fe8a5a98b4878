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

{{/* An image with its registry before it, or that of all charts of a parent. Call with (list $ (dict "registry" "repository" "tag" "digest")). */}}
{{- define "turnstile.imageReference" -}}
{{- $top := index . 0 -}}
{{- with index . 1 -}}
{{- with (default dict $top.Values.global).imageRegistry | default .registry -}}{{ trimSuffix "/" . }}/{{- end -}}
{{- .repository -}}
{{- if .digest -}}@{{ .digest }}{{- else -}}:{{ .tag | default $top.Chart.AppVersion }}{{- end -}}
{{- end -}}
{{- end -}}

{{- define "turnstile.image" -}}
{{- if not .Values.image.repository -}}
{{- fail "image.repository: no image of Turnstile is published yet: build it with `make image IMAGE=REGISTRY/turnstile:TAG`, push it, and name REGISTRY/turnstile here" -}}
{{- end -}}
{{- include "turnstile.imageReference" (list . .Values.image) -}}
{{- end -}}

{{/* How every pod of the release begins: Secrets for the registry, and what its processes may do. */}}
{{- define "turnstile.podBasics" -}}
{{- if not (hasKey .Values "podSecurityContext") -}}
{{- fail "podSecurityContext is missing, as in values of an older chart: upgrade with --reset-then-reuse-values in place of --reuse-values" -}}
{{- end -}}
{{- with concat (default list (default dict .Values.global).imagePullSecrets) (default list .Values.imagePullSecrets) -}}
imagePullSecrets:
  {{- range . }}
  - {{ kindIs "string" . | ternary (dict "name" .) . | toJson }}
  {{- end }}
{{ end -}}
securityContext:
  {{- toYaml .Values.podSecurityContext | nindent 2 }}
{{- end -}}

{{- define "turnstile.secretName" -}}
{{- if eq .Values.webhook.certs.mode "existing" -}}
{{- required "webhook.certs.secretName: name the Secret with tls.crt and tls.key when webhook.certs.mode is existing" .Values.webhook.certs.secretName -}}
{{- else -}}
{{- include "turnstile.fullname" . }}-webhook-server-cert
{{- end -}}
{{- end -}}

{{/* Whether the visibility API is served and registered: "true" or empty. Not with values of an older chart. */}}
{{- define "turnstile.visibility" -}}
{{- $gate := dig "VisibilityOnDemand" true (include "turnstile.featureGates" . | fromJson) -}}
{{- with .Values.visibility -}}
{{- if and .enabled $gate (or $.Values.controller.enabled .url) -}}
true
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The port of the visibility API in the controller's pods. */}}
{{- define "turnstile.visibilityPort" -}}
{{- dig "visibilityServer" "bindPort" .Values.visibility.port (default dict .Values.config) -}}
{{- end -}}

{{/* Whether there is a page in the cluster: "true" or empty. Not with values of an older chart. */}}
{{- define "turnstile.page" -}}
{{- if dig "enabled" false (default dict .Values.page) -}}
true
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

{{/* Feature gates by name, as JSON: the value `featureGates`, and those of `config` over it. No `merge`, for which a gate that
is off is one that was not given. */}}
{{- define "turnstile.featureGates" -}}
{{- $gates := dict -}}
{{- range list .Values.featureGates .Values.config.featureGates -}}
{{- range $gate, $on := . -}}{{- $_ := set $gates $gate $on -}}{{- end -}}
{{- end -}}
{{- toJson $gates -}}
{{- end -}}

{{/* The frameworks of the enabled job kinds, as a JSON list: those that `config` names, or else all whose feature gates, if they
have one, are on. */}}
{{- define "turnstile.frameworks" -}}
{{- $named := dig "integrations" "frameworks" nil (default dict .Values.config) -}}
{{- if kindIs "invalid" $named -}}
{{- $named = list -}}
{{- $gates := include "turnstile.featureGates" . | fromJson -}}
{{- range .Files.Get "files/kinds.yaml" | fromYamlArray -}}
{{- if or (not .gate) (get $gates .gate) -}}{{- $named = append $named .framework -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- toJson $named -}}
{{- end -}}

{{/* The configuration file: `config`, checked for what other values decide, over what these say. So a `config` without job kinds
or gates leaves those that there are without it, where Kueue would take a file that names no job kinds for batch/job alone.
Empty without `config`. */}}
{{- define "turnstile.configuration" -}}
{{- with .Values.config -}}
{{- if and .namespace (ne .namespace $.Release.Namespace) -}}
{{- fail (printf "config.namespace: %s is not the release's namespace %s: leave it out" .namespace $.Release.Namespace) -}}
{{- end -}}
{{- if and (hasKey . "internalCertManagement") (kindIs "map" .internalCertManagement) -}}
{{- if and (eq (toString .internalCertManagement.enable) "false") (eq $.Values.webhook.certs.mode "self") -}}
{{- fail "config.internalCertManagement.enable: false contradicts webhook.certs.mode self: choose certManager or existing" -}}
{{- end -}}
{{- end -}}
{{- $file := merge (dict "apiVersion" (default "config.kueue.x-k8s.io/v1beta2" .apiVersion) "kind" (default "Configuration" .kind)) . -}}
{{- $integrations := merge (dict "frameworks" (include "turnstile.frameworks" $ | fromJsonArray)) (default dict .integrations) -}}
{{- $_ := set $file "integrations" $integrations -}}
{{- with include "turnstile.featureGates" $ | fromJson -}}{{- $_ := set $file "featureGates" . -}}{{- end -}}
{{- toYaml $file -}}
{{- end -}}
{{- end -}}

{{/* The job kinds that are enabled, as a JSON list of what files/kinds.yaml says of each: those of turnstile.frameworks with the
kinds that they need, then those that `config` describes, in the same form. `id` is unique among them, and goes into names:
`job`, `simulation.example.com`. */}}
{{- define "turnstile.kinds" -}}
{{- $known := .Files.Get "files/kinds.yaml" | fromYamlArray -}}
{{- $named := include "turnstile.frameworks" . | fromJsonArray -}}
{{- range $known -}}
{{- if has .framework $named -}}{{- $named = concat $named .needs -}}{{- end -}}
{{- end -}}
{{- $enabled := list -}}
{{- range $known -}}
{{- if has .framework $named -}}{{- $enabled = append $enabled (set . "id" (lower .kind)) -}}{{- end -}}
{{- end -}}
{{- range dig "integrations" "customKinds" list (default dict .Values.config) -}}
{{- $enabled = append $enabled (include "turnstile.customKind" (list $ .) | fromJson) -}}
{{- end -}}
{{- toJson $enabled -}}
{{- end -}}

{{/* The right to read the objects between a job and its pods that are counted, as AppWrapper's Deployments: by their owners
a review finds out whether a pod is one of these. */}}
{{- define "turnstile.countedBelowRules" -}}
{{- $rules := list -}}
{{- range include "turnstile.kinds" . | fromJsonArray -}}
{{- range .countedBelow -}}
{{- $rules = append $rules (dict "apiGroups" (list .group) "resources" (list .plural) "verbs" (list "list" "watch")) -}}
{{- end -}}
{{- end -}}
{{- if $rules -}}{{- toYaml $rules -}}{{- end -}}
{{- end -}}

{{/* The job kinds that the controller reads, in the same form: also those that are not enabled, because jobs that were
admitted before their kind was switched off are followed to their end. */}}
{{- define "turnstile.followedKinds" -}}
{{- $kinds := .Files.Get "files/kinds.yaml" | fromYamlArray -}}
{{- range dig "integrations" "customKinds" list (default dict .Values.config) -}}
{{- $kinds = append $kinds (include "turnstile.customKind" (list $ .) | fromJson) -}}
{{- end -}}
{{- toJson $kinds -}}
{{- end -}}

{{/* The name of a kind in URLs, as Kubernetes guesses it. */}}
{{- define "turnstile.plural" -}}
{{- $kind := lower . -}}
{{- if hasSuffix "s" $kind }}{{ $kind }}es{{ else if hasSuffix "y" $kind }}{{ trimSuffix "y" $kind }}ies{{ else }}{{ $kind }}s{{ end -}}
{{- end -}}

{{/* What files/kinds.yaml would say of a kind that the file describes, as JSON. Call with (list $ entry). */}}
{{- define "turnstile.customKind" -}}
{{- $top := index . 0 -}}
{{- $entry := index . 1 -}}
{{- range list "framework" "group" "version" "kind" "plural" -}}
{{- $_ := required (printf "config.integrations.customKinds: each entry needs %s" .) (get $entry .) -}}
{{- end -}}
{{- $kind := pick $entry "framework" "group" "version" "kind" "plural" -}}
{{- $kind = merge $kind ($top.Files.Get "files/customkind.yaml" | fromYaml) -}}
{{- $_ := set $kind "id" (printf "%s.%s" (lower $entry.kind) $entry.group) -}}
{{- $_ := set $kind "webhookPath" (printf "%s-%s-%s" (replace "." "-" $entry.group) $entry.version (lower $entry.kind)) -}}
{{- $rights := list -}}
{{- range $entry.rights -}}
{{- $group := hasKey . "group" | ternary .group $entry.group -}}
{{- $rights = append $rights (dict "group" $group "resource" .resource "verbs" .verbs) -}}
{{- end -}}
{{- $_ := set $kind "rights" $rights -}}
{{- $_ := set $kind "suspend" (default "spec.suspend" $entry.suspend) -}}
{{- $counts := list -}}
{{- range $entry.podSets -}}
{{- if not .each -}}
{{- range .count -}}
{{- $counts = append $counts (dict "path" .path "default" (hasKey . "default" | ternary .default 1)) -}}
{{- with .atMost -}}{{- $counts = append $counts (dict "path" . "default" nil) -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $_ := set $kind "counts" $counts -}}
{{- $_ := set $kind "makesPods" (has "Pod" (default (list "Pod") $entry.makes)) -}}
{{- toJson $kind -}}
{{- end -}}

{{/* CEL of the field at a path of an object, which may be absent. Call with (list "oldObject" "spec.suspend"). The names
are indexes, because a name that is a word of CEL or has a hyphen cannot stand behind a dot. */}}
{{- define "turnstile.optionalField" -}}
{{- index . 0 -}}
{{- range splitList "." (index . 1) -}}[?'{{ . }}']{{- end -}}
{{- end -}}

{{/* Variables of a policy about kinds that have a field which suspends a job: `resource`, `field` (the path of that field),
and for each given name whether that object is not suspended. Call with (list $kinds (dict "runs" "object")). */}}
{{- define "turnstile.suspendVariables" -}}
{{- $fields := dict -}}
{{- range index . 0 -}}
{{- $_ := set $fields .suspend (append (get $fields .suspend | default list) (printf "%s/%s" .group .plural)) -}}
{{- end -}}
{{- $last := keys $fields | sortAlpha | last -}}
{{- $others := keys $fields | sortAlpha | initial -}}
- name: resource
  expression: request.resource.group + '/' + request.resource.resource
- name: field
  expression: >-
    {{- range $others }}
    variables.resource in {{ get $fields . | toJson }} ? '{{ . }}' :
    {{- end }}
    '{{ $last }}'
{{- range $name, $object := index . 1 }}
- name: {{ $name }}
  expression: >-
    {{- range $others }}
    variables.field == '{{ . }}' ? {{ include "turnstile.optionalField" (list $object .) }}.orValue(false) != true :
    {{- end }}
    {{ include "turnstile.optionalField" (list $object $last) }}.orValue(false) != true
{{- end }}
{{- end -}}

{{/* Whether jobs without a queue name are managed too: "true" or empty. */}}
{{- define "turnstile.withoutQueueName" -}}
{{- if or .Values.manageJobsWithoutQueueName .Values.config.manageJobsWithoutQueueName -}}
true
{{- end -}}
{{- end -}}

{{/* The namespaces whose jobs are managed; the webhooks and the controller use the same selector. */}}
{{- define "turnstile.namespaceSelector" -}}
{{- with .Values.config.managedJobsNamespaceSelector -}}
{{- with .matchLabels -}}
matchLabels:
  {{- toYaml . | nindent 2 }}
{{ end -}}
matchExpressions:
  {{- with .matchExpressions }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- include "turnstile.neverIntercepted" $ | nindent 2 }}
{{- else -}}
{{- if eq .Values.managedNamespaces.mode "optIn" -}}
{{- $label := splitn "=" 2 .Values.managedNamespaces.label -}}
matchLabels:
  {{ $label._0 }}: {{ $label._1 | quote }}
{{ end -}}
matchExpressions:
  {{- include "turnstile.neverIntercepted" . | nindent 2 }}
{{- end -}}
{{- end -}}

{{/* Arguments that both roles share, as a JSON list. Call with (list $ "controller"). */}}
{{- define "turnstile.arguments" -}}
{{- $top := index . 0 -}}
{{- $role := index . 1 -}}
{{- $arguments := list "serve" "--role" $role "--namespace" "$(POD_NAMESPACE)" "--name" (include "turnstile.fullname" $top) "--log-level" (index $top.Values $role).logLevel -}}
{{- if $top.Values.config -}}
{{- $arguments = concat $arguments (list "--config" "/etc/turnstile/config.yaml") -}}
{{- else if $top.Values.featureGates -}}
{{- $settings := list -}}
{{- range $gate, $on := $top.Values.featureGates -}}{{- $settings = append $settings (printf "%s=%v" $gate $on) -}}{{- end -}}
{{- $arguments = concat $arguments (list "--feature-gates" (join "," $settings)) -}}
{{- end -}}
{{- with $top.Values.managedNamespaces -}}
{{- if $top.Values.config.managedJobsNamespaceSelector -}}
{{- /* the file says which */ -}}
{{- else if eq .mode "optIn" -}}
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
{{- if not $top.Values.metrics.authorization -}}
{{- $arguments = append $arguments "--metrics-for-everybody" -}}
{{- end -}}
{{- toJson $arguments -}}
{{- end -}}

{{/* Rules of a role that asks who calls its servers; what is created is a question and stored nowhere. Call with
(list $ "controller"). */}}
{{- define "turnstile.reviewRules" -}}
{{- $top := index . 0 -}}
{{- $visibility := and (eq (index . 1) "controller") (include "turnstile.visibility" $top) -}}
{{- $page := eq (index . 1) "page" -}}
{{- if or $top.Values.metrics.authorization $visibility $page }}
# Who reads the metrics{{ if $visibility }}, and the positions of pending Workloads{{ end }}{{ if $page }}, and what readers of the page may see{{ end }}.
- apiGroups: [authentication.k8s.io]
  resources: [tokenreviews]
  verbs: [create]
- apiGroups: [authorization.k8s.io]
  resources: [subjectaccessreviews]
  verbs: [create]
{{- end }}
{{- end -}}

{{/* The Secret with the URL of the recorder's database for a role, its key, and the port, as JSON; without `secretName` there
is none. The page reads where the controller writes, unless a Secret of its own is named. Call with (list $ "page"). */}}
{{- define "turnstile.database" -}}
{{- $top := index . 0 -}}
{{- $role := index . 1 -}}
{{- $found := dict -}}
{{- with dig "recorder" dict $top.Values.controller -}}
{{- $found = dig "postgres" dict . -}}
{{- if not .enabled -}}{{- $found = omit $found "secretName" -}}{{- end -}}
{{- end -}}
{{- if eq $role "page" -}}
{{- with dig "recorder" (dict "enabled" false) $top.Values.page -}}
{{- $own := dict -}}
{{- range $key, $value := dig "postgres" dict . -}}{{- if $value -}}{{- $_ := set $own $key $value -}}{{- end -}}{{- end -}}
{{- $found = .enabled | ternary (merge (dict) $own $found) dict -}}
{{- if and $own (not $found.secretName) -}}
{{- fail "page.recorder.postgres.secretName: name the Secret whose key has the URL, or set controller.recorder.enabled and controller.recorder.postgres.secretName" -}}
{{- end -}}
{{- end -}}
{{- else if ne $role "controller" -}}
{{- $found = dict -}}
{{- end -}}
{{- if not $found.secretName -}}{{- $found = dict -}}{{- end -}}
{{- toJson $found -}}
{{- end -}}

{{/* The pod of a role. Call with (list $ "controller" args-as-yaml ports-as-yaml probes-as-yaml). */}}
{{- define "turnstile.podTemplate" -}}
{{- $top := index . 0 -}}
{{- $role := index . 1 -}}
{{- $values := index $top.Values $role -}}
{{- $fullname := include "turnstile.fullname" $top -}}
{{- $certificateFiles := or (eq $role "page") (and (or (eq $role "webhook") (include "turnstile.visibility" $top)) (ne $top.Values.webhook.certs.mode "self")) -}}
{{- $clients := and (eq $role "webhook") $top.Values.webhook.clients.caConfigMap -}}
{{- $database := include "turnstile.database" (list $top $role) | fromJson -}}
{{- $recorder := or $database (and (eq $role "controller") (dig "recorder" "enabled" false $values)) -}}
metadata:
  labels:
    {{- include "turnstile.labels" $top | nindent 4 }}
    app.kubernetes.io/component: {{ $role }}
    {{- with $values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- if or $values.podAnnotations $top.Values.config }}
  annotations:
    {{- with $values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
    {{- if $top.Values.config }}
    # New pods for a new file: most of it is read once.
    checksum/config: {{ include "turnstile.configuration" $top | sha256sum }}
    {{- end }}
  {{- end }}
spec:
  serviceAccountName: {{ $fullname }}-{{ $role }}
  automountServiceAccountToken: true
  {{- include "turnstile.podBasics" $top | nindent 2 }}
  {{- with $values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  terminationGracePeriodSeconds: {{ $values.terminationGracePeriodSeconds }}
  {{- if $values.hostNetwork }}
  hostNetwork: true
  {{- end }}
  {{- with $values.dnsPolicy | default ($values.hostNetwork | ternary "ClusterFirstWithHostNet" "") }}
  dnsPolicy: {{ . }}
  {{- end }}
  {{- with $values.dnsConfig }}
  dnsConfig:
    {{- toYaml . | nindent 4 }}
  {{- end }}
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
        {{- if $recorder }}
        # Where the controller writes and the page reads; also for `kubectl exec POD -- turnstile timeline`.
        - name: TURNSTILE_RECORDER
          {{- if $database }}
          valueFrom: {secretKeyRef: {name: {{ $database.secretName }}, key: {{ $database.secretKey | quote }}}}
          {{- else }}
          value: /var/lib/turnstile/recorder.db
          {{- end }}
        {{- end }}
        {{- with $values.extraEnv }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- with $values.extraEnvFrom }}
      envFrom:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      ports:
        {{- index . 3 | nindent 8 }}
      {{- index . 4 | nindent 6 }}
      resources:
        {{- toYaml $values.resources | nindent 8 }}
      securityContext:
        {{- toYaml $top.Values.securityContext | nindent 8 }}
      volumeMounts:
        - {name: tmp, mountPath: /tmp}
        {{- if $database }}
        - {name: recorder, mountPath: /etc/turnstile-recorder, readOnly: true}
        {{- else if $recorder }}
        - {name: recorder, mountPath: /var/lib/turnstile}
        {{- end }}
        {{- if or $certificateFiles $clients $top.Values.config }}
        - {name: etc, mountPath: /etc/turnstile, readOnly: true}
        {{- end }}
        {{- with $values.extraVolumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    {{- if and (eq $role "page") (dig "oidcProxy" "enabled" false $values) }}
    {{- include "turnstile.oidcProxy" $top | nindent 4 }}
    {{- end }}
  volumes:
    - name: tmp
      emptyDir: {}
    {{- if $database }}
    - name: recorder
      secret: {secretName: {{ $database.secretName }}}
    {{- else if $recorder }}
    - name: recorder
      {{- toYaml $values.recorder.volume | nindent 6 }}
    {{- end }}
    {{- if or $certificateFiles $clients $top.Values.config }}
    - name: etc
      projected:
        sources:
          {{- if $certificateFiles }}
          # Not the keys of its authority.
          - secret:
              name: {{ include "turnstile.secretName" $top }}
              items: [{key: tls.crt, path: tls/tls.crt}, {key: tls.key, path: tls/tls.key}]
          {{- end }}
          {{- with $clients }}
          - configMap:
              name: {{ . }}
              items: [{key: ca.crt, path: clients/ca.crt}]
          {{- end }}
          {{- if $top.Values.config }}
          - configMap:
              name: {{ $fullname }}-config
              items: [{key: config.yaml, path: config.yaml}]
          {{- end }}
    {{- end }}
    {{- with $values.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}

{{/* What the Deployment of a role says beside its pods. Call with (list $ "controller" default-strategy). */}}
{{- define "turnstile.deploymentHead" -}}
{{- $top := index . 0 -}}
{{- $role := index . 1 -}}
{{- $values := index $top.Values $role -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ include "turnstile.fullname" $top }}-{{ $role }}
  namespace: {{ $top.Release.Namespace }}
  labels:
    {{- include "turnstile.labels" $top | nindent 4 }}
    app.kubernetes.io/component: {{ $role }}
  {{- with $values.deploymentAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  replicas: {{ $values.replicas }}
  revisionHistoryLimit: 3
  {{- with $values.strategy | default (index . 2) }}
  strategy:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  selector:
    matchLabels:
      {{- include "turnstile.selectorLabels" (list $top $role) | nindent 6 }}
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

{{/* The match condition under which a ValidatingAdmissionPolicy binds a user: Turnstile's controller and the exempt ones are not
bound. */}}
{{- define "turnstile.notExempt" -}}
{{- $turnstile := printf "system:serviceaccount:%s:%s-controller" .Release.Namespace (include "turnstile.fullname" .) }}
{{- $policies := .Values.admissionPolicies }}
name: not-exempt
expression: >-
  !(request.userInfo.username in {{ append $policies.exemptUsers $turnstile | toJson }}) && (!has(request.userInfo.groups) ||
  !request.userInfo.groups.exists(g, g in {{ toJson $policies.exemptGroups }}))
{{- end }}

{{/* The binding of the ValidatingAdmissionPolicy `name` to the managed namespaces; `root` is the chart's scope. */}}
{{- define "turnstile.policyBinding" -}}
{{- $name := printf "%s-%s" (include "turnstile.fullname" .root) .name }}
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: {{ $name }}
  labels:
    {{- include "turnstile.labels" .root | nindent 4 }}
    app.kubernetes.io/component: webhook
spec:
  policyName: {{ $name }}
  validationActions: [Deny]
  matchResources:
    namespaceSelector:
      {{- include "turnstile.namespaceSelector" .root | nindent 6 }}
{{- end }}
