#!/usr/bin/env bash
# Installs HEAD as its users install a version: `go install` outside any module, from a module proxy on disk that has HEAD as that
# version. Its dependencies come from the module cache, or from the usual proxy. It checks the version that the program prints.
#
#   scripts/goinstall.sh [v1.2.3]
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/go.sh
version=${1:-v0.0.0-test}
work=$(mktemp -d)
trap 'chmod -R u+w "$work" && rm -r "$work"' EXIT
go run -C tools ./modproxy .. "$version" "$work/proxy"
cached=$(go env GOMODCACHE)/cache/download usual=$(go env GOPROXY)
cd "$work"
# A module cache of its own, because a version that was installed from an earlier commit would be taken from the usual one.
GOPROXY="file://$work/proxy,file://$cached,$usual" GONOSUMDB=github.com/kubebridge/kubebridge GOFLAGS=-trimpath CGO_ENABLED=0 \
	GOMODCACHE="$work/modules" GOBIN="$work/bin" go install "github.com/kubebridge/kubebridge/cmd/bridge@$version"
says=$(bin/bridge --version)
[[ $says == "bridge $version ("* ]] || {
	say "the installed program says $says, want $version"
	exit 1
}
say "go install of $says: a module of $(du -k "$work"/proxy/github.com/kubebridge/kubebridge/@v/*.zip | cut -f1) KiB"
