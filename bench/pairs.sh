#!/usr/bin/env bash
# Compares this tree's bridge with another commit's. PAIRS times (20) both run at the same time, each with its
# own feed and bus (this tree's) on one of two CPUs, which they swap after each pair: what else happens on the
# machine meets both. Prints the ratios with 95 % intervals; CPU time and memory mean something, events per second
# little.
#
#	pairs.sh COMMIT [FLAGS OF BENCH]    -bench throughput -scale 0.2 without flags
set -euo pipefail
cd "$(dirname "$0")"
. ../scripts/go.sh
commit=${1:?usage: pairs.sh COMMIT [flags of bench]}
shift
[ $# -gt 0 ] || set -- -bench throughput -scale 0.2
mkdir -p var bin
before=$(mktemp -d)
trap 'rm -rf "$before"' EXIT
git clone --quiet .. "$before"
git -C "$before" checkout --quiet "$commit"
"$before/scripts/build.sh"
../scripts/build.sh
go build -o bin/bench .
go build -o bin/ratios ./cmd/ratios
rm -f var/{before,after}.{txt,log}
run() { # CPU NAME BRIDGE FLAGS
	local cpu=$1 name=$2 bridge=$3
	shift 3
	taskset --cpu-list "$cpu" bin/bench -pin=false -only bridge -bridge "$bridge" -dir "var/$name" -out "var/$name.txt" "$@" >>"var/$name.log" 2>&1
}
for pair in $(seq "${PAIRS:-20}"); do
	say "pair $pair of ${PAIRS:-20}"
	run $((pair % 2)) before "$before/bin/bridge" "$@" &
	other=$!
	run $((1 - pair % 2)) after ../bin/bridge "$@"
	wait "$other"
done
bin/ratios var/before.txt var/after.txt
