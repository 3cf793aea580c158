#!/usr/bin/env bash
# Builds bin/bridge, stamped with what git says.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/go.sh
version=$(git describe --tags --always --dirty 2>/dev/null || echo unknown)
go_compile "the bridge" . ./cmd/bridge
go build -ldflags "-s -w -X main.version=$version" -o bin/bridge ./cmd/bridge
