#!/usr/bin/env bash
# Runs the microbenchmarks on one CPU, and reports allocations: scan of JSON,
# encoding, pipeline, frames of a watch. Arguments are passed to go test (-count 6
# for benchstat).
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/go.sh
go test -run - -bench . -benchmem -cpu 1 "$@" ./internal/base/scan ./internal/core/encode ./internal/bridge ./pkg/source
cd bench && go test -run - -bench . -benchmem -cpu 1 "$@" ./internal/micro
