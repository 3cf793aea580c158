#!/usr/bin/env bash
# Packages the chart as `helm package` does, with the version of a release. The same commit gives the same bytes, which Helm's do not.
# IMAGE=registry.example.com/kubebridge is where the image of that version is.
#
#   scripts/chart.sh v1.2.3 DIRECTORY      makes DIRECTORY/kubebridge-1.2.3.tgz
set -euo pipefail
version=${1#v} dist=$(realpath "$2")
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
tar -C charts --exclude-from=<(sed 's:/$::' charts/kubebridge/.helmignore) -cf - kubebridge | tar -C "$work" -x
sed -i "s/^version: .*/version: $version/; s/^appVersion: .*/appVersion: $version/" "$work/kubebridge/Chart.yaml"
[ -z "${IMAGE:-}" ] || sed -i "s#^  registry: \"\"\$#  registry: ${IMAGE%%/*}#; s#^  repository: kubebridge\$#  repository: ${IMAGE#*/}#" "$work/kubebridge/values.yaml"
tar -C "$work" --sort=name --mtime="@$(git log -1 --format=%ct)" --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX -cf - kubebridge | gzip -9n >"$dist/kubebridge-$version.tgz"
