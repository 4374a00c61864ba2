{{/* Every object is named after its program: one installation to a cluster, since nodes have one
agent and one set of resources. */}}
{{- define "vcuda.agent" -}}vcuda-node-agent{{- end }}
{{- define "vcuda.extender" -}}vcuda-scheduler-extender{{- end }}
{{- define "vcuda.claims" -}}vcuda-claim-templates{{- end }}

{{/* Labels that never change, for selectors. Takes a program's name. */}}
{{- define "vcuda.selector" -}}
app.kubernetes.io/name: {{ . }}
{{- end }}

{{/* Takes a list: a program's name, the root. */}}
{{- define "vcuda.labels" -}}
{{ include "vcuda.selector" (first .) }}
app.kubernetes.io/part-of: vcuda
app.kubernetes.io/version: {{ (last .).Chart.AppVersion | quote }}
{{- end }}

{{/* Takes a list: an image, the tag where it names none, the root. As in Docker's references a first component
with a dot or a colon is a registry, and "localhost" is. */}}
{{- define "vcuda.image" -}}
{{- $image := first . -}}
{{- if not (regexMatch "^([^/]*[.:][^/]*|localhost)/" $image.repository) -}}
{{- with (last .).Values.registry }}{{ . }}/{{ end }}
{{- end }}{{ $image.repository }}
{{- with $image.digest }}@{{ . }}{{ else }}:{{ $image.tag | default (index . 1) }}{{ end }}
{{- end }}

{{- define "vcuda.stateDir" -}}{{ index .Values.settings "state-dir" | default "/run/vcuda" }}{{- end }}

{{/* Where a pod finds the driver: the folder of the same name, and of / another. */}}
{{- define "vcuda.driverMount" -}}
{{ eq .Values.agent.driverRoot "/" | ternary "/host" .Values.agent.driverRoot }}
{{- end }}

{{/* Not empty: the agent follows the cluster, so its account may do something. */}}
{{- define "vcuda.followsCluster" -}}
{{ ne (index .Values.settings "kubernetes" | default "auto") "no" | ternary "yes" "" }}
{{- end }}

{{/* Not empty: the nodes' GPUs are offered by DRA, not by the device plugin. */}}
{{- define "vcuda.byDra" -}}
{{ and .Values.agent.enabled (eq (index .Values.settings "gpu-offer" | default "plugin") "dra") | ternary "yes" "" }}
{{- end }}

{{/* Not empty: the agent can prepare and unprepare claims. */}}
{{- define "vcuda.hasDra" -}}
{{- if or (include "vcuda.byDra" .) (and .Values.agent.enabled .Values.agent.endsClaims) }}yes{{ end }}
{{- end }}

{{/* Not empty: pods that ask for a share by resources get a claim. */}}
{{- define "vcuda.claimsFromResources" -}}
{{- if and (include "vcuda.byDra" .) .Values.claims.fromResources }}yes{{ end }}
{{- end }}

{{- define "vcuda.port" -}}{{ .Values.agent.listen | splitList ":" | last }}{{- end }}

{{/* What a pod may do that needs nothing of its node. */}}
{{- define "vcuda.restricted" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
capabilities: {drop: [ALL]}
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{/* The extender's options for the cluster page; empty: it is off. */}}
{{- define "vcuda.pageOptions" -}}
{{- with .Values.scheduler.page }}
{{- if .enabled -}}
- --page=0.0.0.0:3457
{{- if .tlsSecret }}
- --page-tls-cert=/etc/vcuda-page-tls/tls.crt
- --page-tls-key=/etc/vcuda-page-tls/tls.key
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* An entry of kube-scheduler's extenders. Takes a list: where it is called, the root. */}}
{{- define "vcuda.extenderEntry" -}}
{{- $settings := (last .).Values.settings -}}
- urlPrefix: {{ first . }}
  filterVerb: predicates
  prioritizeVerb: priorities
  bindVerb: bind
  preemptVerb: preempt
  weight: 1
  nodeCacheCapable: true
  ignorable: false
  managedResources:
  {{- range list "core-resource" "memory-resource" "gpu-resource" }}
  {{- with index $settings . }}
  - {name: {{ . }}}
  {{- end }}
  {{- end }}
  {{- with index $settings "gpu-resource" }}
  {{- range list "mem" "mem-percentage" "cores" }}
  - {name: {{ index $settings "gpu-resource" }}{{ . }}, ignoredByScheduler: true}
  {{- end }}
  {{- end }}
{{- end }}

{{/* Binds the ValidatingAdmissionPolicy above it. Takes a list: its name, its labels. */}}
{{- define "vcuda.denies" -}}
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: {{ first . }}
  labels: {{- last . | nindent 4 }}
spec:
  policyName: {{ first . }}
  validationActions: [Deny]
{{- end }}

{{/* Of a policy on the node agents: only their requests, and "node", a list of the token's node. */}}
{{- define "vcuda.fromAnAgent" -}}
matchConditions:
- name: the-agent
  expression: request.userInfo.username == "system:serviceaccount:{{ .Release.Namespace }}:{{ include "vcuda.agent" . }}"
variables:
- name: node
  expression: >-
    has(request.userInfo.extra) &&
    "authentication.kubernetes.io/node-name" in request.userInfo.extra
    ? request.userInfo.extra["authentication.kubernetes.io/node-name"] : []
{{- end }}
