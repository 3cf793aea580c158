#!/usr/bin/env bash
# Prints the directory of a released kube-apiserver and etcd, as envtest keeps them; fails if this machine has none.
# With --data-dir DIR it runs both until it is ended, as test/cluster runs what is built, and prints "ready kubeconfig=FILE". BRIDGE is the
# program that shows when the API server answers.
set -euo pipefail
cd "$(dirname "$0")/.."
for assets in "${KUBEBUILDER_ASSETS-}" /usr/local/kubebuilder/bin ~/.local/share/kubebuilder-envtest/k8s/* "$(dirname "$(command -v kube-apiserver)")" ""; do
	[ ! -x "$assets/kube-apiserver" ] || [ ! -x "$assets/etcd" ] || break
done
[ "$assets" ] || exit 1
[ $# = 2 ] || { echo "$assets"; exit; }

. scripts/go.sh
dir=$(realpath "$2")
mkdir -p "$dir"
# free PORT: the first port from PORT on that nobody listens on.
free() {
	local port=$1
	while (: <"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do port=$((port + 1)); done
	echo "$port"
}
storage=http://127.0.0.1:$(free 23790) server=$(free 16443)
[ -f "$dir/key.pem" ] || (cd "$dir" && go run "$(go env GOROOT)/src/crypto/tls/generate_cert.go" --host 127.0.0.1 --ca >&2)
umask 077
[ -f "$dir/token" ] || od -An -N16 -tx1 /dev/urandom | tr -d ' \n' >"$dir/token"
echo "$(<"$dir/token"),demo,demo,system:masters" >"$dir/tokens.csv"
cat >"$dir/kubeconfig" <<YAML
apiVersion: v1
kind: Config
clusters: [{name: demo, cluster: {server: "https://127.0.0.1:$server", certificate-authority: cert.pem}}]
users: [{name: demo, user: {tokenFile: token}}]
contexts: [{name: demo, context: {cluster: demo, user: demo}}]
current-context: demo
YAML

"$assets/etcd" --data-dir "$dir/etcd" --listen-client-urls "$storage" --advertise-client-urls "$storage" --listen-peer-urls "http://127.0.0.1:$(free 23800)" >&2 &
etcd=$!
"$assets/kube-apiserver" --etcd-servers "$storage" --bind-address 127.0.0.1 --secure-port "$server" --tls-cert-file "$dir/cert.pem" --tls-private-key-file "$dir/key.pem" \
	--authorization-mode RBAC --token-auth-file "$dir/tokens.csv" --service-cluster-ip-range 10.0.0.0/24 --disable-admission-plugins ServiceAccount \
	--service-account-issuer https://kubernetes.default.svc --service-account-key-file "$dir/key.pem" --service-account-signing-key-file "$dir/key.pem" >&2 &
apiserver=$!
trap 'kill -9 $apiserver; kill $etcd; wait' EXIT # the API server keeps nothing, and does not end without etcd
trap 'exit 143' HUP INT TERM
until KUBECONFIG=$dir/kubeconfig "$BRIDGE" validate --connect -c configs/demo.yaml --reachable-only >/dev/null 2>&1; do
	kill -0 $etcd && kill -0 $apiserver || exit 1
	sleep 0.5
done
echo "ready kubeconfig=$dir/kubeconfig"
wait -n
