#!/usr/bin/env bash
# quickstart.sh DIRECTORY ROOT CLUSTER JARS PAGES...: the pages' code blocks in a Debian root. It is run by scripts/quickstart.sh, in namespaces of
# its own.
set -euo pipefail
work=$1 root=$2 cluster=$3 jars=$4
shift 4
cd "$(dirname "$0")/../.."
run=$work/run
. test/node/lib.sh
export PATH=$work/bin:$PATH KUBECONFIG=$run/cluster/kubeconfig

explain() {
	local code=$?
	[ $code = 0 ] || tail -n 5 "$run"/*.log
} >&2
trap explain EXIT

start() {
	local log=$run/$1.log
	shift
	"$@" >"$log" 2>&1 &
}
kubectl() { (exec -a kubectl "$work/bin/node" "$@"); }
inside() { chroot "$root" env -i HOME=/root TERM=dumb PATH="$path" ${proxy:+GOPROXY="$proxy"} bash -c "cd /kubebridge && $1"; }
path=/root/venv/bin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
proxy=${GOPROXY:-}

# mounts: what a root has, the jars as /opt/kafka/libs, and this machine's Go caches.
mounts() {
	mount -t proc proc "$root/proc"
	mount --rbind /dev "$root/dev"
	mkdir -p "$root/opt/kafka/libs"
	mount --bind "$jars" "$root/opt/kafka/libs"
	[ -z "$COLD" ] || return 0
	local dir
	for dir in pkg/mod:GOMODCACHE .cache:GOCACHE; do
		local to=$root/root/go/pkg/mod
		[ "${dir#*:}" = GOMODCACHE ] || to=$root/root/.cache/go-build
		mkdir -p "$to"
		mount --bind "$(go env "${dir#*:}")" "$to"
	done
}

# reader installs what a reader has besides a Debian.
reader() {
	echo nameserver 10.0.2.3 >"$root/etc/resolv.conf"
	printf '127.0.0.1 localhost\n127.0.0.2 kafka nats\n' >"$root/etc/hosts"
	cp /etc/apt/sources.list.d/debian.sources "$root/etc/apt/sources.list.d/" 2>/dev/null && rm -f "$root/etc/apt/sources.list" || true
	inside 'apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends git make ca-certificates' >"$run/apt.log" 2>&1
	cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/ca-certificates.crt"
	step "apt-get install git make ca-certificates, in the empty root"
	inside 'DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends kcat jq python3-venv default-jdk-headless && python3 -m venv /root/venv' >"$run/apt.log" 2>&1
	cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/ca-certificates.crt"
	install "$work/bin/nats" "$work/bin/quickstart" "$root/usr/local/bin/"
	install "$work/bin/node" "$root/usr/local/bin/kubectl"
	step "clients: kcat, jq, nats, kubectl, Python, a JDK"
}

# services: Kafka as kafka:9092 and localhost:9092, NATS as nats:4222, and a bridge from a cluster with a shop to both, as the README's
# readers have them.
services() {
	start kafka run-kafka
	start nats nats-server -js -sd "$run/nats" -a 127.0.0.2 -p 4222
	: >"$run/ready"
	"$cluster" --data-dir "$run/cluster" >"$run/ready" 2>"$run/cluster.log" &
	eventually 180 grep -q '^ready ' "$run/ready"
	eventually 180 grep -q : "$run/kafka.log"
	nft add table ip services
	nft add chain ip services out '{ type nat hook output priority -100; }'
	nft add rule ip services out ip daddr 127.0.0.0/8 tcp dport 9092 dnat to "$(head -n 1 "$run/kafka.log")"
	cat >"$run/bridge.yaml" <<-YAML
		cluster: prod-eu-1
		resources: [pods, deployments.apps]
		sinks:
		  - {name: audit, kafka: {brokers: ["127.0.0.1:9092"], create: {partitions: 1, replicationFactor: 1}}}
		  - {name: live, nats: {url: "nats://127.0.0.2:4222"}}
		status: {listen: "127.0.0.2:8080"}
	YAML
	start bridge bridge run -c "$run/bridge.yaml"
	kubectl create namespace shop >/dev/null
	kubectl -n shop run web-0 --image=web >/dev/null
	kubectl run web-0 --image=web >/dev/null
	changes &
	step "a cluster, Kafka, NATS, and a bridge between them"
}

# changes: pods that change all the time, so that a client that only hears what is new has something to print.
changes() {
	local n=0
	while sleep 3; do kubectl label pods -n shop web-0 n=$((n++)) --overwrite >/dev/null && kubectl label pods web-0 n=$n --overwrite >/dev/null; done
}

page() {
	inside "quickstart $1"
	step "$1: every block that is not marked ran"
}

ip link set lo up
touch "$run/waiting"
eventually 20 ip link show tap0
mounts
services
reader
for each; do
	# The README's reader has no cluster; the others have one.
	rm -rf "$root/root/.kube"
	if [ "$each" != README.md ]; then
		mkdir "$root/root/.kube"
		kubectl config view --raw --flatten >"$root/root/.kube/config"
	fi
	page "$each"
done
echo "quickstart: every page passed in $SECONDS s"
