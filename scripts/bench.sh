#!/usr/bin/env bash
# Builds the bridge and the benchmark and runs it: arguments are the benchmark's.
# "compare OLD [NEW]" compares two saved runs instead.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/go.sh
if [ "${1:-}" = compare ]; then
	old=$(realpath "${2:?which run to compare with: OLD=a file that make bench has written}") new=$(realpath "${3:-bench/var/latest.txt}")
	cd bench && exec go tool benchstat "$old" "$new"
fi
scripts/build.sh
cd bench
mkdir -p var
go build -o bin/bench .
rm -f var/latest.txt
exec timeout 290 bin/bench -out var/latest.txt "$@"
