#!/usr/bin/env bash
# Builds or runs the OpenTelemetry collector of peers/otel.
#
#	otel.sh build    builds it with the versions in its go.mod; downloads about 1 GB and takes some minutes
#	otel.sh run      runs it, for bench -peer "peers/otel.sh run"
#
# With OTEL_CONFIG=otel/otel-storage.yaml, the collector keeps its position and its queue in $OTEL_STORAGE.
set -euo pipefail
cd "$(dirname "$0")"
case ${1:-build} in
build)
	. ../../scripts/go.sh
	cd otel && go build -o ../../bin/otel .
	;;
run) exec ../bin/otel --config "${OTEL_CONFIG:-otel/otel.yaml}" ;;
esac
