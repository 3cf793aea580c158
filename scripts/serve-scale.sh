#!/usr/bin/env bash
# The large form of test/serve/scale: bridge serve with OBJECTS=1000000 pods of 16 KB, WATCHERS=10000 watches of 1,000 namespaces and RATE=1000
# changes a second for FOR=30 seconds. SLICE=n publishes n pods at a time, lets bridge serve read them, and removes them from the bus. The result and
# the log are in var/serve-scale; what was measured is in test/results if nothing was set.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/go.sh
objects=${OBJECTS:-1000000}
watchers=${WATCHERS:-10000}
rate=${RATE:-1000}
dir=$PWD/var/serve-scale
mkdir -p "$dir/tmp"
free=$(df --output=avail -B1M "$dir" | tail -n 1) # MB
# A pod takes about 8 KB in the copy, which needs room while it is compacted, and 1 to 2 KB on the bus, which is compressed.
need=$((objects * 12 / 1000))
if [ "$free" -lt "$need" ]; then
	say "$objects pods need about $need MB in var/serve-scale, which has $free: choose fewer OBJECTS"
	exit 1
fi
files=$((watchers + 1000))
[ "$(ulimit -n)" = unlimited ] || [ "$(ulimit -n)" -ge "$files" ] || ulimit -n "$files" || { say "$watchers watches need $files open files: raise the limit (ulimit -n)"; exit 1; }
listed=10000
[ "$objects" -gt "$listed" ] || listed=$((objects / 2))
begun=$(scripts/results.sh begin)
commit=$(git rev-parse --short HEAD)$(git diff --quiet HEAD || echo ', modified')
name=$dir/$objects-$watchers-$rate
say "commit $commit, $(date -u +'%-d %B %Y'), the log is $name.log"
failed=0
TMPDIR=$dir/tmp go -C test/serve test -count=1 -v -timeout 6h -run TestScale ./scale -scale.objects="$objects" -scale.listed="$listed" -scale.namespaces=1000 \
	-scale.watchers="$watchers" -scale.rate="$rate" -scale.for="${FOR:-30}s" -scale.slice="${SLICE:-0}" -scale.commit="$commit" -scale.out="$name.json" >"$name.log" 2>&1 || failed=1
results=$(grep -E '^ *scale_test.go|^(---|ok|FAIL)' "$name.log" | sed 's/^ *scale_test.go:[0-9]*: //' | cut -c1-300) || results="nothing: see the log"
echo "$results"
[ -n "${OBJECTS-}${WATCHERS-}${RATE-}${FOR-}${SLICE-}" ] || scripts/results.sh record serve-scale "$begun" $failed <<<"$results"
exit $failed
