#!/usr/bin/env bash
# Compares the bridge of this tree with that of another commit. Both run at the same time, PAIRS times (default: 20), and
# share one CPU. Their feeds and buses, which are built from this tree, share the other CPU. So other load of the machine
# affects both alike. Prints ratios with 95 % confidence intervals. CPU time and memory can be compared well, events per
# second only roughly.
#
#	pairs.sh COMMIT [FLAGS OF BENCH]    default flags: -bench throughput -scale 0.2
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
