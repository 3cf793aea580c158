#!/usr/bin/env bash
# Streams a cluster's changes to an embedded NATS server and shows them. It uses
# the cluster of the current kubeconfig if that answers, and changes nothing
# there; else it starts a real API server and changes some things itself.
# DEMO_SECONDS=n ends it on its own and fails if nothing was seen.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/go.sh
scripts/build.sh
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

config=configs/demo.yaml
if bin/bridge validate --connect -c $config --reachable-only >var/demo/connect.log 2>&1; then
	say "Using the cluster of the current kubeconfig; nothing in it is changed."
	config=var/demo/own.yaml # with a checkpoint and a stream apart from the built-in cluster's
	sed 's#var/demo/#var/demo/own/#' configs/demo.yaml >$config
else
	say "No cluster at hand: starting a real API server (the first time it is built, in about four minutes)."
	cluster=$(scripts/cluster.sh)
	: >var/demo/cluster.ready
	start "$cluster" --data-dir var/demo/cluster >var/demo/cluster.ready 2>var/demo/cluster.log
	for _ in $(seq 240); do
		grep -q '^ready ' var/demo/cluster.ready && break
		kill -0 "${children[0]}" 2>/dev/null || { cat var/demo/cluster.log >&2; exit 1; }
		sleep 0.5
	done
	KUBECONFIG=$(sed -n 's/.*kubeconfig=//p' var/demo/cluster.ready)
	[ -n "$KUBECONFIG" ] || { say "the API server did not become ready: see var/demo/cluster.log"; exit 1; }
	export KUBECONFIG
	(cd test/e2e && go build -o ../../bin/demo-changes ./cmd/demo-changes)
	start bin/demo-changes -kubeconfig "$KUBECONFIG" 2>var/demo/changes.log
fi

cat <<'TEXT'

Each line below is an event that NATS has acknowledged. From another terminal:

  nats sub -s nats://127.0.0.1:4222 'k8s.>'     every event, as a CloudEvent
  curl -s http://127.0.0.1:8080/readyz          every collection's state

Ctrl-C ends it. Run it again: it continues where it stopped, and shows what changed in between.

TEXT

if [ -n "${DEMO_SECONDS:-}" ]; then
	timeout --preserve-status "$DEMO_SECONDS" bin/bridge run -c $config --follow | tee var/demo/events.log
	grep -qE 'ADDED|MODIFIED|DELETED|SYNCED' var/demo/events.log || { say "the demo showed no event"; exit 1; }
else
	start bin/bridge run -c $config --follow
	wait "${children[-1]}"
fi
