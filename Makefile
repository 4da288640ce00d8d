# Every target is a plain command: copy it from here when you need a variation.
GOLANGCI := bin/golangci-lint
GOLDEN   := ./analysis/critpath ./analysis/detect ./analysis/group ./api ./cct ./bench/benchdoc ./bench/benchreport ./bench/sim ./client ./config ./notify ./report ./report/waterfall # packages with golden files or scripts
FUZZTIME ?= 20s
PARTS    ?= # of docs/benchmarks.md; none: all

.PHONY: help
help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 18

.PHONY: run test check format vet lint race soak vulnerabilities fuzz golden bench generate build web test-web screens
run: build ## watch Sibyl find a fault in a running shop; Ctrl-C ends it
	bin/sibylbench demo # not go run, which says that it failed whenever it is ended

build: ## bin/sibyl and bin/sibylbench, static
	CGO_ENABLED=0 go build -trimpath -ldflags="-s -w" -o bin/ ./cmd/sibyl ./cmd/sibylbench

test: ## all tests, quick; those of the web UI install Chromium where it lacks
	go test ./...
	web/browser/run
	go -C agents/tracepoint test ./...
	go -C agents/tracepoint/integration test ./...

check: format vet lint test race ## all that CI asks for, but the generated files

format: $(GOLANGCI) ## fail if a file is not formatted (mend with: bin/golangci-lint fmt)
	$(GOLANGCI) fmt --diff # of the modules below, too

vet: ## go vet
	go vet ./...
	go -C agents/tracepoint vet ./...
	go -C agents/tracepoint/integration vet ./...

lint: $(GOLANGCI) ## the linters of .golangci.yml
	$(GOLANGCI) run
	cd agents/tracepoint && ../../$(GOLANGCI) run
	cd agents/tracepoint/integration && ../../../$(GOLANGCI) run

race: ## all tests under the race detector
	go test -race -timeout 30m ./...
	go -C agents/tracepoint test -race ./...
	go -C agents/tracepoint/integration test -race ./...

soak: build ## kills, overload, attacks and a full disk at full length: half an hour
	go test ./server -count 1 -timeout 2h -v -soak
	bin/sibylbench overload --time 60s -- --learning 10s

vulnerabilities: ## known ones in what is linked; asks vuln.go.dev
	go run golang.org/x/vuln/cmd/govulncheck@v1.1.4 ./...

fuzz: ## every fuzz test for FUZZTIME
	.ci/fuzz $(FUZZTIME)

golden: ## rewrite what tests compare with; read the diff
	go test $(GOLDEN) -rewrite
	go test ./server -run Document -rewrite

bench: build ## measure and write docs/benchmarks.md: hours; some of it: make bench PARTS="group ingest"
	go run ./bench/benchdoc $(PARTS)

web: ## make the web UI again, in web/dist; needs Node 20 or later
	cd web && npm ci && npm run generate && npm run check && npm run build
	go run ./web/pack web/dist

test-web: ## the tests of the web UI alone
	web/browser/run

screens: ## make the pictures of the web UI in docs/images again
	web/browser/run screens

generate: ## make again what is made by programs
	go generate ./...

$(GOLANGCI):
	GOBIN=$(CURDIR)/bin go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
