{{/*
What the API server sends us and what it keeps to itself. Each entry: name, path, apiGroups, apiVersions, resources,
operations, framework (left out where that is not enabled), scope of namespaces (all | managed | outside: all but kube-system and our own), matchConditions.
The conditions are CEL, evaluated by the API server, so an object that is none of our business costs no call and does
not depend on our being up.
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
plainOrQueuedPod:
  # A batch Job's pod that names no queue is accounted for by its Job. Other controllers' pods (a Deployment's, say)
  # queue one by one, as in Kueue, where the namespace has a default queue.
  name: plain-or-queued-pod
  expression: >-
    (has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) ||
    (has(object.metadata.annotations) && 'kueue.x-k8s.io/pod-suspending-parent' in object.metadata.annotations) ||
    !has(object.metadata.ownerReferences) || !object.metadata.ownerReferences.exists(o,
    has(o.controller) && o.controller && o.kind == 'Job' && o.apiVersion.startsWith('batch/'))
queuedJob:
  name: queued-now-or-before
  expression: >-
    [object, oldObject].exists(o, o != null && has(o.metadata.labels) &&
    o.metadata.labels.exists(k, k.startsWith('kueue.x-k8s.io/')))
notPlainNewJob:
  # Most Jobs are created with a queue name and nothing else of ours: no rule could refuse them, so a call is saved.
  name: not-plain-new-job
  expression: >-
    request.operation != 'CREATE' ||
    object.metadata.labels.exists(k, k.contains('kueue.x-k8s.io/') && k != 'kueue.x-k8s.io/priority-class' &&
    (k != 'kueue.x-k8s.io/queue-name' || !object.metadata.labels[k].matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$'))) ||
    (has(object.metadata.annotations) && object.metadata.annotations.exists(k, k.contains('kueue.x-k8s.io/'))) ||
    (has(object.spec.template.metadata) && has(object.spec.template.metadata.annotations) &&
    object.spec.template.metadata.annotations.exists(k, k.contains('kueue.x-k8s.io/')))
queuedPod:
  # Named one by one: pods of an admitted job carry other labels of this group and are updated often.
  name: queued-now-or-before
  expression: >-
    [object, oldObject].exists(o, o != null && has(o.metadata.labels) && o.metadata.labels.exists(k, k in
    ['kueue.x-k8s.io/queue-name', 'kueue.x-k8s.io/managed', 'kueue.x-k8s.io/pod-group-name']))
{{- end -}}

{{- define "turnstile.webhookEntries" -}}
mutating:
  - name: mpod.kb.io
    framework: pod
    path: /mutate--v1-pod
    group: ""
    version: v1
    resources: [pods]
    operations: [CREATE]
    namespaces: managed
    conditions: {{ eq (include "turnstile.withoutQueueName" .) "true" | ternary "[]" "[plainOrQueuedPod]" }}
  - name: mjob.kb.io
    framework: batch/job
    path: /mutate-batch-v1-job
    group: batch
    version: v1
    resources: [jobs]
    operations: [CREATE]
    namespaces: managed
    conditions: []
  - name: mclusterqueue.kb.io
    path: /mutate-kueue-x-k8s-io-v1beta2-clusterqueue
    group: kueue.x-k8s.io
    version: v1beta2
    resources: [clusterqueues]
    operations: [CREATE]
    namespaces: all
    conditions: []
  - name: mresourceflavor.kb.io
    path: /mutate-kueue-x-k8s-io-v1beta2-resourceflavor
    group: kueue.x-k8s.io
    version: v1beta2
    resources: [resourceflavors]
    operations: [CREATE]
    namespaces: all
    conditions: []
  - name: mworkload.kb.io
    path: /mutate-kueue-x-k8s-io-v1beta2-workload
    group: kueue.x-k8s.io
    version: v1beta2
    resources: [workloads]
    operations: [CREATE]
    namespaces: outside
    conditions: [notOurOwnWrite]
validating:
  - name: vpod.kb.io
    framework: pod
    path: /validate--v1-pod
    group: ""
    version: v1
    resources: [pods]
    operations: [CREATE, UPDATE]
    namespaces: managed
    conditions: [notOurOwnWrite, notBeingDeleted, queuedPod]
  - name: vjob.kb.io
    framework: batch/job
    path: /validate-batch-v1-job
    group: batch
    version: v1
    resources: [jobs]
    operations: [CREATE, UPDATE]
    namespaces: managed
    conditions: [notOurOwnWrite, notBeingDeleted, queuedJob, notPlainNewJob]
  - name: vclusterqueue.kb.io
    path: /validate-kueue-x-k8s-io-v1beta2-clusterqueue
    group: kueue.x-k8s.io
    version: v1beta2
    resources: [clusterqueues]
    operations: [CREATE, UPDATE]
    namespaces: all
    conditions: [notOurOwnWrite]
  - name: vcohort.kb.io
    path: /validate-kueue-x-k8s-io-v1beta2-cohort
    group: kueue.x-k8s.io
    version: v1beta2
    resources: [cohorts]
    operations: [CREATE, UPDATE]
    namespaces: all
    conditions: [notOurOwnWrite]
  - name: vresourceflavor.kb.io
    path: /validate-kueue-x-k8s-io-v1beta2-resourceflavor
    group: kueue.x-k8s.io
    version: v1beta2
    resources: [resourceflavors]
    operations: [CREATE, UPDATE]
    namespaces: all
    conditions: [notOurOwnWrite]
  - name: vworkload.kb.io
    path: /validate-kueue-x-k8s-io-v1beta2-workload
    group: kueue.x-k8s.io
    version: v1beta2
    resources: [workloads, workloads/status]
    operations: [CREATE, UPDATE]
    namespaces: outside
    conditions: [notOurOwnWrite, notBeingDeleted]
{{- end -}}
