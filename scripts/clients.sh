#!/usr/bin/env bash
# Installs what the examples' tests read a bus with, once: kcat, jq, PostgreSQL and
# Python's venv from Debian's packages, Python's clients from PyPI. Prints the path of
# the python that has them.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/go.sh
missing=()
command -v kcat >/dev/null || missing+=(kcat)
command -v jq >/dev/null || missing+=(jq)
python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
command -v initdb >/dev/null || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || missing+=(postgresql)
if [ ${#missing[@]} -gt 0 ]; then
	command -v apt-get >/dev/null || { say "install ${missing[*]}"; exit 1; }
	apt_install "${missing[@]}"
fi
wanted=$(sha256sum examples/python/requirements.txt | cut -c1-16)
venv="${XDG_CACHE_HOME:-$HOME/.cache}/kubebridge/python-$wanted"
if [ ! -x "$venv/bin/python" ]; then
	mkdir -p "$(dirname "$venv")"
	rm -rf "$venv.part"
	python3 -m venv "$venv.part"
	timeout 300 "$venv.part/bin/python" -m pip install -q --disable-pip-version-check -r examples/python/requirements.txt >&2
	mv -T "$venv.part" "$venv"
fi
echo "$venv/bin/python"
