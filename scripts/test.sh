#!/usr/bin/env bash
# Every test of every module. The API server is built and Kafka is fetched first:
# cold, that takes longer than go test would wait. Where the program runs as a process,
# go test does not see that it has changed: -count=1.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/go.sh
cluster=$(scripts/cluster.sh)
say "API server: $cluster"
kafka=$(scripts/kafka.sh)
say "Kafka: $kafka"
say "== the main module"
go test -race ./...
say "== the model of the pipeline: 1,000 random runs"
go test -count=1 ./internal/pipeline/model -model.runs=1000
say "== test/cluster: the API server of the tests"
(cd test/cluster/clustertest && go test -race -p 1 ./...)
say "== test/library: pkg/source and pkg/event as a library"
(cd test/library && go test -race -p 1 ./...)
say "== test/cloudevents: messages of both buses, read with the CloudEvents SDK"
(cd test/cloudevents && go test -race ./...)
say "== test/browser: the status page in Chromium"
command -v chromium >/dev/null || command -v google-chrome >/dev/null || apt_install chromium fonts-dejavu-core
(cd test/browser && go test ./...)
say "== test/kafka: the Kafka sink, and the program, against Apache Kafka"
(cd test/kafka && go test -race -count=1 -p 1 -timeout 60m ./...)
say "== test/compose: docker-compose.yaml and the Dockerfile"
(cd test/compose && go test -timeout 25m ./...)
say "== test/chart: the Helm chart, by Helm and on the API server"
(cd test/chart && go test -count=1 -timeout 15m ./...)
say "== test/alerts: alerts and dashboard by Prometheus' engine"
(cd test/alerts && go test -count=1 ./...)
say "clients for the examples: $(scripts/clients.sh)"
say "== test/e2e: the program against real servers, and two short seeds of faults for every sink and store"
(cd test/e2e && go test -count=1 -p 1 -timeout 25m ./...)
say "== bench: what the benchmark's figures rest on"
(cd bench && go test -race ./...)
