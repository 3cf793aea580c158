#!/usr/bin/env bash
# Makes sure that Apache Kafka can run in the tests: a JDK 17 or newer (the example in
# Java is run from its source) and Maven, from Debian's packages where they are missing,
# and Kafka's jars, through Maven; prints where they are. KUBEBRIDGE_KAFKA_VERSION=3.9.2
# selects a version. With KUBEBRIDGE_KAFKA=host:port the tests use that Kafka instead.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/go.sh

java_is_new_enough() {
	local version
	command -v javac >/dev/null || return 1
	version=$(java -version 2>&1 | sed -n 's/^[a-z]* version "\([0-9]*\).*/\1/p') || return 1
	[ "${version:-0}" -ge 17 ]
}

if [ -n "${KUBEBRIDGE_KAFKA:-}" ]; then
	say "using the Kafka at $KUBEBRIDGE_KAFKA"
	echo "$KUBEBRIDGE_KAFKA"
	exit
fi
missing=()
java_is_new_enough || missing+=(default-jdk-headless)
command -v mvn >/dev/null || missing+=(maven)
if [ ${#missing[@]} -gt 0 ]; then
	command -v apt-get >/dev/null || {
		say "install a JDK 17 or newer and Maven, or set KUBEBRIDGE_KAFKA=host:port to test with a Kafka that is there"
		exit 1
	}
	apt_install "${missing[@]}"
	java_is_new_enough || { say "$(java -version 2>&1 | head -n 1) is too old, or no JDK: install a JDK 17 or newer and put it first in PATH"; exit 1; }
fi
go -C test/kafka run ./cmd/fetch-kafka
