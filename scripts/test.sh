#!/usr/bin/env bash
# The tests that guard each promise, or all. See "Where tests are" in CONTRIBUTING.md.
#
#   scripts/test.sh          the main module, and the first test of each row of docs/promises.md: make test
#   scripts/test.sh beyond   everything else: the rest of the suites, the race detector, more of what is random
#   scripts/test.sh all      both, and writes test/results/suites.txt: make test-all
#
# The API server is built, and Kafka and clients are fetched first: cold, that takes longer than go test would wait. Where the program runs as a process, go
# test does not see that it has changed: -count=1.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/go.sh
case ${1:-promises} in
promises) parts=(promises) ;;
beyond) parts=(beyond) ;;
all) parts=(promises beyond record) ;;
*) sed -n '2,/^set/p' "$0" | sed '$d' >&2; exit 2 ;;
esac
commit=$(scripts/results.sh begin)
took=()
failed=()
not_run=()
# suite NAME COMMAND...: runs a suite, and notes how long it takes. The suites after one that fails still run, so that one run shows everything
# that is wrong.
suite() {
	local name=$1 began=$SECONDS
	shift
	[[ " $* " != *" -race "* ]] || local -x CGO_ENABLED=1
	say "== $name"
	"$@" || failed+=("$name")
	took+=("$(printf '%5d s  %s' $((SECONDS - began)) "$name")")
}
# beside FUNCTION: begins the suites of a function, one after the other. Those that follow run beside them, because both mostly wait. together
# waits for them, and shows their output.
beside() {
	beside_dir=$(mktemp -d)
	say "== others, which are shown later"
	(
		trap - EXIT
		took=() failed=()
		"$1"
		[ ${#took[@]} -eq 0 ] || printf '%s\n' "${took[@]}" >"$beside_dir/took"
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
	took+=("${lines[@]}")
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
# guards DIRECTORY: "PACKAGE TEST" of each row of docs/promises.md whose first test is in a module.
guards() {
	sed -n 's/^| .* | `\('"${1//\//\\/}"'[^` ]*\) \([^`]*\)`[^|]*|$/\1 \2/p' docs/promises.md | sort -u
}
# pattern DIRECTORY: the expression for go test that matches these tests.
pattern() {
	guards "$1" | cut -d ' ' -f 2 | sort -u | sed 's|\([^/]*\)|^\1$|' | paste -sd '|'
}
# promised DIRECTORY FLAG...: runs these tests.
promised() {
	suite "$1, the tests of promises" within "$1" go test -count=1 "${@:2}" -run "$(pattern "$1")" ./...
}
# rest DIRECTORY WHAT FLAG...: runs the tests of a module that promised does not.
rest() {
	suite "$1, the rest: $2" within "$1" go test -count=1 "${@:3}" -skip "$(pattern "$1")" ./...
}
# summary lists the suites that have ended, the longest first, and those that say nothing about this commit.
summary() {
	[ ${#took[@]} -eq 0 ] || { say "== how long each suite took"; printf '%s\n' "${took[@]}" | sort -rn >&2; }
	[ ${#not_run[@]} -eq 0 ] || printf '== NOT RUN, as it cannot run on this machine: %s\n' "${not_run[@]}" >&2
	[ ${#failed[@]} -eq 0 ] || { say "== FAILED"; printf '  %s\n' "${failed[@]}" >&2; }
}
# record writes how long the suites took, and says which took half as long again as in the committed file.
record() {
	local was=test/results/suites.txt slower
	slower=$({ git show "HEAD:$was" 2>/dev/null || true; } | awk 'NR==FNR { if ($2 == "s") { t = $1; sub(/^ *[0-9]+ s  /, ""); was[$0] = t } next }
		{ t = $1; line = $0; sub(/^ *[0-9]+ s  /, "") } ($0 in was) && t > 1.5 * was[$0] && t > was[$0] + 10 { print line " (" was[$0] " s)" }' - <(printf '%s\n' "${took[@]}"))
	[ -z "$slower" ] || say "== SLOWER BY HALF than in $was:"$'\n'"$slower"
	printf '%s\n' "${took[@]}" | sort -rn | scripts/results.sh record suites "$commit" "${#failed[@]}"
}

# promises is make test: go test compares with what it has cached, so the main module's tests that have passed are not run again.
promises() {
	suite "the main module" go test -p 4 ./...
	suite "changes to the decisions of a collection, a tenth of them" go test -count=1 -run TestMutants ./internal/reconcile -explore.mutants=0 -explore.writes=4 -explore.disturbances=3 -explore.walks=60
	others() {
		local dir
		for dir in $(guards test/ | cut -d ' ' -f 1 | cut -d / -f 1,2 | sort -u); do
			[ "$dir" = test/e2e ] || promised "$dir" -timeout 20m
		done
	}
	beside others
	promised test/e2e -timeout 20m
	together
}

beyond() {
	command -v cc >/dev/null || apt_install gcc libc6-dev # for the race detector
	suite "the main module with the race detector" go test -race -timeout 20m ./...
	computing() {
		suite "the join of changes and audit records: 3,000 random runs" go test -race -count=1 -timeout 20m ./internal/audit/join -join.runs=3000
		suite "the model of the pipeline: 1,000 random runs" go test -count=1 -timeout 40m ./internal/pipeline/model -model.runs=1000
		suite "the decisions of a collection, explored" go test -count=1 -timeout 20m ./internal/reconcile -explore.writes=4 -explore.disturbances=3 -explore.states=1000 -explore.walks=1000 -explore.pairstates=200
		suite "changes to the decisions of a collection, all" go test -count=1 -timeout 30m -run TestMutants ./internal/reconcile -explore.mutants=all -explore.writes=4 -explore.disturbances=3 -explore.walks=60
	}
	beside computing # on one core
	suite "test/cluster: the API server of the tests" within test/cluster/clustertest go test -race -p 1 ./...
	suite "test/library: pkg/source and pkg/event as a library" within test/library go test -race -p 1 ./...
	suite "test/cloudevents: messages of both buses, read with the CloudEvents SDK" within test/cloudevents go test -race ./...
	suite "docs: the documentation site, its links and anchors" scripts/docs.sh
	command -v chromium >/dev/null || command -v google-chrome >/dev/null || apt_install chromium fonts-dejavu-core
	suite "test/browser: the status page in Chromium" within test/browser go test ./...
	suite "test/compose: docker-compose.yaml and the Dockerfile" within test/compose go test -timeout 25m ./...
	suite "test/node: the Dockerfile's image in pods of the chart, installed, killed and uninstalled" or_not_run test/node scripts/node.sh short
	together
	mostly_waiting() {
		suite "test/kafka: the Kafka sink, and the program, against Apache Kafka" within test/kafka go test -race -count=1 -p 1 -timeout 60m ./...
		rest test/chart "the Helm chart, by Helm and on the API server" -parallel 4 -timeout 15m
		suite "test/serve: what controller-runtime, informers, Prometheus and kubectl read from bridge serve, the API server's storage tests, and many watches" within test/serve go test -count=1 -p 1 -parallel 4 -timeout 20m -skip '^Test(K9s|Kopf)' ./...
		suite "test/alerts: alerts and dashboard by Prometheus' engine" within test/alerts go test -count=1 ./...
	}
	beside mostly_waiting
	rest test/e2e "the program against real servers, and seeds of faults for every sink and store" -p 1 -timeout 25m
	together
	suite "bench: what the benchmark's figures rest on" within bench go test -race ./...
}

trap 'summary; [ -z "${beside_pid-}" ] || kill "$beside_pid"' EXIT
say "API server: $(scripts/cluster.sh)"
say "Kafka: $(scripts/kafka.sh)"
say "clients for the examples: $(scripts/clients.sh)"
for part in "${parts[@]}"; do "$part"; done
[ ${#failed[@]} -eq 0 ]
