#!/usr/bin/env bash
# Builds bin/bridge, stamped with what git says.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/go.sh
version=$(git describe --tags --always --dirty 2>/dev/null || echo unknown)
[ -x bin/bridge ] || say "building bin/bridge (a few minutes the first time)"
go build -trimpath -ldflags "-X main.version=$version" -o bin/bridge ./cmd/bridge
