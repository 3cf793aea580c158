#!/usr/bin/env bash
# The microbenchmarks, with allocations, on one CPU: scan of JSON, frames,
# encoding, the pipeline. Arguments are go test's (-count 6 for benchstat).
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/go.sh
go test -run - -bench . -benchmem -cpu 1 "$@" ./internal/scan ./internal/encode ./internal/pipeline ./pkg/source
cd bench && go test -run - -bench . -benchmem -cpu 1 "$@" ./internal/micro
