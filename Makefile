# Every target is a plain command: copy it from here when you need a variation.
GOLANGCI := bin/golangci-lint
NODE     := web/node_modules/.package-lock.json
GOLDEN   := ./analysis ./api ./cct ./cmd/benchdoc ./cmd/sibyl/client ./cmd/sibyl/config ./cmd/sibyl/report ./cmd/sibyl/scores ./cmd/sibyl/waterfall ./internal/simapp ./notify # packages with golden files or scripts
FUZZTIME ?= 20s
PARTS    ?= # of docs/benchmarks.md; none: all

.PHONY: help
help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 18

.PHONY: run test check format vet lint race soak vulnerabilities fuzz golden bench generate build web test-web screens
run: build ## watch Sibyl find a fault in a running shop; Ctrl-C ends it
	bin/sibyl demo # not go run, which says that it failed whenever it is ended

build: ## bin/sibyl, static
	CGO_ENABLED=0 go build -trimpath -o bin/sibyl ./cmd/sibyl

test: ## all tests, quick; those of the web UI install Chromium where it lacks
	go test ./...
	web/browser/run
	go -C agents/tracepoint test ./...
	go -C agents/tracepoint/integration test ./...

check: format vet lint test race ## all that CI asks for, but the generated files

format: $(GOLANGCI) $(NODE) ## fail if a file is not formatted (fix with: bin/golangci-lint fmt; cd web && npm run format)
	$(GOLANGCI) fmt --diff # of the modules below, too
	cd web && npm run -s format:check

vet: ## go vet
	go vet ./...
	go -C agents/tracepoint vet ./...
	go -C agents/tracepoint/integration vet ./...

lint: $(GOLANGCI) $(NODE) ## the linters of .golangci.yml, and ESLint with web/eslint.config.js
	$(GOLANGCI) run
	cd agents/tracepoint && ../../$(GOLANGCI) run
	cd agents/tracepoint/integration && ../../../$(GOLANGCI) run
	cd web && npm run -s lint

race: ## all tests under the race detector
	go test -race -timeout 30m ./...
	go -C agents/tracepoint test -race ./...
	go -C agents/tracepoint/integration test -race ./...

soak: ## kills, overload, attacks and a full disk at full length: half an hour
	go test ./cmd/sibyl/server -count 1 -timeout 2h -v -soak
	go run ./cmd/sibyl bench overload --time 60s -- --learning 10s

vulnerabilities: ## known ones in what is linked; asks vuln.go.dev
	go run golang.org/x/vuln/cmd/govulncheck@v1.1.4 ./...

fuzz: ## every fuzz test for FUZZTIME
	.ci/fuzz $(FUZZTIME)

golden: ## rewrite what tests compare with; read the diff
	go test $(GOLDEN) -rewrite
	go test ./cmd/sibyl/server -run Document -rewrite

bench: build ## measure and write docs/benchmarks.md: hours; some of it: make bench PARTS="group ingest"
	go run ./cmd/benchdoc -sibyl bin/sibyl $(PARTS)

web: ## make the web UI again, in web/dist; needs Node 20 or later
	cd web && npm ci && npm run generate && npm run check && npm run build
	go run ./web/pack web/dist

test-web: ## the tests of the web UI alone
	web/browser/run

screens: ## make the pictures of the web UI in docs/images again
	web/browser/run screens

generate: ## make again what is made by programs
	go generate ./...

$(NODE): web/package-lock.json
	cd web && npm ci

$(GOLANGCI):
	GOBIN=$(CURDIR)/bin go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
