#!/usr/bin/env bash
# pods.sh DIRECTORY CGROUP short|full: the chart's pods on a real kubelet. It is run by scripts/node.sh, in namespaces of its own.
#
# count-writes changes ConfigMaps all the time. The chart's bridges publish them while the pods are replaced, killed and
# paused, and count-writes checks at the end that each write is on the bus once.
set -euo pipefail
work=$1 cgroup=$2 form=$3
cd "$(dirname "$0")/../.."
run=$work/run
export KUBECONFIG=$run/cluster/kubeconfig PATH=$work/bin:$PATH
node_ip=10.28.8.1 pod_subnet=10.28.8.0/24 pod_first=10.28.8.10
. test/node/lib.sh
. test/node/cluster.sh

# explain shows what there is, where a step has failed.
explain() {
	local code=$?
	[ $code != 0 ] || return 0
	echo "failed after: $(kubectl get pods,leases -A -o wide 2>&1)"
	kubectl get events -A --sort-by=.lastTimestamp 2>&1 | tail -n 30
	for pod in $(kubectl get pods -A -l app.kubernetes.io/name=kubebridge -o jsonpath='{range .items[*]}{.metadata.namespace}/{.metadata.name} {end}' 2>/dev/null); do
		echo "== $pod"
		kubectl -n "${pod%/*}" logs "${pod#*/}" --tail=20 2>&1
	done
	tail -n 5 "$run"/*.log
} >&2
trap explain EXIT

# chart VERB RELEASE FLAGS...: the release is in the namespace of its name.
chart() {
	local verb=$1 release=$2
	shift 2
	helm "$verb" "$release" charts/kubebridge --namespace "$release" --values "$run/$release.yaml" "$@"
}

# settled RELEASE VERB...: the same, and waits until the pods are ready.
settled() { chart "$2" "$1" --wait --timeout 2m "${@:3}" >/dev/null; }

namespace() {
	kubectl create namespace "$1" >/dev/null
	kubectl label namespace "$1" pod-security.kubernetes.io/enforce=restricted >/dev/null
}

holder() { kubectl -n ha get lease kubebridge-ha-kubebridge -o 'jsonpath={.spec.holderIdentity}'; }
leader() { holder | cut -d_ -f1; }
# another_leads HOLDER: another process leads, which may be in the same pod.
another_leads() { local now; now=$(holder) && [ -n "$now" ] && [ "$now" != "$1" ]; }
pods() { kubectl -n "$1" get pods --no-headers | awk '{print $1, $3}' | paste -sd,; }
restarts() { kubectl -n "$1" get pods -o 'jsonpath={range .items[*]}{.status.containerStatuses[0].restartCount}{" "}{end}'; }

# pid_of POD: the bridge's process. A pod's host name is the pod's name.
pid_of() {
	local pid
	for pid in $(pgrep -x bridge); do
		if grep -qzx "HOSTNAME=$1" "/proc/$pid/environ"; then
			echo "$pid"
			return
		fi
	done
	echo "no process of pod $1" >&2
	return 1
}

# watching NAMESPACE POD COLLECTION: whether a bridge's status has that collection, and nothing is wrong with it.
watching() { kubectl -n "$1" exec "$2" -c bridge -- bridge status | grep -E "^ *$3 .*watching" >/dev/null; }

# --- the steps

start_writes() {
	local deliveries=(exactly-once)
	[ "$form" = short ] || deliveries+=(at-least-once)
	count-writes -dir "$run/nats" "${deliveries[@]}" >"$run/counts" 2>"$run/count-writes.log" &
	writes=$!
	eventually 20 grep -q = "$run/counts"
	local servers
	read -r servers <"$run/counts"
	service 10.0.0.2:4222 "$(grep -oP 'exactly-once=\K\S+' <<<"$servers")"
	[ "$form" = short ] || service 10.0.0.3:4222 "$(grep -oP 'at-least-once=\K\S+' <<<"$servers")"
}

# await_writes: they begin when every bridge's first list is on the bus.
await_writes() {
	eventually 60 kubectl -n written get configmap n0
	step "writes begin"
}

# count_writes ends the writes, and fails if one is not on the bus, or is there twice.
count_writes() {
	kill "$writes"
	wait "$writes" || { cat "$run/count-writes.log" >&2; return 1; }
	step "counted: $(tail -n +2 "$run/counts" | paste -sd';')"
}

install_deployment() {
	cat >"$run/ha.yaml" <<-YAML
		image: {repository: localhost/kubebridge, tag: built, pullPolicy: Never}
		config:
		  cluster: ha
		  resources: [{resource: configmaps, namespaces: [written]}]
		  sinks: [{name: live, nats: {url: "nats://10.0.0.2:4222"}}]
	YAML
	namespace ha
	settled ha install
	eventually 20 watching ha "$(leader)" configmaps@written
	step "Deployment installed: $(pods ha)"
}

# The namespace refuses what its level does not allow, so the chart's pods keep to it.
refuse_privileged() {
	! kubectl -n ha run refused --image=localhost/kubebridge:built --privileged 2>"$run/refused" || return 1
	grep -q 'violates PodSecurity "restricted' "$run/refused"
	step "a privileged pod is refused in the same namespace"
}

# run_notes runs the commands that Helm prints, as they are printed.
run_notes() {
	helm get notes "$1" --namespace "$1" | sed -n 's/^    //p' | grep -E '^LEADER=|^kubectl .* exec .* bridge status$' >"$run/notes"
	bash -e "$run/notes" | grep -q configmaps@written
	step "the commands that Helm prints show the collections of $1"
}

use_pod() {
	local pod
	pod=$(leader)
	kubectl -n ha logs "$pod" -c bridge | grep -q 'became leader'
	kubectl -n ha port-forward "pod/$pod" 8080:8080 >"$run/forward" 2>&1 &
	local forward=$!
	eventually 10 grep -q Forwarding "$run/forward"
	exec 3<>/dev/tcp/127.0.0.1/8080
	printf 'GET /readyz HTTP/1.0\r\nHost: localhost\r\n\r\n' >&3
	grep -q ' 200 ' <&3
	exec 3>&-
	kill "$forward"
	wait "$forward" || true
	step "logs, exec, port-forward"
}

# memory_of PID: the limit of a process's cgroup and the most that the cgroup has used, in bytes.
memory_of() {
	local path
	path=$(awk -F: '$2 == "memory" {print $3}' "/proc/$1/cgroup")
	if [ -n "$path" ]; then
		cat "/sys/fs/cgroup/memory$path/memory."{limit,max_usage}_in_bytes
	else # version 2
		path=$(awk -F: '$1 == 0 {print $3}' "/proc/$1/cgroup")
		cat "/sys/fs/cgroup$path/memory."{max,peak}
	fi
}

check_memory() {
	local pid limit peak
	pid=$(pid_of "$(leader)")
	{ read -r limit; read -r peak; } < <(memory_of "$pid")
	expect "the memory limit" $((512 << 20)) "$limit"
	expect "GOMEMLIMIT" $((limit * 9 / 10)) "$(tr '\0' '\n' <"/proc/$pid/environ" | sed -n 's/^GOMEMLIMIT=//p')"
	step "memory: limit $((limit >> 20)) MiB, GOMEMLIMIT nine tenths of it, at most $((peak >> 20)) MiB used"
}

# A change of resources reaches running pods through the mounted ConfigMap.
reload() {
	local before
	before=$(pods "$1")
	sed -i 's/resources: \[/&{resource: services, namespaces: [written]}, /' "$run/$1.yaml"
	settled "$1" upgrade
	eventually 120 watching "$1" "$2" services@written
	expect "the pods of $1" "$before" "$(pods "$1")"
	step "$1: a resource added by helm upgrade, in the same pods"
}

roll() {
	local before
	before=$(holder)
	settled ha upgrade --set-string podAnnotations.again=1
	eventually 20 another_leads "$before"
	step "ha: rolling update to $(pods ha)"
}

# break_upgrade RELEASE: an upgrade whose pods never become ready.
break_upgrade() {
	! chart upgrade "$1" --set image.tag=missing --wait --timeout 15s >/dev/null 2>&1 || { echo "an upgrade to an image that is missing succeeded" >&2; return 1; }
	kubectl -n "$1" get pods --no-headers | grep -q ErrImageNeverPull
}

roll_back() {
	break_upgrade "$1"
	helm rollback "$1" --namespace "$1" --wait --timeout 2m >/dev/null
	step "$1: rolled back from an upgrade whose pods never became ready: $(pods "$1")"
}

correct() {
	break_upgrade "$1"
	settled "$1" upgrade
	step "$1: corrected an upgrade whose pods never became ready: $(pods "$1")"
}

# kill_leader: kill -9, as a node that dies does it.
kill_leader() {
	local before
	before=$(holder)
	kill -9 "$(pid_of "${before%%_*}")"
	eventually 40 another_leads "$before"
	eventually 60 kubectl -n ha wait --for=condition=Available deployment/ha-kubebridge --timeout=1s
	step "ha: kill -9 of the leader ${before%%_*}, now leads $(leader)"
}

# pause_leader: the leader is stopped for as long as another needs to take over, and then goes on.
pause_leader() {
	local before pid count
	before=$(holder)
	pid=$(pid_of "${before%%_*}")
	count=$(restarts ha)
	kill -STOP "$pid"
	eventually 40 another_leads "$before"
	kill -CONT "$pid"
	eventually 20 standby ha "${before%%_*}"
	expect "restarts of ha" "$count" "$(restarts ha)"
	step "ha: SIGSTOP of the leader ${before%%_*}: $(leader) leads, and the former leader stands by"
}

standby() { kubectl -n "$1" exec "$2" -c bridge -- bridge status | grep -q standby; }

# --- the StatefulSet: checkpoint and an embedded server on a volume, and at-least-once delivery to another server

install_statefulset() {
	cat >"$run/disk.yaml" <<-YAML
		image: {repository: localhost/kubebridge, tag: built, pullPolicy: Never}
		config:
		  cluster: disk
		  resources: [{resource: configmaps, namespaces: [written]}]
		  checkpoint: {file: {path: /var/lib/kubebridge/checkpoint}}
		  sinks:
		    - {name: live, nats: {url: "nats://10.0.0.3:4222", delivery: at-least-once}}
		    - {name: own, nats: {embedded: {dir: /var/lib/kubebridge/nats, listen: ":4222"}}}
	YAML
	volumes
	namespace disk
	settled disk install
	eventually 20 watching disk disk-kubebridge-0 configmaps@written
	step "StatefulSet installed: $(pods disk)"
}

kill_statefulset() {
	kill -9 "$(pid_of disk-kubebridge-0)"
	eventually 60 restarted
	eventually 60 watching disk disk-kubebridge-0 configmaps@written
	step "disk: kill -9: $(pods disk)"
}

restarted() { [ "$(restarts disk)" = "1 " ] && kubectl -n disk wait --for=condition=Ready pod/disk-kubebridge-0 --timeout=1s; }

# read_embedded reads what the embedded server has kept.
read_embedded() {
	local kept
	kept=$(kubectl -n disk exec disk-kubebridge-0 -c bridge -- bridge state --sink own --at "$(date -u +%FT%TZ)" configmaps -n written -o json | grep -oE '"name": ?"n[0-9]+"' | sort -u | wc -l)
	[ "$kept" -ge 10 ]
	step "disk: the embedded server has $kept objects"
}

no_pods() { [ -z "$(kubectl -n "$1" get pods -o name)" ]; }

# uninstall RELEASE STAYS: what NOTES.txt says stays, and nothing else.
uninstall() {
	helm uninstall "$1" --namespace "$1" --wait >/dev/null
	eventually 90 no_pods "$1" # Helm does not wait for them
	expect "what stays of $1" "$2" "$(kubectl -n "$1" get deployments,statefulsets,services,secrets,configmaps,roles,rolebindings,serviceaccounts,leases,pvc,pdb -o name |
		grep -vE '^(configmap/kube-root-ca.crt|serviceaccount/default)$' | paste -sd' ')"
	step "$1: uninstalled; $2 stays"
}

# install_again: the Lease that stayed names the former leader until it ends.
install_again() {
	local before
	before=$(holder)
	settled ha install
	eventually 40 another_leads "$before"
	eventually 20 watching ha "$(leader)" configmaps@written
	step "ha: installed again, continues where it stopped"
}

start_network
start_control_plane
step "API server, controllers, scheduler"
start_containerd
start_kubelet
step "node: $(kubectl get node --no-headers | awk '{print $1, $2, $5}')"
start_writes
install_deployment
if [ "$form" = full ]; then
	refuse_privileged
	run_notes ha
	use_pod
	check_memory
	install_statefulset
	run_notes disk
	await_writes
	reload ha "$(leader)"
	reload disk disk-kubebridge-0
	roll
	roll_back ha
	roll_back disk
	correct disk
	pause_leader
	kill_statefulset
	read_embedded
	uninstall ha "secret/ha-kubebridge-hash-key lease.coordination.k8s.io/kubebridge-ha-kubebridge"
	install_again
else
	await_writes
fi
kill_leader
count_writes
uninstall ha "secret/ha-kubebridge-hash-key lease.coordination.k8s.io/kubebridge-ha-kubebridge"
[ "$form" = short ] || uninstall disk "secret/disk-kubebridge-hash-key persistentvolumeclaim/data-disk-kubebridge-0"
echo "test/node: every step passed in $SECONDS s"
