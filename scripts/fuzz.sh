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
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cache=$(go env GOCACHE)/fuzz # where go test has it
# in_time LOG: whether it failed only since its time was up, which Go sometimes takes
# for a failure.
in_time() { grep -q '^    context deadline exceeded$' "$1" && ! grep -q '^    Failing input\|^    --- FAIL\|panic:' "$1"; }
while read -r package dir; do
	# What `go test -fuzz` does, but for coverage of our packages alone: with that of
	# everything that tests link, an input takes five times as long.
	go test -c -gcflags='github.com/kubebridge/kubebridge/...=-d=libfuzzer' -o "$work/fuzz.test" "$package" || {
		say "$package: its tests do not build"
		exit 1
	}
	for target in $(cd "$dir" && "$work/fuzz.test" -test.list '^Fuzz'); do
		say "$package $target ($each)"
		tried=$((tried + 1))
		# Go would spend up to a minute on making each new input smaller, and try nothing else meanwhile.
		if ! (cd "$dir" && "$work/fuzz.test" -test.run '^$' -test.fuzz "^$target\$" -test.fuzztime "$each" \
			-test.fuzzminimizetime 2s -test.timeout 0 -test.fuzzcachedir "$cache/$package") | tee "$work/log" &&
			! in_time "$work/log"; then
			found+=("$package $target")
		fi
	done
done < <(go list -f '{{$p := .}}{{range .TestGoFiles}}{{$p.Dir}}/{{.}} {{$p.ImportPath}}{{"\n"}}{{end}}{{range .XTestGoFiles}}{{$p.Dir}}/{{.}} {{$p.ImportPath}}{{"\n"}}{{end}}' "$@" |
	while read -r file package; do if [ -n "$file" ] && grep -q '^func Fuzz' "$file"; then echo "$package ${file%/*}"; fi; done | sort -u)
say "fuzz: $tried targets, $((SECONDS - began)) seconds in all, ${#found[@]} found something"
if [ ${#found[@]} != 0 ]; then
	printf '  %s\n' "${found[@]}" >&2
	exit 1
fi
