#!/usr/bin/env bash
# What a release consists of, in dist/: for linux, darwin and windows on amd64 and arm64 a static
# program in an archive, with the licences of its modules, and a list of what is in it (CycloneDX), and SHA256SUMS.
# The same commit and the same Go give the same bytes. On darwin and windows, the program is for laptops:
# the commands that read a cluster, a bus or a bridge.
#
#   scripts/release.sh               the tag that HEAD has
#   VERSION=v1.2.3 scripts/release.sh
#
# It publishes nothing.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/go.sh
version=${VERSION:-$(git describe --tags --exact-match 2>/dev/null)} || {
	say "HEAD has no tag: tag it, or set VERSION=v1.2.3"
	exit 1
}
if [ -n "$(git status --porcelain)" ]; then
	say "there are changes that are not committed: a release is made from a commit"
	exit 1
fi
when=$(git log -1 --format=%ct)
rm -rf dist
for platform in {linux,darwin,windows}/{amd64,arm64}; do
	os=${platform%/*} arch=${platform#*/}
	name=kubebridge_${version#v}_${os}_$arch
	program=bridge
	[ "$os" = windows ] && program=bridge.exe
	mkdir -p "dist/$name"
	CGO_ENABLED=0 GOOS=$os GOARCH=$arch \
		go build -trimpath -buildvcs=false -ldflags "-s -w -X main.version=$version" -o "dist/$name/$program" ./cmd/bridge
	go run ./scripts/sbom "dist/$name/$program" "$version" >"dist/$name.cdx.json"
	cp LICENSE README.md CHANGELOG.md "dist/$name/"
	scripts/licenses.sh >"dist/$name/MODULES.txt"
	tar -C dist --sort=name --mtime="@$when" --owner=0 --group=0 --numeric-owner -cf - "$name" | gzip -9n >"dist/$name.tar.gz"
	rm -r "dist/${name:?}"
	say "dist/$name.tar.gz"
done
(cd dist && sha256sum ./*.tar.gz ./*.cdx.json | sed 's#\./##' >SHA256SUMS)
scripts/krew.sh "$version" dist >dist/bridge.krew.yaml
say "dist/bridge.krew.yaml"
