#!/usr/bin/env bash
# python.sh FILE: installs the Python packages of a requirements file into an environment of
# their own, once, and prints the path of the python that has them.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/go.sh
if ! python3 -c 'import ensurepip, venv' 2>/dev/null; then
	command -v apt-get >/dev/null || { say "install python3 with venv"; exit 1; }
	apt_install python3-venv
fi
venv="${XDG_CACHE_HOME:-$HOME/.cache}/kubebridge/python-$(sha256sum "$1" | cut -c1-16)"
mkdir -p "$(dirname "$venv")"
exec 9>"$venv.lock"
flock 9 # tests ask for it at the same time
if [ ! -x "$venv/bin/python" ]; then
	rm -rf "$venv.part"
	python3 -m venv "$venv.part"
	timeout 300 "$venv.part/bin/python" -m pip install -q --disable-pip-version-check -r "$1" >&2 || {
		say "pip could not install the packages of $1. They are on PyPI: make it reachable, or name a mirror of it in PIP_INDEX_URL, or a directory with the packages in PIP_FIND_LINKS (with PIP_NO_INDEX=1). Then try again."
		exit 1
	}
	mv -T "$venv.part" "$venv"
fi
echo "$venv/bin/python"
