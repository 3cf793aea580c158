#!/usr/bin/env bash
# Shows where the bridge spends CPU time. Builds a bridge with a profiler, which the
# released program does not have, runs benchmarks with it, and prints the functions
# that use the most CPU time. Arguments are passed to bench.
set -euo pipefail
cd "$(dirname "$0")"
. ../scripts/go.sh
mkdir -p bin
here=$PWD
rm -rf "$here/var/profile"
printf '{"Replace":{"%s":"%s"}}' "$(cd .. && pwd)/cmd/bridge/profile_overlay.go" "$here/profile/profile.go.txt" >bin/overlay.json
(cd .. && go build -overlay "$here/bin/overlay.json" -o "$here/bin/bridge-profiled" ./cmd/bridge)
go build -o bin/bench .
bin/bench -bridge bin/bridge-profiled -dir var/profile -keep -only bridge "$@"
for f in var/profile/*/cpu.pprof; do
	echo "== $f: $(sed -n 's/^resources: //p' "$(dirname "$f")/bridge.yaml") to $(grep -o 'kafka: \|nats: ' "$(dirname "$f")/bridge.yaml")"
	go tool pprof -top -nodecount=30 bin/bridge-profiled "$f" 2>/dev/null
	go tool pprof -top -cum -nodecount=60 bin/bridge-profiled "$f" 2>/dev/null | grep -E 'cum%|kubebridge|franz-go|nats.go|pebble|http2|crypto|runtime.(gc|mallocgc|memmove)' | sed -n 1,40p
done
