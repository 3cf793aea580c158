# shellcheck shell=bash
# Sourced by pods.sh: starts an API server, controllers, a scheduler, containerd and a kubelet in the namespaces that the
# script runs in. It uses $work (programs and images), $run (an empty directory) and $cgroup.

# start LOG COMMAND...: runs a program in the background.
start() {
	local log=$run/$1.log
	shift
	"$@" >"$log" 2>&1 &
}

start_network() {
	mount --make-rshared / # kubelet and containerd hand mounts on to pods
	ip link set lo up
	ip link add cni0 type bridge
	ip addr add "$node_ip/24" dev cni0
	ip link set cni0 up
	sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.route_localnet=1
	nft add table ip services
	nft add chain ip services in '{ type nat hook prerouting priority -100; }'
}

# service ADDRESS:PORT TO: what kube-proxy would do for a Service.
service() {
	nft add rule ip services in ip daddr "${1%:*}" tcp dport "${1#*:}" dnat to "$2"
}

start_control_plane() {
	local pki=$run/cluster/pki
	: >"$run/ready"
	cluster --data-dir "$run/cluster" --with-controllers --apiserver-arg=--kubelet-client-certificate="$pki/admin.crt" \
		--apiserver-arg=--kubelet-client-key="$pki/admin.key" --apiserver-arg=--kubelet-preferred-address-types=InternalIP \
		>"$run/ready" 2>"$run/cluster.log" &
	eventually 180 grep -q '^ready ' "$run/ready"
	service 10.0.0.1:443 "$(sed -n 's#^ready server=https://\([^ ]*\) .*#\1#p' "$run/ready")"
	start controllers kube-controller-manager --kubeconfig="$KUBECONFIG" --leader-elect=false \
		--service-account-private-key-file="$pki/sa.key" --root-ca-file="$pki/ca.crt"
	start scheduler kube-scheduler --kubeconfig="$KUBECONFIG" --leader-elect=false
}

start_containerd() {
	mkdir -p "$run/cni"
	cat >"$run/containerd.toml" <<-TOML
		version = 2
		root = "$run/containerd"
		state = "$run/containerd-state"
		[grpc]
		  address = "$run/containerd.sock"
		[plugins."io.containerd.grpc.v1.cri"]
		  sandbox_image = "localhost/pause:built"
		  restrict_oom_score_adj = true # root may lack CAP_SYS_RESOURCE
		  cni = {bin_dir = "/usr/lib/cni", conf_dir = "$run/cni"}
	TOML
	cat >"$run/cni/10-bridge.conflist" <<-JSON
		{"cniVersion": "0.4.0", "name": "pods", "plugins": [{
		  "type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true,
		  "ipam": {"type": "host-local", "dataDir": "$run/ipam", "ranges": [[{"subnet": "$pod_subnet", "rangeStart": "$pod_first"}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}
	JSON
	start containerd containerd --config "$run/containerd.toml"
	eventually 30 ctr -a "$run/containerd.sock" version
	local image
	for image in pause kubebridge; do ctr -a "$run/containerd.sock" -n k8s.io images import "$work/images/$image.tar" >/dev/null; done
}

start_kubelet() {
	local dir
	for dir in /sys/fs/cgroup /sys/fs/cgroup/*; do # all hierarchies of version 1, or the one of version 2
		[ ! -e "$dir/cgroup.procs" ] || mkdir -p "$dir$cgroup"
	done
	cat >"$run/kubelet.yaml" <<-YAML
		apiVersion: kubelet.config.k8s.io/v1beta1
		kind: KubeletConfiguration
		failCgroupV1: false
		cgroupDriver: cgroupfs
		cgroupRoot: $cgroup
		failSwapOn: false
		containerRuntimeEndpoint: unix://$run/containerd.sock
		authentication: {x509: {clientCAFile: $run/cluster/pki/ca.crt}}
		imageGCHighThresholdPercent: 100
		evictionHard: {memory.available: 100Mi, nodefs.available: 1%, imagefs.available: 1%}
	YAML
	start kubelet kubelet --config="$run/kubelet.yaml" --kubeconfig="$KUBECONFIG" --root-dir="$run/kubelet" --cert-dir="$run/kubelet-pki" \
		--hostname-override=node-1 --node-ip="$node_ip"
	eventually 90 kubectl wait --for=condition=Ready node/node-1 --timeout=1s
}

# volumes: a default storage class, and a volume for one claim.
volumes() {
	mkdir -p "$run/volume"
	kubectl apply -f - >/dev/null <<-YAML
		apiVersion: storage.k8s.io/v1
		kind: StorageClass
		metadata: {name: local, annotations: {storageclass.kubernetes.io/is-default-class: "true"}}
		provisioner: kubernetes.io/no-provisioner
		volumeBindingMode: WaitForFirstConsumer
		---
		apiVersion: v1
		kind: PersistentVolume
		metadata: {name: volume}
		spec:
		  capacity: {storage: 10Gi}
		  accessModes: [ReadWriteOnce]
		  storageClassName: local
		  local: {path: $run/volume}
		  nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [node-1]}]}]}}
	YAML
}
