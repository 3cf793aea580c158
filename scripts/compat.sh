#!/usr/bin/env bash
# Runs the core of the tests on other versions of the API server, of Apache Kafka and of
# the NATS server, and prints a table for docs/compatibility.md. Hours at first: each API
# server is built, once, which takes minutes to an hour. The variables KUBERNETES, KAFKA,
# NATS and UPGRADE are lists of versions; an empty one leaves that part out.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/go.sh
kubernetes=${KUBERNETES-v1.31.14 v1.33.13 v1.34.4 v1.35.4 v1.36.3}
upgrade=${UPGRADE-v1.34.4,v1.37.2}
kafka=${KAFKA-3.9.2 4.4.0}
nats=${NATS-v2.12.15 v2.14.9 v2.15.2}
out=$PWD/var/compat
mkdir -p "$out"
table=$out/table.md
printf '%s\n' "| what | version | tests | result |" "|---|---|---|---|" >"$table"
failed=0

# run WHAT VERSION TESTS COMMAND...: runs tests with a log of their own, and adds a row.
run() {
	local what=$1 version=$2 tests=$3 result=passed
	local log="$out/$what-$version-$(tr -c 'a-zA-Z0-9\n' - <<<"$tests").log"
	shift 3
	say "== $what $version: $tests"
	"$@" >"$log" 2>&1 || { result=FAILED; failed=1; say "failed, see $log"; }
	echo "| $what | $version | $tests | $result |" >>"$table"
}

# within DIRECTORY COMMAND...: runs a command there.
within() (
	cd "$1" && "${@:2}"
)

gone='TestGonePublishesTheExactDifference|TestFormsOfGoneFromEtcd'
stream='TestEveryChangeArrivesInOrder|TestChangesWhileDownArrive|TestAPIServerRestarts|TestPatternsFollowTheCluster'
for version in $kubernetes; do
	export KUBEBRIDGE_KUBERNETES=$version
	run Kubernetes "$version" "build" scripts/cluster.sh
	grep -q "$version | build | passed" "$table" || continue
	run Kubernetes "$version" "list, watch, WatchList on and off, discovery" within test/e2e go test -count=1 -timeout 30m ./source
	run Kubernetes "$version" "Lease" within test/e2e go test -count=1 -timeout 30m ./leader
	run Kubernetes "$version" "410, order, restarts" within test/e2e go test -count=1 -timeout 30m -run "^($gone|$stream)$" .
done
unset KUBEBRIDGE_KUBERNETES
if [ -n "$upgrade" ]; then
	run Kubernetes "$upgrade" "upgrade under load" within test/e2e go test -count=1 -timeout 2h -v -run '^TestUpgrade$' . -upgrade.releases="$upgrade"
fi

for version in $kafka; do
	export KUBEBRIDGE_KAFKA_VERSION=$version
	run Kafka "$version" "sink, exactly once, faults of brokers" within test/kafka go test -count=1 -timeout 60m .
	run Kafka "$version" "checkpoint store" within test/kafka go test -count=1 -timeout 30m ./checkpoint
	run Kafka "$version" "the program killed; the example in Java" within test/kafka go test -count=1 -timeout 30m -run '^(TestKilled|TestJavaExample)$' ./program
done
unset KUBEBRIDGE_KAFKA_VERSION

for version in $nats; do
	cp go.mod "$out/nats.mod"
	cp go.sum "$out/nats.sum"
	go get -modfile="$out/nats.mod" "github.com/nats-io/nats-server/v2@$version"
	skip=
	[[ $version != v2.12.* ]] || skip='FastBatch' # what servers take from 2.14 on
	run NATS "$version" "sink, store, reader" go test -modfile="$out/nats.mod" -count=1 -timeout 60m -skip="$skip" ./pkg/sink/nats
done

say "$(date -u +%F), commit $(git rev-parse --short HEAD)$(git diff --quiet HEAD || echo ', changed')"
cat "$table"
exit $failed
