# Every target is a plain command: copy it from here when you need a variation.
GOLANGCI := bin/golangci-lint
GREMLINS := bin/gremlins
NODE     := web/node_modules/.package-lock.json
GOLDEN   := ./analysis/critpath ./analysis/detect ./analysis/group ./api ./cct ./internal/testkit/sim ./client ./config ./engine ./notify ./report ./report/waterfall # packages with golden files or scripts
GOTEST   ?= go test # CI lists skipped tests with another program
FUZZTIME ?= 20s
PARTS    ?= # of bench/benchdoc; empty: all
MUTATE   ?= analysis cct search engine ingest control store notify # folders, including subfolders
SAMPLE   ?= # mutants per folder; empty: all, which takes many hours
SEED     ?= 1
DESCRIBED ?= $(shell git describe --tags --always --dirty 2>/dev/null) # version of the build
PACKAGE_VERSION ?= $(shell echo "$(strip $(DESCRIBED))" | sed -e '/^v[0-9]/!s/^/v0.0.0~/' -e 's/^v//' -e 's/-/./g')

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 18

.PHONY: run cluster test test-long check format vet lint race soak vulnerabilities sbom fuzz mutate golden bench bpf jvm android classify-set generate notices tidy build image packages web test-web screens
run: ## watch Sibyl find a fault in a running shop; Ctrl-C ends it
	@test -x bin/sibylbench || echo 'Building Sibyl. The first time, this takes some minutes.'
	@$(MAKE) --no-print-directory -s build
	@bin/sibylbench demo

cluster: build ## run three replicas over three brokers of Kafka, and kill them while a fault is in the traces; about ten minutes
	@command -v java >/dev/null && command -v mvn >/dev/null || { apt-get update -qq; apt-get install -y -qq default-jdk-headless maven; }
	bin/sibylbench cluster

build: ## build bin/sibyl and bin/sibylbench, static
	CGO_ENABLED=0 go build -tags grpcnotrace -trimpath -ldflags="-s -w -X main.described=$(strip $(DESCRIBED))" -o bin/ ./cmd/sibyl ./bench/cmd/sibylbench # without the tag, grpc links html/template

test: ## run all quick tests; installs Chromium for those of the web UI if it is missing
	$(GOTEST) -timeout 30m ./...
	web/browser/run
	cd bench && $(GOTEST) -timeout 30m ./...
	cd agents/tracepoint && $(GOTEST) ./...
	cd agents/tracepoint/integration && $(GOTEST) ./...
	agents/jvm/test
	agents/android/test

test-long: ## run the tests that make test shortens or skips, each alone: they wait for kills, disks, JVMs and the kernel
	go test ./engine/live -run HostileDisk -count 1 -v -length 15s
	go test ./server -run Killed -count 1 -v -long
	go test ./agents/kernel/steer -run ExplainsWaits -count 1 -timeout 3m -v -long # its processes have real-time priority
	JDK_JAVA_OPTIONS=-Xshare:auto go test ./agents/jvm -run 'Services|Granularity|Waits' -count 1 -v -long

check: format vet lint test race ## run every check of CI except that of generated files

format: $(GOLANGCI) $(NODE) ## fail if a file is not formatted; fix with bin/golangci-lint fmt and npm run format
	$(GOLANGCI) fmt --diff # includes the nested modules
	cd web && npm run -s format:check

vet: ## run go vet
	go vet ./...
	go -C bench vet ./...
	go -C agents/tracepoint vet ./...
	go -C agents/tracepoint/integration vet ./...

lint: $(GOLANGCI) $(NODE) ## run the linters: .golangci.yml and web/eslint.config.js
	$(GOLANGCI) run
	cd bench && ../$(GOLANGCI) run
	cd agents/tracepoint && ../../$(GOLANGCI) run
	cd agents/tracepoint/integration && ../../../$(GOLANGCI) run
	cd web && npm run -s lint

PURE     := analysis|cct|incident|search|trace|internal/codec # with the packages below: they start no goroutines, as internal/archtest checks
# These packages start no goroutines either, except tests of agents/jvm: it is about what happens in JVMs, which the
# race detector does not see.
EXTERNAL := agents/jvm|internal/testkit/sim|report|web|internal/archtest

