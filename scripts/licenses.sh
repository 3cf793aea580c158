#!/usr/bin/env bash
# The licences of every module that `bridge` is linked from, a line each, on standard
# output. It fails if one is not known, or is not permissive. It needs the module cache
# and nothing else.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/go.sh
for arch in amd64 arm64; do
	CGO_ENABLED=0 GOOS=linux GOARCH=$arch go list -deps \
		-f '{{with .Module}}{{if not .Main}}{{with .Replace}}{{.Path}} {{.Version}} {{.Dir}}{{else}}{{.Path}} {{.Version}} {{.Dir}}{{end}}{{end}}{{end}}' ./cmd/bridge
done | sed '/^$/d' | sort -u | go run -C tools ./licenses
