#!/usr/bin/env bash
# Known vulnerabilities in what the code of every module calls, tests and tools among it,
# by govulncheck, which is built from its module. All modules are looked at, whatever one
# has. It needs the vulnerability database: https://vuln.go.dev, or a copy of it.
#
#   GOVULNDB=file:///path/to/copy scripts/vuln.sh
#
# Exit codes: 1 if something was found, 2 if a module or the database could not be read.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/go.sh
database=${GOVULNDB:-https://vuln.go.dev}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
go build -C tools -o "$work/govulncheck" golang.org/x/vuln/cmd/govulncheck
# check DIRECTORY ARGUMENTS...: govulncheck there. It does not read GOVULNDB itself.
check() { "$work/govulncheck" -C "$1" -db "$database" "${@:2}"; }

# Without a database, -version prints no date and no error. With an empty directory
# instead of one, it prints the year 1, and a scan finds nothing.
about=$("$work/govulncheck" -db "$database" -version 2>&1) || true
if ! grep '^DB updated: ' <<<"$about" | grep -qv ' 0001-'; then
	check tools -scan package ./licenses >/dev/null || true # prints why
	say "vuln: nothing was checked: there is no vulnerability database at $database."
	say "Run this where https://vuln.go.dev can be reached. Or take a copy from there: unpack https://vuln.go.dev/vulndb.zip,"
	say "and set GOVULNDB=file:///path to the directory that has index/modules.json."
	exit 2
fi
say "$about"

found=()
failed=()
modules=0
while read -r file; do
	module=$(dirname "$file")
	say "== $module"
	modules=$((modules + 1))
	packages=(./...)
	case $module in
	tools) packages+=(tool) ;;
	test/compose/plugin) packages=(tool) ;; # it has no code of its own
	esac
	code=0
	check "$module" -test "${packages[@]}" || code=$?
	case $code in
	0) ;;
	3) found+=("$module") ;;
	*) failed+=("$module") ;;
	esac
done < <(git ls-files -- go.mod '*/go.mod')
say "vuln: $modules modules, ${#found[@]} with vulnerabilities, ${#failed[@]} could not be checked"
[ ${#found[@]} = 0 ] || printf '  vulnerable: %s\n' "${found[@]}" >&2
[ ${#failed[@]} = 0 ] || { printf '  not checked: %s\n' "${failed[@]}" >&2; exit 2; }
[ ${#found[@]} = 0 ]
