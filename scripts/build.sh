#!/usr/bin/env bash
# Builds bin/bridge, or another file with a flag of go build: scripts/build.sh [FILE FLAG]. It is stamped with what git says.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/go.sh
version=$(git describe --tags --always --dirty 2>/dev/null || echo unknown)
go_compile "the bridge" . ./cmd/bridge "${@:2}"
go build "${@:2}" -ldflags "-s -w -X main.version=$version" -o "${1-bin/bridge}" ./cmd/bridge
