#!/usr/bin/env bash
# Counts the functions of this repository, and their types, that one event passes on its
# way to Kafka, exactly once, apart from those that run per batch, and lists them in the
# order of docs/architecture.md, "The life of an event".
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/go.sh
say "API server: $(scripts/cluster.sh)"
cd test/e2e && go run ./cmd/event-path "$@"
