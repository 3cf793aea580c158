#!/usr/bin/env bash
# images.sh DIRECTORY: builds the Dockerfile as it is, and the pause image, as archives there. The two images that the
# Dockerfile begins from are replaced by the Debian packages that distroless images are made of, and by a shell with this
# machine's Go.
set -euo pipefail
cd "$(dirname "$0")/../.."
. scripts/go.sh
. test/node/lib.sh
mkdir -p "$1"
dir=$(realpath "$1")
build() { buildah --root "$dir/store" --runroot "$dir/run" --storage-driver overlay "$@"; }
# image NAME DIRECTORY SETTINGS...: an image of what a directory has.
image() {
	local name=$1 root=$2 container
	shift 2
	container=$(build from scratch)
	build add -q "$container" "$root" / >/dev/null
	build config "$@" "$container"
	build commit -q --rm "$container" "$name" >/dev/null
}
runtime_base() {
	local root=$dir/static
	rm -rf "$root"
	mkdir -p "$root"
	unpack "$dir/debs" "$root" base-files netbase tzdata ca-certificates
	mkdir -p "$root"/{etc/ssl/certs,home/nonroot,tmp}
	cat "$root"/usr/share/ca-certificates/mozilla/*.crt >"$root/etc/ssl/certs/ca-certificates.crt"
	rm -rf "$root"/usr/share/{doc,man,ca-certificates} "$root/usr/sbin"
	printf '%s\n' root:x:0:0:root:/root:/sbin/nologin nonroot:x:65532:65532:nonroot:/home/nonroot:/sbin/nologin >"$root/etc/passwd"
	printf '%s\n' root:x:0: nonroot:x:65532: >"$root/etc/group"
	chmod 1777 "$root/tmp"
	chown 65532:65532 "$root/home/nonroot"
	image "$1" "$root" --user 65532 --workingdir /home/nonroot
	rm -rf "$root"
}
build_base() {
	local root=$dir/golang applet
	rm -rf "$root"
	mkdir -p "$root"
	unpack "$dir/debs" "$root" busybox-static
	mkdir -p "$root"/{etc/ssl/certs,tmp,root,go,usr/local/go}
	chmod 1777 "$root/tmp"
	for applet in $("$root/bin/busybox" --list); do [ "$applet" = busybox ] || ln -sf busybox "$root/bin/$applet"; done
	cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
	echo root:x:0:0:root:/root:/bin/sh >"$root/etc/passwd"
	image "$1" "$root" --workingdir /go --env GOPATH=/go --env GOTOOLCHAIN=local --env PATH=/usr/local/go/bin:/bin
	rm -rf "$root"
}

runtime=$(sed -n 's/^FROM \(gcr.io[^ ]*\)$/\1/p' Dockerfile)
golang=docker.io/library/$(sed -n 's/^FROM .* \(golang:[^ ]*\) AS build$/\1/p' Dockerfile)
build inspect "$runtime" >/dev/null 2>&1 || runtime_base "$runtime"
build inspect "$golang" >/dev/null 2>&1 || build_base "$golang"
step "stand-ins for $runtime and $golang"

# This machine's Go and its caches are mounted: the Dockerfile's commands run as they are, and compile what has changed.
build build -q --isolation chroot --network host --pull=never \
	-v "$(go env GOROOT):/usr/local/go:ro" -v "$(go env GOMODCACHE):/go/pkg/mod" -v "$(go env GOCACHE):/root/.cache/go-build" \
	--build-arg TARGETOS=linux --build-arg TARGETARCH="$(go env GOARCH)" --build-arg VERSION="$(git describe --tags --always)" -t localhost/kubebridge:built . >/dev/null
mkdir -p "$dir/pause"
cp var/node/bin/pause "$dir/pause/pause"
image localhost/pause:built "$dir/pause" --entrypoint '["/pause"]' --user 65535
for name in kubebridge pause; do
	rm -f "$dir/$name.tar"
	build push -q "localhost/$name:built" "docker-archive:$dir/$name.tar:localhost/$name:built"
done
build rmi --prune >/dev/null # images of earlier runs
step "the Dockerfile's image: $(($(stat -c %s "$dir/kubebridge.tar") / 1000000)) MB"
