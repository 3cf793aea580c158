#!/usr/bin/env bash
# Every test of every module. The API server is built first: cold, that takes
# longer than go test would wait.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/go.sh
cluster=$(scripts/cluster.sh)
say "API server: $cluster"
say "== the main module"
go test -race ./...
say "== test/cluster: the API server of the tests"
(cd test/cluster/clustertest && go test -race -p 1 ./...)
say "== test/library: pkg/source and pkg/event as a library"
(cd test/library && go test -race -p 1 ./...)
say "== test/e2e: the program against real servers"
(cd test/e2e && go test -p 1 -timeout 25m ./...)
