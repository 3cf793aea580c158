#!/usr/bin/env bash
# kafka.sh BROKER TOPIC: the objects that exist now, from a topic. Needs kcat and jq.
set -euo pipefail
kcat -C -q -e -o beginning -b "$1" -t "$2" -X isolation.level=read_committed |
	jq -rn --from-file "$(dirname "$0")/fold.jq"
