#!/usr/bin/env bash
# Every fuzz target of the main module in turn, for FUZZTIME each (10m if not set). All
# are run, whatever one finds. What it finds lies beside the target, in
# testdata/fuzz/, from where `go test` tries it again from then on: commit it with the
# mend.
#
#   FUZZTIME=30s scripts/fuzz.sh
#   scripts/fuzz.sh ./pkg/shape/...    only these packages
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/go.sh
each=${FUZZTIME:-10m}
if [ $# = 0 ]; then
	set -- ./...
fi
began=$SECONDS
tried=0
found=()
while read -r package; do
	targets=$(go test -list '^Fuzz' "$package" | sed -n '/^Fuzz/p') || {
		say "$package: its tests do not build"
		exit 1
	}
	for target in $targets; do
		say "$package $target ($each)"
		tried=$((tried + 1))
		# Go would spend up to a minute on making each new input smaller, and try nothing else meanwhile.
		if ! go test -run '^$' -fuzz "^$target\$" -fuzztime "$each" -fuzzminimizetime 2s "$package"; then
			found+=("$package $target")
		fi
	done
done < <(go list -f '{{$p := .}}{{range .TestGoFiles}}{{$p.Dir}}/{{.}} {{$p.ImportPath}}{{"\n"}}{{end}}{{range .XTestGoFiles}}{{$p.Dir}}/{{.}} {{$p.ImportPath}}{{"\n"}}{{end}}' "$@" |
	while read -r file package; do if [ -n "$file" ] && grep -q '^func Fuzz' "$file"; then echo "$package"; fi; done | sort -u)
say "fuzz: $tried targets, $((SECONDS - began)) seconds in all, ${#found[@]} found something"
if [ ${#found[@]} != 0 ]; then
	printf '  %s\n' "${found[@]}" >&2
	exit 1
fi
