#!/usr/bin/env bash
# images.sh DIRECTORY JARS: root file systems for the compose file's Kafka and NATS, as archives there. They have what the real images
# are made of: Kafka's jars, whose KafkaDockerWrapper turns KAFKA_ variables into server.properties, and the NATS server.
set -euo pipefail
cd "$(dirname "$0")/../.."
. test/node/lib.sh
work=$1 jars=$2

kafka() {
	local root=$work/kafka suite
	suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
	rm -rf "$root"
	debootstrap --variant=minbase --include=default-jre-headless "$suite" "$root" >"$work/debootstrap.log"
	rm -rf "$root"/var/{cache/apt,lib/apt/lists}/* "$root"/usr/share/{doc,man,locale}
	mkdir -p "$root"/opt/kafka/{bin,config} "$root"/etc/kafka/docker "$root"/mnt/shared/config "$root"/var/lib/kafka/data
	cp -rL "$jars" "$root/opt/kafka/libs"
	cat >"$root/opt/kafka/bin/run" <<-'SH'
		#!/bin/bash
		set -e
		java -cp '/opt/kafka/libs/*' kafka.docker.KafkaDockerWrapper setup --default-configs-dir /etc/kafka/docker \
			--mounted-configs-dir /mnt/shared/config --final-configs-dir /opt/kafka/config
		exec java -Xmx512m -Dorg.slf4j.simpleLogger.defaultLogLevel=warn -cp '/opt/kafka/libs/*' kafka.Kafka /opt/kafka/config/server.properties
	SH
	# Kafka's tools are not among the jars: a connection stands for what this one would ask.
	cat >"$root/opt/kafka/bin/kafka-broker-api-versions.sh" <<-'SH'
		#!/bin/bash
		exec 3<>"/dev/tcp/${2%:*}/${2#*:}"
	SH
	chmod +x "$root"/opt/kafka/bin/*
	touch "$root"/etc/kafka/docker/{server.properties,log4j2.yaml,tools-log4j2.yaml}
	echo appuser:x:1000:1000::/home/appuser:/bin/bash >>"$root/etc/passwd"
	echo appuser:x:1000: >>"$root/etc/group"
	chown -R 1000:1000 "$root"/opt/kafka/config "$root/var/lib/kafka"
	tar -C "$root" -cf "$work/kafka.part" .
	mv "$work/kafka.part" "$work/kafka.tar"
	rm -rf "$root"
}

nats() {
	local root=$work/nats
	rm -rf "$root"
	mkdir -p "$root"/{bin,data,tmp}
	(cd "$work/debs" && apt-get download -qq busybox-static 2>/dev/null)
	dpkg -x "$work"/debs/busybox-static_*.deb "$root"
	local applet
	for applet in sh wget; do ln -sf busybox "$root/bin/$applet"; done
	cp "$work/bin/nats-server" "$root/bin/"
	tar -C "$root" -cf "$work/nats.tar" .
	rm -rf "$root"
}

[ -e "$work/kafka.tar" ] || kafka
nats
step "stand-ins for the images of Kafka and NATS"
