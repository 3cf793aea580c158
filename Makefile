# make demo and make test are all that a fresh machine needs: they install or
# build what is missing. The logic is in scripts/.

SHELL := bash
.DEFAULT_GOAL := help

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 15

build: ## bin/bridge
	scripts/build.sh

demo: ## a cluster's changes, streamed and shown (DEMO_SECONDS=n ends it by itself)
	scripts/demo.sh

test-quick: ## the main module, in process: three minutes
	. scripts/go.sh && go test -short -p 4 ./...

test: ## what guards each promise, on real servers: seven minutes
	scripts/test.sh

test-all: ## every test of every module, with the race detector, and how long each suite took in test/results/suites.txt: an hour
	scripts/test.sh all

lint: ## formatting, linters and the direction of imports
	scripts/lint.sh

docs: ## the documentation site in var/site, with its links and anchors checked (needs PyPI)
	scripts/docs.sh

fmt: ## format the code
	. scripts/go.sh && go tool -modfile=tools/go.mod gofumpt -w cmd internal pkg test

bench: ## how fast the bridge is, beside a floor and a baseline (BENCH="-bench latency" and other flags of bench/)
	scripts/bench.sh $(BENCH)

bench-compare: ## the latest run of make bench with an older one: OLD=file
	scripts/bench.sh compare $(OLD)

campaign: ## 300 seeds of faults, resumable: SEEDS=n, FIRST=n, or one again: SEED=n PAIR=nats-eo/nats (docs/reliability.md)
	SEEDS="$(SEEDS)" FIRST="$(FIRST)" SEED="$(SEED)" PAIR="$(PAIR)" scripts/campaign.sh $(CAMPAIGN)

kills: ## two entries of one resource, edited under load while the bridge is killed 30 times, for every sink and store: KILLS=30 (docs/reliability.md)
	SEEDS="$(or $(SEEDS),10)" SEED="$(SEED)" PAIR="$(PAIR)" scripts/campaign.sh -out var/kills -kills "$(or $(KILLS),30)"

hostile: ## a tenant that sends the most costly objects there are, and how long others' changes take beside it: HOSTILE=42s (docs/reliability.md)
	. scripts/go.sh && scripts/cluster.sh && cd test/e2e && go test -count=1 -v -run TestHostileTenant . -tenant.for="$(or $(HOSTILE),42s)"

serve-clients: ## what controller-runtime, client-go, Prometheus, kopf, kubectl and k9s read from bridge serve and from the API server: RUN='TestControllerRuntime|TestKubectl' (docs/serve.md)
	. scripts/go.sh && scripts/cluster.sh && K9S=$$(scripts/k9s.sh) && export K9S && cd test/serve && go test -count=1 -p 1 -v -timeout 20m -run '$(or $(RUN),.)' .

outage: ## Apache Kafka away for long while objects change and the bridge is killed, with a disk buffer and without, and with restarts of an API server: OUTAGE=10m WRITES=50000 KILLS=20 RESTARTS=3 FORMS="buffer no-buffer" (docs/reliability.md)
	OUTAGE="$(OUTAGE)" WRITES="$(WRITES)" KILLS="$(KILLS)" RESTARTS="$(RESTARTS)" FORMS="$(FORMS)" scripts/outage.sh

audit: ## many users change objects in all ways while the bridge is killed and audit records are lost, and no wrong user is named; and what records cost: WRITES=100000 KILLS=20 SEED=1 FORMS="batch two complete complete-two file complete-file dropped dropped-file reads" (docs/reliability.md)
	WRITES="$(WRITES)" KILLS="$(KILLS)" SEED="$(SEED)" FORMS="$(FORMS)" scripts/audit.sh

serve-scale: ## bridge serve with many objects, watches and changes: start, memory, lists, and that no watch misses or repeats a change: OBJECTS=1000000 WATCHERS=10000 RATE=1000 FOR=30 SLICE= (docs/serve.md)
	OBJECTS="$(OBJECTS)" WATCHERS="$(WATCHERS)" RATE="$(RATE)" FOR="$(FOR)" SLICE="$(SLICE)" scripts/serve-scale.sh

soak: ## hours at a steady rate with faults, and what the bridges take meanwhile, or with disk buffers and a bus that is away a third of the time: SOAK=1h AWAY=1m (docs/reliability.md)
	scripts/campaign.sh -out var/soak -soak "$(or $(SOAK),1h)" -away "$(or $(AWAY),0)"

model: ## random runs of the pipeline's model, with minimised failures: SEED=1 RUNS=10000
	. scripts/go.sh && go test -count=1 -timeout 3h -run 'TestTraces|TestRandom' ./internal/bridge/model -model.seed=$(or $(SEED),1) -model.runs=$(or $(RUNS),10000)

compat: ## the core of the tests on other API servers, Kafkas and NATS servers, and an upgrade: KUBERNETES="v1.34.4" KAFKA= NATS= UPGRADE= (docs/compatibility.md)
	scripts/compat.sh

explore: ## what internal/core/reconcile decides, in every way that is reachable: STATES=100000 PAIRSTATES=50000 WALKS=20000
	. scripts/go.sh && go test -count=1 -timeout 3h -v -run 'TestPairs|TestExplore|TestWalk|TestWays|TestCoverage' ./internal/core/reconcile -explore.writes=4 -explore.disturbances=3 -explore.states=$(or $(STATES),100000) -explore.pairstates=$(or $(PAIRSTATES),50000) -explore.walks=$(or $(WALKS),20000)

explore-mutants: ## changes to what internal/core/reconcile decides, and which of them its tests find: MUTANTS=all WALKS=60
	. scripts/go.sh && go test -count=1 -timeout 3h -v -run TestMutants ./internal/core/reconcile -explore.mutants='$(or $(MUTANTS),all)' -explore.writes=4 -explore.disturbances=3 -explore.walks=$(or $(WALKS),60)

mutants: ## which changes to the pipeline the model finds (SEED=1 RUNS=1000)
	. scripts/go.sh && go run ./internal/bridge/model/mutants -seed=$(or $(SEED),1) -runs=$(or $(RUNS),1000)

fuzz: ## every fuzz target in turn, FUZZTIME=10m each
	FUZZTIME="$(or $(FUZZTIME),10m)" scripts/fuzz.sh $(FUZZ)

test-node: ## the Dockerfile's image in the chart's pods, on a real kubelet, with faults, and the quick starts' commands in an empty Debian: root, on Linux (FORM=short: install, kill -9, uninstall)
	scripts/node.sh $(FORM)
	@[ "$(FORM)" = short ] || scripts/quickstart.sh

test-compose: ## docker-compose.yaml without its web pages, with Debian's Docker engine: root, on Debian
	scripts/compose.sh

licenses: ## the licence of every module that is linked in
	scripts/licenses.sh

vuln: ## known vulnerabilities in what every module calls; needs the network, or GOVULNDB=file:///copy/of/the/database
	GOVULNDB="$(GOVULNDB)" scripts/vuln.sh

release: ## static programs, the chart, checksums and lists of contents in dist/ (VERSION=v1.2.3)
	scripts/release.sh

clean: ## remove what was built and the demo's state
	rm -rf bin dist var .cache bench/bin bench/var

.PHONY: help build demo test test-quick test-all test-node test-compose lint docs fmt bench bench-compare campaign kills hostile serve-clients serve-scale outage audit soak model compat explore explore-mutants mutants fuzz licenses vuln release clean
