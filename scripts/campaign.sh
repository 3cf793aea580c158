#!/usr/bin/env bash
# The fault campaign, at a low priority: SEEDS seeds in all (300), from the number FIRST on, or one again with
# SEED=n and PAIR=sink/store. It goes on where var/campaign/results.jsonl ends. Without SEEDS and arguments, the table of the seeds of this commit becomes
# its result in test/results.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/go.sh
say "API server: $(scripts/cluster.sh)"
program=$(mktemp)
trap 'rm -f "$program"' EXIT
go -C test/e2e build -o "$program" ./cmd/campaign
commit=$(scripts/results.sh begin)
failed=0
nice "$program" -out var/campaign -seeds "${SEEDS:-300}" ${FIRST:+-first "$FIRST"} ${SEED:+-seed "$SEED"} ${PAIR:+-pair "$PAIR"} "$@" || failed=$?
if [ -z "${SEEDS-}${SEED-}${PAIR-}$*" ]; then
	"$program" -out var/campaign -table | scripts/results.sh record campaign "$commit" $failed
fi
exit $failed
