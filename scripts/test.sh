#!/usr/bin/env bash
# Every test of every module. The API server is built and Kafka is fetched first:
# cold, that takes longer than go test would wait. Where the program runs as a process,
# go test does not see that it has changed: -count=1.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/go.sh
took=()
failed=()
not_run=()
# suite NAME COMMAND...: runs a suite, and notes how long it takes. The suites after
# one that fails still run, so that one run shows everything that is wrong.
suite() {
	local name=$1 began=$SECONDS
	shift
	say "== $name"
	"$@" || failed+=("$name")
	took+=("$(printf '%5d s  %s' $((SECONDS - began)) "$name")")
}
# beside FUNCTION: begins the suites of a function, one after the other. Those that follow run beside them, because both mostly wait. together
# waits for them, and shows their output.
beside() {
	beside_dir=$(mktemp -d)
	say "== others, which are shown later: $(declare -f "$1" | sed -n 's/^ *suite "\([^:"]*\).*/\1/p' | paste -sd ' ')"
	(
		trap - EXIT
		took=() failed=()
		"$1"
		printf '%s\n' "${took[@]}" >"$beside_dir/took"
		[ ${#failed[@]} -eq 0 ] || printf '%s\n' "${failed[@]}" >"$beside_dir/failed"
	) >"$beside_dir/log" 2>&1 &
	beside_pid=$!
}
together() {
	local code=0 lines
	wait "$beside_pid" || code=$?
	beside_pid=
	cat "$beside_dir/log"
	touch "$beside_dir/took" "$beside_dir/failed"
	mapfile -t lines <"$beside_dir/took"
	took+=("${lines[@]/%/ (beside others)}")
	mapfile -t lines <"$beside_dir/failed"
	failed+=("${lines[@]}")
	[ $code = 0 ] || failed+=("the suites beside others")
	rm -r "$beside_dir"
}
# within DIRECTORY COMMAND...: runs a command there.
within() (
	cd "$1" && exec "${@:2}"
)
# or_not_run NAME COMMAND...: a command whose exit code 77 says that it cannot run on this machine, and has printed why.
or_not_run() {
	local code=0
	"${@:2}" || code=$?
	[ $code = 77 ] || return $code
	not_run+=("$1")
}
# summary lists the suites that have ended, the longest first, and those that say nothing about this commit.
summary() {
	[ ${#took[@]} -eq 0 ] || { say "== how long each suite took"; printf '%s\n' "${took[@]}" | sort -rn >&2; }
	[ ${#not_run[@]} -eq 0 ] || printf '== NOT RUN, as it cannot run on this machine: %s\n' "${not_run[@]}" >&2
	[ ${#failed[@]} -eq 0 ] || { say "== FAILED"; printf '  %s\n' "${failed[@]}" >&2; }
}
trap 'summary; [ -z "${beside_pid-}" ] || kill "$beside_pid"' EXIT
cluster=$(scripts/cluster.sh)
say "API server: $cluster"
kafka=$(scripts/kafka.sh)
say "Kafka: $kafka"
suite "the main module" go test -race ./...
suite "the model of the pipeline: 1,000 random runs" go test -count=1 ./internal/pipeline/model -model.runs=1000
suite "the decisions of a collection, explored" go test -count=1 ./internal/reconcile -explore.writes=4 -explore.disturbances=3 -explore.states=1000 -explore.walks=1000 -explore.pairstates=200
suite "changes to the decisions of a collection, a tenth of them" go test -count=1 -run TestMutants ./internal/reconcile -explore.mutants="$(date +%j)" -explore.writes=4 -explore.disturbances=3 -explore.walks=60
suite "test/cluster: the API server of the tests" within test/cluster/clustertest go test -race -p 1 ./...
suite "test/library: pkg/source and pkg/event as a library" within test/library go test -race -p 1 ./...
suite "test/cloudevents: messages of both buses, read with the CloudEvents SDK" within test/cloudevents go test -race ./...
suite "docs: the documentation site, its links and anchors" scripts/docs.sh
command -v chromium >/dev/null || command -v google-chrome >/dev/null || apt_install chromium fonts-dejavu-core
suite "test/browser: the status page in Chromium" within test/browser go test ./...
suite "test/compose: docker-compose.yaml and the Dockerfile" within test/compose go test -timeout 25m ./...
suite "test/node: the Dockerfile's image in pods of the chart, installed, killed and uninstalled" or_not_run test/node scripts/node.sh short
say "clients for the examples: $(scripts/clients.sh)"
mostly_waiting() {
	suite "test/kafka: the Kafka sink, and the program, against Apache Kafka" within test/kafka go test -race -count=1 -p 1 -timeout 60m ./...
	suite "test/chart: the Helm chart, by Helm and on the API server" within test/chart go test -count=1 -timeout 15m ./...
	suite "test/serve: what controller-runtime, informers, Prometheus and kubectl read from bridge serve, the API server's storage tests, and many watches" within test/serve go test -count=1 -p 1 -timeout 20m -skip '^Test(K9s|Kopf)' ./...
	suite "test/alerts: alerts and dashboard by Prometheus' engine" within test/alerts go test -count=1 ./...
}
beside mostly_waiting
suite "test/e2e: the program against real servers, and two short seeds of faults for every sink and store" within test/e2e go test -count=1 -p 1 -timeout 25m ./...
together
suite "bench: what the benchmark's figures rest on" within bench go test -race ./...
[ ${#failed[@]} -eq 0 ]
