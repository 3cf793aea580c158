#!/usr/bin/env bash
# Streams a cluster's changes to an embedded NATS server and shows them. It uses
# the cluster of the current kubeconfig if that answers, and changes nothing
# there; else it starts a real API server and changes some things itself.
# DEMO_SECONDS=n ends it by itself and fails if nothing was seen.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/go.sh
scripts/build.sh
mkdir -p var/demo

children=()
finish() {
	trap - EXIT INT TERM
	for pid in "${children[@]}"; do
		kill "$pid" 2>/dev/null || true
	done
	for pid in "${children[@]}"; do
		wait "$pid" 2>/dev/null || true
	done
}
trap finish EXIT

if bin/bridge validate --connect -c configs/demo.yaml --reachable-only >var/demo/connect.log 2>&1; then
	say "Using the cluster of the current kubeconfig; nothing in it is changed."
else
	say "No cluster at hand: starting a real API server (the first time it is built, in about four minutes)."
	cluster=$(scripts/cluster.sh)
	: >var/demo/cluster.ready
	"$cluster" --data-dir var/demo/cluster >var/demo/cluster.ready 2>var/demo/cluster.log &
	children+=($!)
	for _ in $(seq 240); do
		grep -q '^ready ' var/demo/cluster.ready && break
		kill -0 "${children[0]}" 2>/dev/null || { cat var/demo/cluster.log >&2; exit 1; }
		sleep 0.5
	done
	KUBECONFIG=$(sed -n 's/.*kubeconfig=//p' var/demo/cluster.ready)
	[ -n "$KUBECONFIG" ] || { say "the API server did not become ready: see var/demo/cluster.log"; exit 1; }
	export KUBECONFIG
	(cd test/e2e && go build -o ../../bin/demo-changes ./cmd/demo-changes)
	bin/demo-changes -kubeconfig "$KUBECONFIG" 2>var/demo/changes.log &
	children+=($!)
fi

cat <<'TEXT'

Each line below is an event that NATS has acknowledged. From another terminal:

  nats sub -s nats://127.0.0.1:4222 'k8s.>'     every event, as a CloudEvent
  curl -s http://127.0.0.1:8080/readyz          every collection's state

Ctrl-C ends it. Run it again: it goes on where it stopped, and tells what happened in between.

TEXT

if [ -n "${DEMO_SECONDS:-}" ]; then
	timeout --signal=TERM "$DEMO_SECONDS" bin/bridge run -c configs/demo.yaml --follow | tee var/demo/events.log || true
	grep -qE 'ADDED|MODIFIED|DELETED|SYNCED' var/demo/events.log || { say "the demo showed no event"; exit 1; }
else
	trap : INT # the bridge gets it too, and drains
	bin/bridge run -c configs/demo.yaml --follow || exit $?
fi
