#!/usr/bin/env bash
# Installs what the examples' tests read a bus with, once: kcat, jq and PostgreSQL from
# Debian's packages, Python's clients from PyPI. Prints the path of the python that has them.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/go.sh
missing=()
command -v kcat >/dev/null || missing+=(kcat)
command -v jq >/dev/null || missing+=(jq)
command -v initdb >/dev/null || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || missing+=(postgresql)
if [ ${#missing[@]} -gt 0 ]; then
	command -v apt-get >/dev/null || { say "install ${missing[*]}"; exit 1; }
	apt_install "${missing[@]}"
fi
scripts/python.sh examples/python/requirements.txt
