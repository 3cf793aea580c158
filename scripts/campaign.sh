#!/usr/bin/env bash
# The fault campaign, at a low priority: SEEDS seeds in all (200), or one again with
# SEED=n and PAIR=sink/store. It goes on where var/campaign/results.jsonl ends.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/go.sh
say "API server: $(scripts/cluster.sh)"
program=$(mktemp)
trap 'rm -f "$program"' EXIT
go -C test/e2e build -o "$program" ./cmd/campaign
nice "$program" -out var/campaign -seeds "${SEEDS:-200}" ${SEED:+-seed "$SEED"} ${PAIR:+-pair "$PAIR"} "$@"
