#!/usr/bin/env bash
# The image of the Dockerfile, in pods of the chart that a real kubelet runs: scripts/node.sh [short].
#
# It needs root on Linux, and Debian's packages. No image is pulled, and no Docker is needed: buildah builds the image on
# stand-ins for its base images (test/node/images.sh), and containerd runs it (test/node/cluster.sh). Everything runs in
# network, mount and process namespaces that end with this script; it removes the pods' cgroups. var/node keeps programs,
# images and logs.
#
# Exit codes: 1 if something failed, 77 if it cannot run on this machine.
set -euo pipefail
cd "$(dirname "$0")/.."
form=${1:-full}
# cannot says in one line why this does not run here.
cannot() { echo "test/node cannot run here: $*" >&2; exit 77; }
[ "$(uname -s)" = Linux ] || cannot "it needs Linux"
[ "$(id -u)" = 0 ] || cannot "it needs root, to start containers"
unshare --net --mount --pid --fork true 2>/dev/null || cannot "it may not make namespaces (unshare)"
work=$PWD/var/node
mkdir -p "$work"/{bin,overlay/lower,overlay/upper,overlay/work}
unshare --mount mount -t overlay -o "lowerdir=$work/overlay/lower,upperdir=$work/overlay/upper,workdir=$work/overlay/work" overlay "$work/overlay/lower" 2>/dev/null ||
	cannot "it may not mount overlays in $work"
rm -rf "$work/overlay"
# A cgroup of this run's own: kubelets delete what they do not know in theirs.
cgroup=/kubebridge-$$
memory=/sys/fs/cgroup
[ -e $memory/cgroup.controllers ] || memory+=/memory # version 1
{ mkdir "$memory$cgroup" && rmdir "$memory$cgroup"; } 2>/dev/null || cannot "it may not make cgroups in $memory"
missing=()
for each in buildah:buildah runc:runc containerd:containerd nft:nftables ip:iproute2 pgrep:procps /usr/lib/cni/bridge:containernetworking-plugins; do
	command -v "${each%:*}" >/dev/null || missing+=("${each#*:}")
done
. scripts/go.sh
[ ${#missing[@]} -eq 0 ] || command -v apt-get >/dev/null || cannot "it needs ${missing[*]}"
. test/node/lib.sh
[ ${#missing[@]} -eq 0 ] || apt_install "${missing[@]}"

cluster=$(scripts/cluster.sh)
ln -sf "$cluster" "$work/bin/cluster"
# kubectl and kubelet report this version; official builds set it in the same way.
version=$(go -C test/node list -m -f '{{.Version}}' k8s.io/kubernetes)
minor=${version#v1.}
go -C test/node build -buildvcs=false -o "$work/bin/node" \
	-ldflags "-s -w -X k8s.io/component-base/version.gitVersion=$version -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=${minor%.*}" .
for each in kubelet kube-controller-manager kube-scheduler kubectl; do ln -sf node "$work/bin/$each"; done
CGO_ENABLED=0 go -C test/node build -trimpath -buildvcs=false -ldflags '-s -w' -o "$work/bin/pause" ./pause
go -C test/e2e build -buildvcs=false -o "$work/bin/count-writes" ./cmd/count-writes
go -C test/chart build -buildvcs=false -o "$work/bin/helm" helm.sh/helm/v4/cmd/helm
step "API server, kubelet, controllers, scheduler, kubectl and helm built"

go mod download # the build in the container finds the modules of this machine
unshare --mount --pid --fork --mount-proc --kill-child test/node/images.sh "$work/images"

cgroups() { find /sys/fs/cgroup -maxdepth 2 -path "*$cgroup"; }
remove_cgroups() {
	local left=50
	while [ -n "$(cgroups)" ] && [ $((left--)) -gt 0 ]; do
		cgroups | while read -r dir; do find "$dir" -depth -type d -exec rmdir {} + 2>/dev/null || true; done
		sleep 0.1 # processes that were killed leave their cgroups a little later
	done
	[ -z "$(cgroups)" ] || { say "cgroups are left:" $(cgroups); return 1; }
}
# finish ends the namespaces with all that runs in them, also after a signal.
finish() {
	local code=$?
	trap '' HUP INT TERM
	if [ -n "${pods:-}" ] && kill "$pods" 2>/dev/null; then wait "$pods" || true; fi
	remove_cgroups || code=1
	exit $code
}
trap finish EXIT
trap 'exit 130' HUP INT TERM
rm -rf "$work/run"
mkdir -p "$work/run"
timeout -k 10 30m unshare --net --mount --pid --fork --mount-proc --kill-child test/node/pods.sh "$work" "$cgroup" "$form" &
pods=$!
wait $pods
