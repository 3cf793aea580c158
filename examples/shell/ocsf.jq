# Makes an API Activity (class 6003 of OCSF 1.3.0, https://schema.ocsf.io) of each change whose request is known:
#   nats subscribe --raw 'k8s.>' | jq -c --unbuffered -f ocsf.jq
# Events with candidates are left out: the user is not certain.
def milliseconds: capture("^(?<seconds>[^.Z]+)(?<fraction>\\.[0-9]+)?Z$")
  | ((.seconds + "Z" | fromdateiso8601) * 1000) + ((.fraction // "0" | tonumber) * 1000 | floor);
def user: {name, uid, groups: [.groups[]? | {name: .}]} | del(..|nulls);

. as $e | .data.actor // .data.request | select(. and ($e.type | startswith("io.kubebridge.resource."))) | . as $r
| {create: 1, update: 3, patch: 3, delete: 4, deletecollection: 4}[$r.verb] // 99
| . as $activity
| {
    class_uid: 6003, category_uid: 6, activity_id: $activity, type_uid: (600300 + $activity),
    activity_name: (if $activity == 99 then $r.verb else null end),
    severity_id: 1, status_id: 1, status_code: ($r.code | tostring),
    time: ($r.received // $e.time | milliseconds),
    metadata: {version: "1.3.0", uid: $e.id, correlation_uid: ($e.data.explains // $e.id), product: {name: "kubebridge", vendor_name: "kubebridge"}},
    actor: {user: ($r.user | user), authorizations: [{decision: $r.decision, policy: {desc: $r.decisionreason}}]},
    src_endpoint: {ip: $r.sourceips[-1]},
    http_request: {user_agent: $r.useragent, url: {path: $r.uri}},
    api: {operation: $r.verb, service: {name: "kubernetes \($e.cluster)"}, request: {uid: $r.auditid}, response: {code: $r.code}},
    resources: [{uid: $e.uid, name: $e.name, namespace: $e.namespace, type: "\($e.resource)\(if $e.group then "." + $e.group else "" end)", version: $e.resourceversion}],
    unmapped: {impersonated: $r.impersonated, subresource: $r.subresource}
  }
| del(..|nulls)
