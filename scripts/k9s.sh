#!/usr/bin/env bash
# Builds k9s for the tests of `bridge serve`, once, and prints its path. It takes about six minutes, 250 MB of disk for the program, and several GB
# for the modules that it needs.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/go.sh
version=v0.50.16
program="${XDG_CACHE_HOME:-$HOME/.cache}/kubebridge/k9s-$version/k9s"
if [ ! -x "$program" ]; then
	say "building k9s $version"
	GOBIN=$(dirname "$program") go install "github.com/derailed/k9s@$version" >&2
fi
printf '%s\n' "$program"
