#!/usr/bin/env bash
# Takes all figures of docs/performance.md, within 40 minutes, and prints them as
# Markdown; bench/var/all.txt has them for benchstat, bench/var/all.md the tables. Arguments
# go to every run of bench (-scale 0.02 to see that it works).
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

# run TITLE SECONDS FLAGS: what fails does not keep the rest from being run.
run() {
	local title=$1 limit=$2
	shift 2
	say "== $title ($((SECONDS - began)) s)"
	printf '\n## %s\n' "$title" >>var/all.md
	timeout "$limit" bin/bench -out var/all.txt -cluster "$cluster" "$@" >>var/all.md || failed=1
}

{
	echo "Commit $(git rev-parse --short HEAD 2>/dev/null || echo unknown), $(date -u +%F), $(go version | cut -d' ' -f3), $(nproc) CPUs ($(sed -n 's/^model name\t: //p' /proc/cpuinfo | head -n 1)), load $(cut -d' ' -f1-3 /proc/loadavg)"
} >>var/all.md
unset KUBEBRIDGE_KAFKA
run "Throughput, three runs" 660 -bench throughput -count 3 -peer "peers/otel.sh run" "$@"
run "States" 700 -bench latency,catchup,objects,inventory,collections,idle "$@"
run "A real API server" 200 -bench real "$@"
if exec 3< <(exec bin/kafka 2>var/kafka.log); then
	kafka=$!
	read -r -t 120 address <&3 || { cat var/kafka.log >&2; exit 1; }
	run "A real Kafka" 420 -kafka "$address" -bench throughput,latency -rates 10,2000 -lingers 0s,5ms,20ms "$@"
fi
run "A bus that is down" 420 -bench outage -period 5m "$@"
{
	printf '\n## Parts\n\n```\n'
	timeout 240 ./micro.sh -benchtime 0.5s | grep -E '^(Benchmark|pkg)' || failed=1
	printf '```\n\n## Load at the end\n\n%s, after %d s\n' "$(cut -d' ' -f1-3 /proc/loadavg)" $((SECONDS - began))
} >>var/all.md
cat var/all.md
exit $failed
