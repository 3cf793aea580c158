#!/usr/bin/env bash
# What a release consists of, in dist/: for linux, darwin and windows on amd64 and arm64 a static
# program in an archive, with the licences of its modules, and a list of what is in it (CycloneDX); the chart, SHA256SUMS,
# and krew's manifest. The same commit and the same Go give the same bytes. On darwin and windows, the program is for laptops:
# the commands that read a cluster, a bus or a bridge. Then it runs the program of this machine, and installs the version with
# go install. It is refused without results of the tests that take hours (test/results).
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
scripts/results.sh check
when=$(git log -1 --format=%ct)

# check PROGRAM OS ARCH: that a program is in the format of its system, and, if it is this machine's, prints its version.
check() {
	local says format=7f454c46 # ELF
	[ "$2" != darwin ] || format=cffaedfe # Mach-O
	[ "$2" != windows ] || format=4d5a # PE
	[[ $(head -c 4 "$1" | od -An -tx1 | tr -d ' ') == "$format"* ]] || { say "$1 is no program for $2"; return 1; }
	[ "$2/$3" = "$(go env GOHOSTOS)/$(go env GOHOSTARCH)" ] || return 0
	says=$("$1" --version)
	[[ $says == "bridge $version ("* ]] || { say "$1 says $says, want $version"; return 1; }
}

rm -rf dist
for platform in {linux,darwin,windows}/{amd64,arm64}; do
	os=${platform%/*} arch=${platform#*/}
	name=kubebridge_${version#v}_${os}_$arch
	program=bridge
	[ "$os" = windows ] && program=bridge.exe
	mkdir -p "dist/$name"
	CGO_ENABLED=0 GOOS=$os GOARCH=$arch \
		go build -trimpath -buildvcs=false -ldflags "-s -w -X main.version=$version" -o "dist/$name/$program" ./cmd/bridge
	check "dist/$name/$program" "$os" "$arch"
	go run ./scripts/sbom "dist/$name/$program" "$version" >"dist/$name.cdx.json"
	cp LICENSE README.md CHANGELOG.md "dist/$name/"
	scripts/licenses.sh >"dist/$name/MODULES.txt"
	tar -C dist --sort=name --mtime="@$when" --owner=0 --group=0 --numeric-owner -cf - "$name" | gzip -9n >"dist/$name.tar.gz"
	rm -r "dist/${name:?}"
	say "dist/$name.tar.gz"
done
scripts/chart.sh "$version" dist
say "dist/kubebridge-${version#v}.tgz"
(cd dist && sha256sum ./*.tar.gz ./*.tgz ./*.cdx.json | sed 's#\./##' >SHA256SUMS)
scripts/krew.sh "$version" dist >dist/bridge.krew.yaml
say "dist/bridge.krew.yaml"
scripts/goinstall.sh "$version"
