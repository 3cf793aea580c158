#!/usr/bin/env bash
# Formatting and linters, the direction of imports among them, and the licences of
# what is linked in. The linter is built from its module, cold in about four minutes.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/go.sh
go mod tidy -diff
go tool -modfile=tools/go.mod golangci-lint run --allow-parallel-runners ./...
# formatted reports the files of a module that are not formatted.
formatted() {
	local files
	files=$(gofmt -l .)
	[ -z "$files" ] || { say "not formatted (gofmt): $files"; return 1; }
}
for module in test/cluster test/cluster/clustertest test/node test/library test/cloudevents test/browser test/kafka test/compose test/chart test/alerts test/serve test/e2e examples/go bench; do
	(cd "$module" && go vet ./... && formatted)
done
(cd tools && go vet ./... && formatted && go test ./...)
scripts/house.sh
scripts/licenses.sh >/dev/null
say "lint: nothing found"