race: ## run all tests under the race detector, except long simulations and packages without goroutines
	go test -race -short -timeout 30m $$(go list ./... | grep -vE '/sibyl/($(strip $(PURE))|$(EXTERNAL))(/|$$)') # -short: simulations take ten times as long, and one of each kind runs all goroutines
	go -C bench test -race -short -timeout 30m $$(go -C bench list ./... | grep -v /ownclasses)
	go -C agents/tracepoint test -race ./...
	go -C agents/tracepoint/integration test -race ./...

soak: build ## test kills, overload, attacks, floods and failing disks at full length: an hour and a half
	go test ./engine/live -run HostileDisk -count 1 -timeout 1h -v -length 2m
	go test ./server -skip Floods -count 1 -timeout 2h -v -soak
	go test ./server -run Floods -count 1 -timeout 2h -v -soak # an hour; needs a writable memory cgroup
	go -C bench test ./cmd/sibylbench -run 'Overload|DemoExplains|JVM' -count 1 -timeout 2h -v -soak
	go test ./agents/kernel -run NoWrongTrace -count 1 -v -waits 100000
	agents/jvm/test -Dtoggles=1000 -Dsoak
	JDK_JAVA_OPTIONS=-Xshare:auto go test ./agents/jvm -run 'Services|Waits' -count 1 -timeout 1h -v -long -requests 100000 -rounds 1000
	bin/sibylbench overload --time 60s -- --learning 10s

vulnerabilities: ## list known vulnerabilities in linked code; queries vuln.go.dev
	go run golang.org/x/vuln/cmd/govulncheck@v1.1.4 ./...

sbom: build ## write the bill of materials of bin/sibyl, in CycloneDX
	go run github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.9.0 bin -json -output bin/sibyl.cdx.json bin/sibyl

image: build ## build a container image from scratch: the OCI layout bin/image; MINISIGN_KEY=file signs it
	go run ./deploy/image -binary bin/sibyl -version "$(strip $(DESCRIBED))" bin/image
	.ci/sign bin/image "$(strip $(DESCRIBED))" $$(find bin/image -type f -printf '%P ')

packages: build ## build the Debian and the RPM package in bin/packages; MINISIGN_KEY=file signs them
	rm -rf bin/packages bin/man && mkdir -p bin/packages bin/completion bin/man
	go test ./cmd/sibyl -run '^TestManPages$$' -man $(CURDIR)/bin/man
	for shell in bash zsh fish; do bin/sibyl completion $$shell >bin/completion/sibyl.$$shell || exit 1; done
	for format in deb rpm; do \
	  PACKAGE_ARCH=$$(go env GOARCH) PACKAGE_VERSION=$(PACKAGE_VERSION) go run github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.45.2 package --config deploy/package/nfpm.yaml --packager $$format --target bin/packages/ >bin/made.$$format || exit 1; \
	done
	.ci/sign bin/packages $(PACKAGE_VERSION) $$(sed -n 's|^created package: bin/packages/||p' bin/made.deb bin/made.rpm)

fuzz: ## run every fuzz test for FUZZTIME; CI runs six of them in turn
	.ci/fuzz $(FUZZTIME)

mutate: $(GREMLINS) ## measure the tests by injecting faults into the code; takes hours: make mutate MUTATE="cct control" SAMPLE=50 SEED=1
	SAMPLE=$(SAMPLE) SEED=$(SEED) .ci/mutate $(GREMLINS) $(MUTATE)

golden: ## rewrite golden files and scripts of tests; review the diff
	go test $(GOLDEN) -rewrite
	go -C bench test ./benchdoc ./benchreport -rewrite
	go test ./server -run Document -rewrite

bench: build ## run benchmarks and write bench/results; takes hours, for parts: make bench PARTS="group ingest"
	go run ./bench/benchdoc $(PARTS)

web: ## rebuild the web UI in web/dist; needs Node 20 or later
	cd web && npm ci && npm run generate && npm run check && npm run build
	go run ./web/pack web/dist

