#!/usr/bin/env bash
# Compares this tree's bridge with another commit's: they run in turns, PAIRS times (25),
# with this tree's feed and bus. Prints the ratios with 95 % intervals. Many short pairs
# say more than few long ones where other load changes the machine's speed.
#
#	pairs.sh COMMIT [FLAGS OF BENCH]    -bench throughput -scale 0.15 without flags
set -euo pipefail
cd "$(dirname "$0")"
. ../scripts/go.sh
commit=${1:?usage: pairs.sh COMMIT [flags of bench]}
shift
[ $# -gt 0 ] || set -- -bench throughput -scale 0.15
mkdir -p var bin
before=$PWD/var/before
rm -rf "$before"
git clone --quiet .. "$before"
git -C "$before" checkout --quiet "$commit"
"$before/scripts/build.sh"
../scripts/build.sh
go build -o bin/bench .
go build -o bin/ratios ./cmd/ratios
rm -f var/before.txt var/after.txt
run() { # BRIDGE RESULT FLAGS
	local bridge=$1 result=$2
	shift 2
	bin/bench -only bridge -bridge "$bridge" -out "$result" "$@" >>var/pairs.log 2>&1
}
for pair in $(seq "${PAIRS:-25}"); do
	say "pair $pair of ${PAIRS:-25}"
	if ((pair % 2)); then
		run "$before/bin/bridge" var/before.txt "$@"
		run ../bin/bridge var/after.txt "$@"
	else
		run ../bin/bridge var/after.txt "$@"
		run "$before/bin/bridge" var/before.txt "$@"
	fi
done
bin/ratios var/before.txt var/after.txt
