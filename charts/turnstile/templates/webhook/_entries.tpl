{{/*
What the API server sends us and what it keeps to itself. Each entry: name, path, apiGroups, apiVersions, resources,
operations, scope of namespaces (all | managed | outside: all but kube-system and our own), matchConditions. Job kinds come
from files/kinds.yaml, and from the configuration where it describes others. The conditions are CEL, evaluated by the API server, so an object that is none of our business
costs no call and does not depend on our being up.
*/}}
{{- define "turnstile.webhookConditions" -}}
{{- $user := printf "system:serviceaccount:%s:%s-controller" .Release.Namespace (include "turnstile.fullname" .) -}}
notOurOwnWrite:
  name: not-our-own-write
  expression: "request.userInfo.username != '{{ $user }}'"
notBeingDeleted:
  # Whoever takes a finalizer off must never wait for us.
  name: not-being-deleted
  expression: "!has(object.metadata.deletionTimestamp)"
{{- end -}}

{{- define "turnstile.webhookEntries" -}}
{{- $common := include "turnstile.webhookConditions" . | fromYaml }}
mutating:
  {{- range include "turnstile.kinds" . | fromJsonArray }}
  {{- $named := and .defaultingUnlessAll (eq (include "turnstile.withoutQueueName" $) "true") | ternary list .defaulting }}
  {{- $updated := has "UPDATE" .defaultedOn | ternary (list $common.notOurOwnWrite $common.notBeingDeleted) list }}
  - name: m{{ .id }}.kb.io
    path: /mutate-{{ .webhookPath }}
    group: {{ .group | quote }}
    version: {{ .version }}
    resources: [{{ .plural }}]
    operations: {{ toJson .defaultedOn }}
    namespaces: managed
    matchConditions: {{ concat $updated $named | toJson }}
  {{- end }}
  - name: mclusterqueue.kb.io
    path: /mutate-kueue-x-k8s-io-v1beta2-clusterqueue
    group: kueue.x-k8s.io
    version: v1beta2
    resources: [clusterqueues]
    operations: [CREATE]
    namespaces: all
    matchConditions: []
  - name: mresourceflavor.kb.io
    path: /mutate-kueue-x-k8s-io-v1beta2-resourceflavor
    group: kueue.x-k8s.io
    version: v1beta2
    resources: [resourceflavors]
    operations: [CREATE]
    namespaces: all
    matchConditions: []
  - name: mworkload.kb.io
    path: /mutate-kueue-x-k8s-io-v1beta2-workload
    group: kueue.x-k8s.io
    version: v1beta2
    resources: [workloads]
    operations: [CREATE]
    namespaces: outside
    matchConditions: {{ list $common.notOurOwnWrite | toJson }}
validating:
  {{- range include "turnstile.kinds" . | fromJsonArray }}
  - name: v{{ .id }}.kb.io
    path: /validate-{{ .webhookPath }}
    group: {{ .group | quote }}
    version: {{ .version }}
    resources: [{{ .plural }}]
    operations: [CREATE, UPDATE]
    namespaces: managed
    matchConditions: {{ concat (list $common.notOurOwnWrite $common.notBeingDeleted) .validating | toJson }}
  {{- end }}
  - name: vclusterqueue.kb.io
    path: /validate-kueue-x-k8s-io-v1beta2-clusterqueue
    group: kueue.x-k8s.io
    version: v1beta2
    resources: [clusterqueues]
    operations: [CREATE, UPDATE]
    namespaces: all
    matchConditions: {{ list $common.notOurOwnWrite | toJson }}
  - name: vcohort.kb.io
    path: /validate-kueue-x-k8s-io-v1beta2-cohort
    group: kueue.x-k8s.io
    version: v1beta2
    resources: [cohorts]
    operations: [CREATE, UPDATE]
    namespaces: all
    matchConditions: {{ list $common.notOurOwnWrite | toJson }}
  - name: vresourceflavor.kb.io
    path: /validate-kueue-x-k8s-io-v1beta2-resourceflavor
    group: kueue.x-k8s.io
    version: v1beta2
    resources: [resourceflavors]
    operations: [CREATE, UPDATE]
    namespaces: all
    matchConditions: {{ list $common.notOurOwnWrite | toJson }}
  - name: vworkloadpriorityclass.kb.io
    path: /validate-kueue-x-k8s-io-v1beta2-workloadpriorityclass
    group: kueue.x-k8s.io
    version: v1beta2
    resources: [workloadpriorityclasses]
    operations: [CREATE, UPDATE]
    namespaces: all
    matchConditions: {{ list $common.notOurOwnWrite | toJson }}
  - name: vworkload.kb.io
    path: /validate-kueue-x-k8s-io-v1beta2-workload
    group: kueue.x-k8s.io
    version: v1beta2
    resources: [workloads, workloads/status]
    operations: [CREATE, UPDATE]
    namespaces: outside
    matchConditions: {{ list $common.notOurOwnWrite $common.notBeingDeleted | toJson }}
{{- end -}}