test-web: ## run only the tests of the web UI
	web/browser/run

screens: ## recreate the pictures of the UI and of the report in docs/images
	web/browser/run screens

AGENT := github.com/sibyl-trace/sibyl/agents/tracepoint
tidy: ## run go mod tidy in all modules; see docs/adr/0003-modules.md
	go mod edit -replace $(AGENT)=./agents/tracepoint # go mod tidy ignores go.work
	GOWORK=off go mod tidy; status=$$?; go mod edit -dropreplace $(AGENT); exit $$status
	GOWORK=off go -C bench mod tidy
	GOWORK=off go -C agents/tracepoint mod tidy
	GOWORK=off go -C agents/tracepoint/integration mod tidy

BPF2GO := go run github.com/cilium/ebpf/cmd/bpf2go@v0.22.0
bpf: ## rebuild the kernel agent's probes; installs Debian's clang and the headers of libbpf if they are missing
	test -x /usr/bin/clang-19 -a -e /usr/include/bpf/bpf_helpers.h || { apt-get update && apt-get install -y --no-install-recommends clang-19 llvm-19 libbpf-dev; }
	$(BPF2GO) -go-package bpf -output-dir agents/kernel/bpf -cc clang-19 -strip llvm-strip-19 -target amd64,arm64 -tags linux \
		-type event -type open Wait agents/kernel/bpf/wait.bpf.c -- -mcpu=v3 -Wall -Werror
	gzip -9 --no-name --force agents/kernel/bpf/wait_*_bpfel.o
	sed -i 's/bytes.NewReader(_WaitBytes)/unpack(_WaitBytes)/; /^\t"bytes"$$/d; s/^\(\/\/go:embed .*\.o\)$$/\1.gz/' agents/kernel/bpf/wait_*_bpfel.go

classify-set: ## train and judge the classifier of own classes; downloads 1 GB of applications with apt and Maven, takes 10 minutes
	go run ./bench/ownclasses

jvm: ## rebuild the agent for the JVM in agents/jvm/dist; needs a JDK of Java 17, with which it is the same byte for byte, and Maven
	cd agents/jvm && rm -rf target && mvn --batch-mode --no-transfer-progress --quiet package -DskipTests
	mkdir -p agents/jvm/dist && go run ./agents/jvm/pack agents/jvm/target/sibyl-agent.jar agents/jvm/dist/sibyl-agent.jar.zst

android: ## build the weaver for Android apps, agents/android/target/sibyl-weaver.jar; needs a JDK of Java 17 or later and Maven
	cd agents/android && mvn --batch-mode --no-transfer-progress --quiet package -DskipTests

generate: ## recreate all generated files
	go generate ./...
	go -C bench generate ./...

notices: $(NODE) ## rewrite THIRD_PARTY_NOTICES; fails on a license that is unknown or incompatible with Apache-2.0
	GOWORK=off go build -modfile=deploy/notices/tools.mod -o bin/go-licenses github.com/google/go-licenses/v2
	cd web && node --input-type=module -e 'import { build } from "vite"; await build({ logLevel: "warn", build: { outDir: "../bin/notices", emptyOutDir: true, license: { fileName: "licenses.json" } } })'
	CGO_ENABLED=0 GOOS=linux GOARCH=amd64 GOFLAGS=-tags=grpcnotrace GOROOT=$$(go env GOROOT) \
	  bin/go-licenses report ./cmd/sibyl --ignore $$(GOWORK=off go list -m) --template deploy/notices/go.tmpl >bin/notices/go.tsv 2>bin/notices/warnings || { cat bin/notices/warnings; exit 1; }
	go run ./deploy/notices >bin/notices/THIRD_PARTY_NOTICES && mv bin/notices/THIRD_PARTY_NOTICES .

$(NODE): web/package-lock.json
	cd web && npm ci

$(GOLANGCI):
	GOBIN=$(CURDIR)/bin go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

$(GREMLINS):
	GOBIN=$(CURDIR)/bin go install github.com/go-gremlins/gremlins/cmd/gremlins@v0.6.0
