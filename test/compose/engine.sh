#!/usr/bin/env bash
# engine.sh DIRECTORY CGROUP CLUSTER: docker-compose.yaml, up, stopped, started and down. It is run by scripts/compose.sh, in namespaces of its
# own.
set -euo pipefail
work=$1 cgroup=$2 cluster=$3
cd "$(dirname "$0")/../.."
run=$work/run
. test/node/lib.sh
export DOCKER_HOST=unix://$run/docker.sock DOCKER_CONFIG=$work/docker PATH=$work/bin:$work/engine/usr/sbin:$work/engine/usr/bin:$PATH
services=(bridge kafka nats)
kubectl() { command kubectl --kubeconfig "$run/cluster/kubeconfig" "$@"; }

explain() {
	local code=$?
	[ $code != 0 ] || return 0
	docker compose ps -a
	docker compose logs --tail 20
	tail -n 10 "$run"/*.log
} >&2
trap explain EXIT

start_engine() {
	mount --make-rshared /
	sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.route_localnet=1
	dockerd --host "$DOCKER_HOST" --data-root "$run/engine" --exec-root "$run/exec" --pidfile "$run/docker.pid" --cgroup-parent "$cgroup" \
		--oom-score-adjust 0 >"$run/dockerd.log" 2>&1 &
	eventually 60 docker version
	local tag
	docker load -qi var/node/images/kubebridge.tar >/dev/null
	docker tag localhost/kubebridge:built kubebridge:compose
	image kafka --change 'USER 1000' --change 'CMD ["/opt/kafka/bin/run"]' --change 'ENV CLUSTER_ID=5L6g3nShT-eMCtK--X86sw' "$work/kafka.tar"
	image nats --change 'ENTRYPOINT ["nats-server"]' "$work/nats.tar"
	step "engine: $(docker version -f '{{.Server.Version}}'), compose $(docker compose version --short)"
}

# image SERVICE FLAGS... ARCHIVE: imports an archive as the image that the compose file names.
image() { docker import "${@:2}" "$(docker compose config --images "$1")" >/dev/null; }

# start_cluster: an API server, which containers reach as host.docker.internal.
start_cluster() {
	: >"$run/ready"
	"$cluster" --data-dir "$run/cluster" >"$run/ready" 2>"$run/cluster.log" &
	eventually 180 grep -q '^ready ' "$run/ready"
	local server
	server=$(sed -n 's#^ready server=https://\([^ ]*\) .*#\1#p' "$run/ready")
	nft add table ip cluster
	nft add chain ip cluster in '{ type nat hook prerouting priority -110; }'
	nft add rule ip cluster in iifname != lo tcp dport "${server#*:}" dnat to "$server"
	# What the compose file says about a cluster on the host.
	kubectl config view --minify --flatten --raw >"$run/kubeconfig.flat"
	chmod 644 "$run/kubeconfig.flat" # for the user of the container
	export KUBECONFIG=$run/kubeconfig.flat
	command kubectl config set-cluster "$(command kubectl config view -o 'jsonpath={.clusters[0].name}')" \
		--server="https://host.docker.internal:${server#*:}" --tls-server-name=localhost >/dev/null
	step "API server"
}

# on_buses NAME: how often a ConfigMap was added, on Kafka and on NATS.
on_buses() {
	local kafka nats
	kafka=$(kcat -C -q -e -b localhost:9094 -t k8s.compose.core.configmaps -X isolation.level=read_committed -f '%s\n' 2>/dev/null | grep 'resource\.added' | grep -c "\"name\":\"$1\"" || true)
	nats=$(nats --server nats://127.0.0.1:4222 stream subjects K8S_compose "k8s.compose.core.configmaps.default.$1" --json 2>/dev/null | sed -n 's/.*"k8s[^:]*: *\([0-9]*\).*/\1/p')
	echo "$kafka ${nats:-0}"
}
once() { [ "$(on_buses "$1")" = "1 1" ]; }
ready() { (exec 3<>/dev/tcp/127.0.0.1/8080 && printf 'GET /readyz HTTP/1.0\r\nHost: localhost\r\n\r\n' >&3 && grep -q ' 200 ' <&3) 2>/dev/null; }

change() {
	kubectl create configmap "$1" >/dev/null
	eventually 60 once "$1" || { echo "ConfigMap $1 on Kafka and NATS: $(on_buses "$1")" >&2; return 1; }
}

ip link set lo up
start_cluster
start_engine
docker compose up -d --no-build --pull never --wait kafka nats
docker compose up -d --no-build --pull never "${services[@]}"
eventually 120 ready
step "up: $(docker compose ps --format '{{.Service}} {{.State}}' | paste -sd,)"
change first
step "a change, once on Kafka and once on NATS"
docker compose stop
kubectl create configmap meanwhile >/dev/null
step "stopped, and a change meanwhile"
docker compose start "${services[@]}"
eventually 120 ready
eventually 60 once meanwhile || { echo "ConfigMap meanwhile on Kafka and NATS: $(on_buses meanwhile)" >&2; exit 1; }
change after
expect "first, on Kafka and NATS" "1 1" "$(on_buses first)"
step "started: the change meanwhile and one after it, each once on both"
docker compose down
docker compose up -d --no-build --pull never "${services[@]}"
eventually 120 ready
change again
expect "meanwhile, on Kafka and NATS" "1 1" "$(on_buses meanwhile)"
step "down and up: the volumes stayed, each change is there once"
docker compose down -v
expect "what is left" "" "$(docker ps -aq)$(docker volume ls -q)"
step "down -v: no container and no volume is left"
echo "test/compose: every step passed in $SECONDS s"
