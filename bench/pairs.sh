#!/usr/bin/env bash
# Compares this tree's bridge with another commit's. PAIRS times (20) both run at the same time and share one CPU;
# their feeds and buses (this tree's) share the other one. Whatever else happens on the machine meets both. Prints the
# ratios with 95 % intervals; CPU time and memory mean something, events per second little.
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
run() { # NAME BRIDGE FLAGS
	local name=$1 bridge=$2
	shift 2
	bin/bench -only bridge -bridge "$bridge" -dir "var/$name" -out "var/$name.txt" "$@" >>"var/$name.log" 2>&1
}
for pair in $(seq "${PAIRS:-20}"); do
	say "pair $pair of ${PAIRS:-20}"
	run before "$before/bin/bridge" "$@" &
	other=$!
	run after ../bin/bridge "$@"
	wait "$other"
done
bin/ratios var/before.txt var/after.txt
