#!/usr/bin/env bash
# Measures all figures of docs/performance.md within 40 minutes, and prints them as
# Markdown. Afterwards, bench/var/all.txt has the figures for benchstat, and
# bench/var/all.md has the tables. The arguments are passed to every run of bench: use
# -scale 0.02 for a short test of this script.
set -euo pipefail
cd "$(dirname "$0")"
. ../scripts/go.sh
../scripts/build.sh
cluster=$(../scripts/cluster.sh)
(unset KUBEBRIDGE_KAFKA && ../scripts/kafka.sh) >/dev/null
mkdir -p bin var
go build -o bin/bench .
go -C ../test/kafka build -o "$PWD/bin/kafka" ./cmd/run-kafka
[ -x bin/otel ] || peers/otel.sh build
rm -f var/all.txt var/all.md
kafka=
end() {
	if [ -n "$kafka" ]; then
		kill "$kafka" && wait "$kafka" || true
	fi
}
trap end EXIT
failed=0
began=$SECONDS

# run TITLE SECONDS FLAGS runs bench. If it fails, the script continues, and fails at the end.
run() {
	local title=$1 limit=$2
	shift 2
	say "== $title ($((SECONDS - began)) s)"
	printf '\n## %s\n' "$title" >>var/all.md
	timeout "$limit" bin/bench -out var/all.txt -cluster "$cluster" "$@" >>var/all.md || failed=1
}

unset KUBEBRIDGE_KAFKA
taken="Commit $(git rev-parse --short HEAD 2>/dev/null || echo unknown), $(date -u +%F), $(go version | cut -d' ' -f3), $(nproc) CPUs ($(sed -n 's/^model name\t: //p' /proc/cpuinfo | head -n 1)), load $(cut -d' ' -f1-3 /proc/loadavg)"
run "Throughput and catch-up, three runs" 840 -bench throughput,catchup -count 3 -peer "peers/otel.sh run" "$@"
run "What options cost" 200 -bench options "$@"
run "States" 540 -bench latency,objects,inventory,collections,idle "$@"
run "A real API server" 150 -bench real "$@"
exec 3< <(exec bin/kafka 2>var/kafka.log)
kafka=$!
if read -r -t 120 address <&3; then
	run "A real Kafka" 300 -kafka "$address" -bench throughput,latency -rates 10,2000 -lingers 0s,5ms,20ms "$@"
else
	cat var/kafka.log >&2
	failed=1
fi
run "A bus that is down" 390 -bench outage -period 5m "$@"
run "The disk buffer" 420 -bench buffer -limit 180s "$@"
{
	printf '\n## Parts\n\n```\n'
	timeout 150 ./micro.sh -benchtime 0.5s | grep -E '^(Benchmark|pkg)' || failed=1
	printf '```\n'
} >>var/all.md
{
	printf '%s; at the end %s, after %d s\n\n## Targets\n\n| target | wanted | measured | met |\n|---|---:|---:|---|\n' "$taken" "$(cut -d' ' -f1-3 /proc/loadavg)" $((SECONDS - began))
	awk '/^\| target /{t=1; getline; next} t && /^\|/{print; next} {t=0}' var/all.md
	awk '/^\| target /{t=1} t && /^\|/{next} {t=0; print}' var/all.md
} | cat -s >var/all.md.new
mv var/all.md.new var/all.md
cat var/all.md
exit $failed
