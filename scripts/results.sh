#!/usr/bin/env bash
# The last results of the tests that take hours. They are committed, and a release is refused without them.
#
#   scripts/results.sh begin                    prints the commit to give to record, before a test runs
#   scripts/results.sh record NAME COMMIT CODE  writes test/results/NAME.txt: a head, and what the test printed, from standard input
#   scripts/results.sh check                    fails if a result is missing, failed, or older than the program
set -euo pipefail
cd "$(dirname "$0")/.."
program=(cmd internal pkg go.mod go.sum)
# changed: whether files are modified, except results.
changed() { [ -n "$(git status --porcelain -- . ':!test/results')" ]; }
case ${1-} in
begin)
	printf '%s%s\n' "$(git rev-parse HEAD)" "$(! changed || echo -modified)"
	;;
record)
	[ "$(scripts/results.sh begin)" = "$3" ] || {
		echo "test/results/$2.txt is not written: files have changed since the test began" >&2
		exit 0
	}
	mkdir -p test/results
	{
		printf 'commit: %s\nmodified: %s\ndate: %s\nprocessors: %s\npassed: %s\n\n' "${3%-modified}" "$([ "$3" = "${3%-modified}" ] && echo no || echo yes)" \
			"$(date -u +%F)" "$(nproc)" "$([ "$4" = 0 ] && echo yes || echo no)"
		cat
	} >"test/results/$2.txt"
	echo "test/results/$2.txt is written" >&2
	;;
check)
	code=0
	for name in audit campaign outage serve-scale; do
		file=test/results/$name.txt why=
		field() { sed -n "1,/^$/s/^$1: //p" "$file"; }
		if [ ! -e "$file" ]; then
			why="there is none"
		elif [ "$(field modified)" != no ]; then
			why="it is of modified files"
		elif [ "$(field passed)" != yes ]; then
			why="it failed"
		elif ! git diff --quiet "$(field commit)" HEAD -- "${program[@]}"; then
			why="the program has changed since commit $(field commit)"
		fi
		[ -z "$why" ] || { echo "no result of make $name for this program: $why. Run make $name, and commit $file" >&2; code=1; }
	done
	exit $code
	;;
*)
	sed -n '2,/^set/p' "$0" | sed '$d' >&2
	exit 1
	;;
esac
