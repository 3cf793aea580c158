#!/usr/bin/env bash
# Builds the collector of peers/otel, for: bench -peer "peers/otel.sh run"
# (versions are those of its go.mod; the build is large: about 1 GB and minutes).
set -euo pipefail
cd "$(dirname "$0")"
case ${1:-build} in
build)
	. ../../scripts/go.sh
	cd otel && go build -o ../../bin/otel .
	;;
run) exec ../bin/otel --config otel/otel.yaml ;;
esac
