# Names for the things that are done here. All of them work in a fresh clone.

.PHONY: help
help: ## show this
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 14

.PHONY: build
build: ## bin/sluice, static
	CGO_ENABLED=0 go build -trimpath -o bin/sluice ./cmd/sluice

.PHONY: test
test: ## the whole gate, as in CI: style, lint, unit, integration with real Redis and Envoy, fuzz, benchmarks
	.ci/run

.PHONY: tools
tools: ## redis-server, Envoy and golangci-lint into .cache/bin
	scripts/tools.sh

.PHONY: unit
unit: ## unit tests with the race detector
	.ci/run unit

.PHONY: integration
integration: ## the binary with real Redis and Envoy
	.ci/run integration

.PHONY: lint
lint: ## all checks that run no test
	.ci/run tools tidy format vet fix house lint

.PHONY: format
format: tools ## mend the formatting
	.cache/bin/golangci-lint fmt

.PHONY: bench
bench: ## benchmarks, ten runs each, for benchstat
	go test -run '^$$' -bench . -count 10 ./...

.PHONY: long
long: ## each fuzz target for two minutes, reloads under load, clients of other languages, many connections
	FUZZTIME=2m .ci/run fuzz
	.ci/run long endure
	go test ./cmd/sluice -run TestReloadUnderFire -fire 30s
