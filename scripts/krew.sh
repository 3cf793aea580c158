#!/usr/bin/env bash
# The manifest of the kubectl plugin `bridge` for krew, made of the archives that a directory's SHA256SUMS names.
#
#   scripts/krew.sh v1.2.3 dist >bridge.yaml
set -euo pipefail
version=$1 dist=$2
cat <<YAML
apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: bridge
spec:
  version: $version
  homepage: https://github.com/kubebridge/kubebridge
  shortDescription: Stream Kubernetes changes to Kafka or NATS
  description: |
    Shows the changes of resources (kubectl bridge tail), what a configuration of
    kubebridge would publish and cost, and what a running bridge is doing.
  platforms:
YAML
while read -r sum file; do
	[[ $file =~ ^kubebridge_.*_([a-z]+)_([a-z0-9]+)\.(tar\.gz|zip)$ ]] || continue
	program=bridge
	[ "${BASH_REMATCH[1]}" = windows ] && program=bridge.exe
	cat <<YAML
    - selector:
        matchLabels: {os: ${BASH_REMATCH[1]}, arch: ${BASH_REMATCH[2]}}
      uri: https://github.com/kubebridge/kubebridge/releases/download/$version/$file
      sha256: $sum
      files:
        - {from: "*/$program", to: .}
        - {from: "*/LICENSE", to: .}
      bin: $program
YAML
done <"$dist/SHA256SUMS"
