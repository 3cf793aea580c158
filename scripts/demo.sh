#!/usr/bin/env bash
# Streams a cluster's changes to an embedded NATS server and shows them. It uses
# the cluster of the current kubeconfig if that answers, and changes nothing
# there; else it starts a real API server and changes some things itself.
# A released bridge in PATH is used instead of one that is built, unless BRIDGE names another one.
# DEMO_SECONDS=n ends it on its own and fails if nothing was seen.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/go.sh
k3s=/etc/rancher/k3s/k3s.yaml
[ -n "${KUBECONFIG-}" ] || [ -e ~/.kube/config ] || [ ! -r $k3s ] || export KUBECONFIG=$k3s
assets=$(scripts/released-cluster.sh || true)
released=$(command -v bridge || true) # Debian's iproute2 has another program of this name
if [ -z "${BRIDGE-}" ] && [[ $released && $("$released" version 2>/dev/null) =~ ^bridge\ (v[0-9.]+)\  ]]; then
	BRIDGE=$released
	say "Using $released, ${BASH_REMATCH[1]}. To build this checkout: make demo BRIDGE=bin/demo-bridge"
elif [ "${BRIDGE:=bin/demo-bridge}" = bin/demo-bridge ]; then
	# Without a kubeconfig an API server is compiled next: its modules are downloaded meanwhile.
	[ -n "${KUBECONFIG-}" ] || [ -e ~/.kube/config ] || [ "$assets" ] || go -C test/cluster list -deps . >/dev/null 2>&1 &
	scripts/build.sh "$BRIDGE" "$quick"
fi
mkdir -p var/demo

children=()
# start runs a command out of the terminal's reach: Ctrl-C is for this script.
start() {
	setsid "$@" &
	children+=($!)
}
# finish ends what was started, last first: the bridge before what it watches.
finish() {
	trap - EXIT
	trap '' HUP INT TERM
	local i
	for ((i = ${#children[@]} - 1; i >= 0; i--)); do
		kill "${children[i]}" 2>/dev/null || true
		wait "${children[i]}" || true
	done
}
trap finish EXIT
trap 'exit 0' INT
trap 'exit 143' HUP TERM

export BRIDGE
config=configs/demo.yaml note=
# own NAME: a configuration with a checkpoint and a stream apart from those of the built-in cluster.
own() {
	config=var/demo/$1.yaml
	sed "s#var/demo/#var/demo/$1/#" configs/demo.yaml >"$config"
}
if "$BRIDGE" validate --connect -c $config --reachable-only >var/demo/connect.log 2>&1; then
	say "Using the cluster of the current kubeconfig; nothing in it is changed."
	[ ! -d var/demo/own ] || note="(nothing follows until an object changes)"
	own own
	sed -i /widgets/d "$config"
else
	data=var/demo/cluster
	if [ "$assets" ]; then
		say "No cluster at hand: starting the API server in $assets."
		own released
		data=var/demo/released/cluster cluster=scripts/released-cluster.sh
	else
		say "No cluster at hand: starting a real API server (the first time it is built)."
		cluster=$(scripts/cluster.sh)
	fi
	[ ! -d $data ] || note="(the API server was restarted: comparing)"
	mkdir -p $data
	: >var/demo/cluster.ready
	start "$cluster" --data-dir $data >var/demo/cluster.ready 2>var/demo/cluster.log
	for _ in $(seq 240); do
		grep -q '^ready ' var/demo/cluster.ready && break
		kill -0 "${children[0]}" 2>/dev/null || { cat var/demo/cluster.log >&2; exit 1; }
		sleep 0.5
	done
	KUBECONFIG=$(sed -n 's/.*kubeconfig=//p' var/demo/cluster.ready)
	[ -n "$KUBECONFIG" ] || { say "the API server did not become ready: see var/demo/cluster.log"; exit 1; }
	export KUBECONFIG
	go -C test/e2e build "$quick" -o ../../bin/demo-changes ./cmd/demo-changes
	start bin/demo-changes -kubeconfig "$KUBECONFIG" 2>var/demo/changes.log
fi

cat <<TEXT

Each line below is an event that NATS has acknowledged.

  http://127.0.0.1:8080/                        the status page
  nats sub -s nats://127.0.0.1:4222 'k8s.>'     from another terminal: every event, as a CloudEvent
  Ctrl-C                                        ends it

Run it again: it continues where it stopped, and shows what changed in between.
$note
TEXT

if [ -n "${DEMO_SECONDS:-}" ]; then
	timeout --preserve-status "$DEMO_SECONDS" "$BRIDGE" run -c $config --follow | tee var/demo/events.log
	grep -qE 'ADDED|MODIFIED|DELETED|SYNCED' var/demo/events.log || { say "the demo showed no event"; exit 1; }
else
	start "$BRIDGE" run -c $config --follow
	wait "${children[-1]}"
fi
