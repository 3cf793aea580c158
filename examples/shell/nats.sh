#!/usr/bin/env bash
# nats.sh URL STREAM: the objects that exist now, from a stream. Needs the nats command and jq.
set -euo pipefail
messages=$(nats --server "$1" stream info "$2" --json | jq .state.messages)
nats --server "$1" subscribe --stream "$2" --all --raw --count "$messages" |
	jq -rn --from-file "$(dirname "$0")/fold.jq"
