#!/usr/bin/env bash
# Builds the real API server for tests and the demo, once, and prints its path.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/go.sh
go_compile "the API server's builder" test/cluster/clustertest ./cmd/build-cluster "$quick"
go -C test/cluster/clustertest run "$quick" ./cmd/build-cluster known 2>/dev/null || {
	go_compile "the API server" test/cluster . "$quick"
	go -C test/cluster/clustertest run "$quick" ./cmd/build-cluster
}
