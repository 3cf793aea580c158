#!/usr/bin/env bash
# docker-compose.yaml with Debian's Docker engine: scripts/compose.sh. The bridge, Kafka and NATS start, changes reach both buses,
# and reach them once after a stop and a start. The two web pages do not run: their images cannot be made here.
#
# No image is pulled: the bridge's is built from the Dockerfile as make test-node does it; Kafka's and NATS' names are given to
# stand-ins with Kafka's jars and the NATS server's module (test/compose/images.sh). Debian's package of the engine is unpacked
# and not installed, since it would start a daemon. Everything runs in network, mount and process namespaces that end with this
# script; it removes the containers' cgroups.
#
# Exit codes: 1 if something failed, 77 if it cannot run on this machine.
set -euo pipefail
cd "$(dirname "$0")/.."
cannot() { echo "test/compose cannot run here: $*" >&2; exit 77; }
[ "$(uname -s)" = Linux ] || cannot "it needs Linux"
[ "$(id -u)" = 0 ] || cannot "it needs root, to start containers"
command -v apt-get >/dev/null || cannot "it needs Debian's docker.io"
unshare --net --mount --pid --fork true 2>/dev/null || cannot "it may not make namespaces (unshare)"
. scripts/go.sh
. test/node/lib.sh
missing=()
for each in buildah:buildah runc:runc containerd:containerd nft:nftables iptables:iptables ip:iproute2 debootstrap:debootstrap kcat:kcat; do
	command -v "${each%:*}" >/dev/null || missing+=("${each#*:}")
done
ldconfig -p | grep -q libdevmapper || missing+=(libdevmapper1.02.1)
[ ${#missing[@]} -eq 0 ] || apt_install "${missing[@]}"

work=$PWD/var/compose
mkdir -p "$work/bin" "$work/docker/cli-plugins" var/node/bin
cluster=$(scripts/cluster.sh)
jars=$(scripts/kafka.sh)
go -C test/node build -buildvcs=false -ldflags '-s -w' -o "$work/bin/kubectl" .
CGO_ENABLED=0 go -C test/node build -trimpath -buildvcs=false -ldflags '-s -w' -o var/node/bin/pause ./pause
CGO_ENABLED=0 go build -trimpath -buildvcs=false -o "$work/bin/nats-server" github.com/nats-io/nats-server/v2
version=$(go -C test/compose/plugin list -m -f '{{.Version}}' github.com/docker/compose/v2)
go -C test/compose/plugin build -buildvcs=false -ldflags "-s -w -X github.com/docker/compose/v2/internal.Version=$version" -o "$work/docker/cli-plugins/docker-compose" github.com/docker/compose/v2/cmd
GOBIN=$work/bin go install github.com/nats-io/natscli/nats@v0.5.1
[ -x "$work/engine/usr/sbin/dockerd" ] || unpack "$work/debs" "$work/engine" docker.io
step "programs: the API server, kubectl, docker compose, nats-server, nats, Debian's Docker engine"
go mod download
unshare --mount --pid --fork --mount-proc --kill-child test/node/images.sh "$PWD/var/node/images"
test/compose/images.sh "$work" "$jars"

cgroup=kubebridge-compose-$$
cgroups() { find /sys/fs/cgroup -maxdepth 2 -name "$cgroup"; }
finish() {
	local code=$? left=50
	trap '' HUP INT TERM
	if [ -n "${engine:-}" ] && kill "$engine" 2>/dev/null; then wait "$engine" || true; fi
	while [ -n "$(cgroups)" ] && [ $((left--)) -gt 0 ]; do
		cgroups | while read -r dir; do find "$dir" -depth -type d -exec rmdir {} + 2>/dev/null || true; done
		sleep 0.1 # processes that were killed leave their cgroups a little later
	done
	[ -z "$(cgroups)" ] || { say "cgroups are left:" $(cgroups); code=1; }
	exit $code
}
trap finish EXIT
trap 'exit 130' HUP INT TERM
rm -rf "$work/run"
mkdir -p "$work/run"
timeout -k 10 30m unshare --net --mount --pid --fork --mount-proc --kill-child test/compose/engine.sh "$work" "$cgroup" "$cluster" &
engine=$!
wait $engine
