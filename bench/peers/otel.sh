#!/usr/bin/env bash
# Builds the collector of peers/otel in the versions of its go.mod (about 1 GB, some minutes), and runs it for: bench -peer "peers/otel.sh run"
# OTEL_CONFIG=otel/otel-storage.yaml keeps its position and its queue in $OTEL_STORAGE.
set -euo pipefail
cd "$(dirname "$0")"
case ${1:-build} in
build)
	. ../../scripts/go.sh
	cd otel && go build -o ../../bin/otel .
	;;
run) exec ../bin/otel --config "${OTEL_CONFIG:-otel/otel.yaml}" ;;
esac
