#!/usr/bin/env bash
# The code blocks of the README and of the quick starts, as they are printed, in an empty Debian root: scripts/quickstart.sh [PAGE...].
#
# debootstrap makes the root; the checkout's last commit is cloned into it. The pages' commands install and build the rest, and
# the time of each is printed. What a reader of these pages already has is made here: kubectl, the nats CLI, kcat, a Kafka as
# kafka:9092, a NATS server as nats:4222, and a cluster. Comments in the pages say how each block is run (test/node/quickstart).
# The network namespace is this run's own, with slirp4netns to the package registries, so no port is taken.
#
# COLD=1: without this machine's Go modules and build cache, as on a reader's machine.
#
# Exit codes: 1 if something failed, 77 if it cannot run on this machine.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- README.md docs/get-started.md docs/quickstart-kind.md
cannot() { echo "quickstart cannot run here: $*" >&2; exit 77; }
[ "$(uname -s)" = Linux ] || cannot "it needs Linux"
[ "$(id -u)" = 0 ] || cannot "it needs root, to change the root directory"
command -v apt-get >/dev/null || cannot "it needs Debian"
unshare --net --mount --pid --fork true 2>/dev/null || cannot "it may not make namespaces (unshare)"
[ -c /dev/net/tun ] || cannot "it needs /dev/net/tun, for slirp4netns"
. scripts/go.sh
. test/node/lib.sh
missing=()
for each in debootstrap:debootstrap slirp4netns:slirp4netns nft:nftables ip:iproute2; do
	command -v "${each%:*}" >/dev/null || missing+=("${each#*:}")
done
[ ${#missing[@]} -eq 0 ] || apt_install "${missing[@]}"

work=$PWD/var/quickstart root=$PWD/var/quickstart/root
mkdir -p "$work/bin"
cluster=$(scripts/cluster.sh)
jars=$(scripts/kafka.sh)
go -C test/node build -buildvcs=false -ldflags '-s -w' -o "$work/bin/node" .
go -C test/node build -buildvcs=false -o "$work/bin/quickstart" ./quickstart
go -C test/kafka build -buildvcs=false -o "$work/bin/run-kafka" ./cmd/run-kafka
go build -buildvcs=false -o "$work/bin/nats-server" github.com/nats-io/nats-server/v2
go build -buildvcs=false -o "$work/bin/bridge" ./cmd/bridge
GOBIN=$work/bin go install github.com/nats-io/natscli/nats@v0.5.1
step "what the pages' readers have"

for page; do "$work/bin/quickstart" -list "$page" >/dev/null; done
suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
if [ ! -e "$work/$suite.tar" ]; then
	rm -rf "$root"
	debootstrap --variant=minbase "$suite" "$root" >"$work/debootstrap.log"
	tar -C "$root" -cf "$work/$suite.part" .
	mv "$work/$suite.part" "$work/$suite.tar"
fi
rm -rf "$root" "$work/run"
mkdir -p "$root" "$work/run"
tar -C "$root" -xf "$work/$suite.tar"
git clone -q . "$root/kubebridge"
step "an empty Debian $suite with the checkout"

# Background processes end with the namespaces, and slirp4netns with the network's.
finish() {
	local code=$?
	trap '' HUP INT TERM
	for each in ${inside:-} ${slirp:-}; do kill "$each" 2>/dev/null && wait "$each" || true; done
	exit $code
}
trap finish EXIT
trap 'exit 130' HUP INT TERM
export COLD=${COLD:-}
timeout -k 10 60m unshare --net --mount --pid --fork --mount-proc --kill-child test/node/quickstart.sh "$work" "$root" "$cluster" "$jars" "$@" &
inside=$!
eventually 20 test -e "$work/run/waiting"
slirp4netns --configure --mtu=65520 --netns-type=path "/proc/$(pgrep -P "$(pgrep -P $inside)")/ns/net" tap0 >"$work/slirp.log" 2>&1 &
slirp=$!
wait $inside
