# make demo and make test are all that a fresh machine needs: they install or
# build what is missing. The logic is in scripts/.

SHELL := bash
.DEFAULT_GOAL := help

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 14

build: ## bin/bridge
	scripts/build.sh

demo: ## a cluster's changes, streamed and shown (DEMO_SECONDS=n ends it by itself)
	scripts/demo.sh

test: ## every test of every module, on real servers
	scripts/test.sh

test-quick: ## the tests of the main module: in process, about a minute
	. scripts/go.sh && go test -race ./...

lint: ## formatting, linters and the direction of imports
	scripts/lint.sh

fmt: ## format the code
	. scripts/go.sh && go tool -modfile=tools/go.mod gofumpt -w cmd internal pkg test

clean: ## remove what was built and the demo's state
	rm -rf bin var .cache

.PHONY: help build demo test test-quick lint fmt clean
