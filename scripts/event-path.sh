#!/usr/bin/env bash
# Lists the functions of this repository that one event passes on its way to Kafka,
# exactly once, by package, and counts them and their types: see docs/architecture.md.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/go.sh
say "API server: $(scripts/cluster.sh)"
cd test/e2e && go run ./cmd/event-path "$@"
