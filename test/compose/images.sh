#!/usr/bin/env bash
# images.sh DIRECTORY JARS: root file systems for the compose file's Kafka and NATS, as archives there. They have what the real images
# are made of: Kafka's jars, whose KafkaDockerWrapper turns KAFKA_ variables into server.properties, and the NATS server.
set -euo pipefail
cd "$(dirname "$0")/../.."
. test/node/lib.sh
work=$1 jars=$2

# jre ROOT: a Debian with Java, made once.
jre() {
	local root=$1 suite
	[ ! -d "$root" ] || return 0
	suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
	rm -rf "$root.part"
	debootstrap --variant=minbase --include=default-jre-headless "$suite" "$root.part" >"$work/debootstrap.log"
	rm -rf "$root.part"/var/{cache/apt,lib/apt/lists}/* "$root.part"/usr/share/{doc,man,locale}
	echo appuser:x:1000:1000::/home/appuser:/bin/bash >>"$root.part/etc/passwd"
	echo appuser:x:1000: >>"$root.part/etc/group"
	mv "$root.part" "$root"
}

kafka() {
	local root=$work/kafka
	jre "$root"
	rm -rf "$root/opt/kafka"
	mkdir -p "$root"/opt/kafka/{bin,config} "$root"/etc/kafka/docker "$root"/mnt/shared/config "$root"/var/lib/kafka/data
	cp -rL "$jars" "$root/opt/kafka/libs"
	cat >"$root/opt/kafka/bin/run" <<-'SH'
		#!/bin/bash
		set -e
		if ! said=$(java -cp '/opt/kafka/libs/*' kafka.docker.KafkaDockerWrapper setup --default-configs-dir /etc/kafka/docker \
			--mounted-configs-dir /mnt/shared/config --final-configs-dir /opt/kafka/config 2>&1); then
			grep -q 'already formatted' <<<"$said" || { echo "$said"; exit 1; } # after a restart, as the real image does it
		fi
		exec java -Xmx512m -Dorg.slf4j.simpleLogger.defaultLogLevel=warn -cp '/opt/kafka/libs/*' kafka.Kafka /opt/kafka/config/server.properties
	SH
	# Kafka's tools are not among the jars: a connection stands for what this one would ask.
	cat >"$root/opt/kafka/bin/kafka-broker-api-versions.sh" <<-'SH'
		#!/bin/bash
		exec 3<>"/dev/tcp/${2%:*}/${2#*:}"
	SH
	chmod +x "$root"/opt/kafka/bin/*
	touch "$root"/etc/kafka/docker/{server.properties,log4j2.yaml,tools-log4j2.yaml}
	chown -R 1000:1000 "$root"/opt/kafka/config "$root/var/lib/kafka"
	tar -C "$root" -cf "$work/kafka.tar" .
}

nats() {
	local root=$work/nats
	rm -rf "$root"
	mkdir -p "$root"/{bin,data,tmp}
	unpack "$work/debs" "$root" busybox-static
	local applet
	for applet in sh wget; do ln -sf busybox "$root/bin/$applet"; done
	cp "$work/bin/nats-server" "$root/bin/"
	tar -C "$root" -cf "$work/nats.tar" .
	rm -rf "$root"
}

kafka
nats
step "stand-ins for the images of Kafka and NATS"
