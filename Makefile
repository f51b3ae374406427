# `make help` lists the targets.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
# Prerequisites are made in the order in which they are named.
.NOTPARALLEL:

BIN ?= bin
# The tag in the chart and in deploy/kubernetes.
TAG ?= $(shell sed -n 's/^appVersion: *//p' deploy/helm/nfs-csi/Chart.yaml)
# What is built: the version differs from commit to commit.
VERSION ?= $(shell hack/version $(TAG))
COMMIT ?= $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
DATE ?= $(shell TZ=UTC0 git show -s --date=format-local:%Y-%m-%dT%H:%M:%SZ --format=%cd HEAD 2>/dev/null || echo unknown)
REGISTRY ?= ghcr.io/nfs-csi
PROGRAMS := nfsplugin csi-provisioner
# Architectures of the images.
ARCHES ?= amd64 arm64

# The modules to test and lint; hack/tools, test/lab/kube, test/lab/sidecars and
# test/conformance only pin and wrap third-party programs.
MODULES := . hack test
# Unit tests of the test module, which need no lab.
TEST_UNIT := ./lab/... ./sanity/... ./e2e/sshnode ./e2e/walkthrough
# Those that only render files. With the race detector, helm's packages take minutes to build.
TEST_RENDERED := ./chart/... ./manifests/...
# Tests in its other packages that need no lab and do not run there.
WITHOUT_NFS := WithoutNFS$$

GO_BUILD := CGO_ENABLED=0 go build -trimpath -buildvcs=false
# With the race detector, which needs cgo.
STAMP = -X main.version=$(VERSION) -X main.commit=$(COMMIT) -X main.date=$(DATE)
GO_RACE = CGO_ENABLED=1 go build -race -trimpath -buildvcs=false -ldflags '$(STAMP)'
# Without gRPC's trace pages, which use templates, the linker can drop unused methods:
# nearly half of csi-provisioner, on disk and in memory.
GO_TAGS := grpcnotrace
# Empty, or -v, which `make test` needs for counting tests.
TESTFLAGS ?=

# Flags of the bench, for example --only=publish.
BENCHFLAGS ?=

# Prerequisites of the suites. hack/test-all makes them once and then sets BUILT, since it
# runs suites in parallel.
BUILT ?=
needs = $(if $(BUILT),,$(1))

IMAGES := $(BIN)/images
TESTS := $(BIN)/test
LAB := $(BIN)/lab
LAB_ENV := $(BIN)/.lab-deps

##@ Build

.PHONY: build
build: ## Build both programs, static, into bin/
	$(GO_BUILD) -tags $(GO_TAGS) -ldflags '-s -w $(STAMP)' -o $(BIN)/ $(PROGRAMS:%=./cmd/%)

.PHONY: images
images: $(BIN)/pack-images ## Pack both images for ARCHES as OCI tar files into bin/images, with their SBOMs, without a container engine
	for arch in $(ARCHES); do \
		GOOS=linux GOARCH=$$arch $(GO_BUILD) -tags $(GO_TAGS) -ldflags '-s -w $(STAMP)' -o $(BIN)/linux-$$arch/ $(PROGRAMS:%=./cmd/%); \
	done
	for image in $(PROGRAMS); do \
		$(BIN)/pack-images product --image $$image --binaries $(BIN) $(ARCHES:%=--arch %) \
			--version $(VERSION) --commit $(COMMIT) --date $(DATE) \
			$(foreach tag,$(sort $(VERSION) $(TAG)),--name $(REGISTRY)/$$image:$(tag)) --out $(IMAGES)/$$image.tar; \
	done

.PHONY: lab-images
lab-images: ARCHES = $(shell go env GOARCH)
lab-images: build images lab-deps ## Pack the images for this machine only, and those of pods in the lab: busybox and pause
	$(BIN)/pack-images pack --name docker.io/library/busybox:1.36 --out $(IMAGES)/busybox.tar \
		--file /bin/busybox:/bin/busybox --cmd sh --env PATH=/bin --dir /tmp \
		$$(/bin/busybox --list | sed -n '/^busybox$$/d; s|^\(.*\)$$|--link busybox:/bin/\1|p')
	$(BIN)/pack-images pack --name localhost/lab/pause:1 --out $(IMAGES)/pause.tar \
		--file /bin/busybox:/busybox --entrypoint /busybox --entrypoint sh --entrypoint -c --entrypoint 'exec /busybox sleep infinity' --user 65535:65535

.PHONY: sidecar-images
sidecar-images: $(call needs,$(BIN)/pack-images) ## Pack external-resizer, external-snapshotter and its controller, for the lab
	hack/pack-sidecars $(BIN)/pack-images $(IMAGES)/sidecars

.PHONY: conformance-images
conformance-images: $(call needs,$(BIN)/pack-images) ## Build Kubernetes' tests of storage drivers and pack their images, for the lab
	built=$$(hack/pack-conformance $(BIN)/pack-images $(IMAGES)/conformance); \
		ln -sfn "$$built" $(BIN)/conformance

.PHONY: $(BIN)/pack-images
$(BIN)/pack-images:
	cd hack && $(GO_BUILD) -o $(abspath $@) ./images

.PHONY: generate
generate: ## Rewrite the generated and golden files
	cd test && go test ./chart ./manifests -update
	go test ./cmd/... -run TestReferenceIsGenerated -update

.PHONY: clean
clean: ## Remove build output from the tree, but not the lab's cache
	rm -rf $(BIN) _output

##@ Lab

# Check the machine's requirements before anything that takes long.
.PHONY: preflight-build preflight-nfs preflight-cluster
preflight-build preflight-nfs preflight-cluster:
	hack/preflight $(@:preflight-%=%)

.PHONY: lab
lab: ## Build the lab's command, bin/lab
	cd test && $(GO_BUILD) -o $(abspath $(LAB)) ./lab

.PHONY: lab-deps
lab-deps: $(LAB_ENV) ## Install the Debian packages that the lab needs

$(LAB_ENV): test/lab/internal/host/deps.go | lab
	$(LAB) deps
	touch $@

.PHONY: lab-build
lab-build: $(call needs,preflight-build lab lab-deps) ## Build and cache the lab's Kubernetes (some minutes, once)
	$(LAB) build

##@ Test

.PHONY: test
test: ## Run every test and print the totals
	hack/test-all 'unit lab nfs sanity integration' e2e

.PHONY: test-needs
test-needs: lab-images race lab-build sidecar-images conformance-images

# -race in `make test`; without it only Go is needed.
RACE ?=
# Tests that measure memory, which the race detector would distort.
MEASURED := NeedsNoMore$$

.PHONY: test-unit
test-unit: ## Run the tests that need neither root nor the lab
	go test $(RACE) $(if $(RACE),-skip '$(MEASURED)') $(TESTFLAGS) ./...
	$(if $(RACE),go test -run '$(MEASURED)' $(TESTFLAGS) ./pkg/tree)
	cd hack && go test $(TESTFLAGS) ./...
	cd test && go test $(TESTFLAGS) $(TEST_RENDERED)
	cd test && go test $(RACE) $(TESTFLAGS) $(TEST_UNIT) && go test $(RACE) $(TESTFLAGS) -run '$(WITHOUT_NFS)' ./nfs

# How long each fuzz target runs.
FUZZTIME ?= 1m

.PHONY: fuzz
fuzz: ## Run every fuzz target of the product for FUZZTIME each
	hack/fuzz $(FUZZTIME)

# Both programs with the race detector. nfsplugin has fake mounts, to run without NFS.
.PHONY: race
race:
	$(GO_RACE) -tags $(GO_TAGS) -o $(BIN)/race/ ./cmd/csi-provisioner
	$(GO_RACE) -tags $(GO_TAGS),fakemount -o $(BIN)/race/ ./cmd/nfsplugin

in_integration = cd test && KUBE_BINARY=$$($(abspath $(LAB)) build) CSI_PROVISIONER=$(abspath $(BIN))/race/csi-provisioner \
		CSI_PROVISIONER_RACE=$(abspath $(BIN))/race/csi-provisioner NFSPLUGIN_FAKE=$(abspath $(BIN))/race/nfsplugin

.PHONY: test-integration
test-integration: $(call needs,preflight-build lab lab-deps race) lab-build ## Run csi-provisioner against a real API server, with the race detector, on this machine
	$(in_integration) go test $(TESTFLAGS) -count=1 ./integration/...

# How long to keep killing the leader.
KILL_TIME ?= 1m

.PHONY: test-faults
test-faults: $(call needs,preflight-build lab lab-deps race) lab-build ## Run the faults of test-integration for longer
	$(in_integration) KILL_TIME=$(KILL_TIME) \
		go test $(TESTFLAGS) -count=1 ./integration -run '^Test(LeaderKilled|ClaimDeletedBetween|APIServerRestart|ConnectionsCut)'

.PHONY: test-lab
test-lab: $(call needs,preflight-nfs lab lab-deps) ## Boot the lab's guest and check it against docs/lab.md
	cd test && LAB_BINARY=$(abspath $(LAB)) go test $(TESTFLAGS) -count=1 ./boot

# Run test binaries, built here, in the guest: $(call in_guest,nfs|cluster,PACKAGE,LAB FLAGS,TEST FLAGS)
define in_guest
rm -rf $(TESTS)/$(2)
cd test && go test -c -o $(abspath $(TESTS))/$(2)/test/$(2)/ ./$(2)
$(LAB) $(1) $(3) -- $(CURDIR)/hack/guest-tests $(CURDIR) $(CURDIR)/$(TESTS)/$(2) $(4)
endef

.PHONY: test-nfs
test-nfs: $(call needs,preflight-nfs lab lab-deps) ## Run the tests that need a kernel NFS server, in the lab
	$(call in_guest,nfs,nfs,,-test.skip='$(WITHOUT_NFS)')

.PHONY: test-sanity
test-sanity: $(call needs,preflight-nfs build lab lab-deps) ## Run csi-sanity against nfsplugin on real NFS, in the lab
	$(call in_guest,nfs,sanity)

E2E_NEEDS = $(call needs,preflight-cluster lab-images) lab-build sidecar-images conformance-images
E2E_FLAGS = --images $(IMAGES) --images $(IMAGES)/sidecars --images $(IMAGES)/conformance \
	--env SNAPSHOT_CRDS=$(CURDIR)/$(IMAGES)/sidecars/crds --env CONFORMANCE=$(CURDIR)/$(BIN)/conformance

.PHONY: test-e2e
test-e2e: $(E2E_NEEDS) ## Run the tests on a real Kubernetes node, in the lab
	$(call in_guest,cluster,e2e,$(E2E_FLAGS) --timeout 40m --env TEST_TIMEOUT=35m)

# A regular expression that selects specs by their names.
FOCUS ?=
export FOCUS

.PHONY: test-conformance
test-conformance: $(if $(BUILT),$(E2E_NEEDS)) ## Run Kubernetes' tests of storage drivers in the lab: FOCUS=REGEXP, or all in an hour
	$(if $(BUILT),$(call in_guest,cluster,e2e,$(E2E_FLAGS) --timeout 12h --env TEST_TIMEOUT=12h --env CONFORMANCE_FOCUS='$(FOCUS)',-test.run='^TestConformance$$'),TEST_LOGS=_output/conformance hack/test-all conformance)

.PHONY: demo
demo: ## Demonstrate the life of a claim, step by step, in the lab
	hack/run-demo $(LAB)

.PHONY: migrate-transcripts
migrate-transcripts: ## Run the commands of docs/migrate.md in the lab, show their output, and write it to the page
	hack/run-demo $(LAB) moves

.PHONY: moves
moves: sidecar-images
	cd test && go test -c -o $(abspath $(TESTS))/moves/ ./e2e

.PHONY: bench
bench: preflight-nfs build lab lab-deps ## Measure nfsplugin in comparison with the system calls that it needs, in the lab
	cd test && $(GO_BUILD) -o $(abspath $(BIN))/bench ./bench
	$(LAB) nfs --timeout 60m --xfs-size 16G -- $(CURDIR)/$(BIN)/bench --plugin $(CURDIR)/$(BIN)/nfsplugin $(BENCHFLAGS)

.PHONY: bench-provisioner
bench-provisioner: preflight-build build lab-build ## Measure csi-provisioner in comparison with a bare loop of its writes, on a real API server
	cd test && $(GO_BUILD) -o $(abspath $(BIN))/bench-provisioner ./bench/provisioner
	$(BIN)/bench-provisioner --kube $$($(LAB) build) --provisioner $(BIN)/csi-provisioner $(BENCHFLAGS)

.PHONY: verify
verify: ## Check formatting, vet, lint, tidy modules, scripts, workflows, and that images are reproducible
	hack/verify $(MODULES)

.PHONY: vulncheck
vulncheck: ## Look for known vulnerabilities in the code that the programs call (needs vuln.go.dev, or GOVULNDB)
	hack/vulncheck

##@ Release

# Also where .github/workflows/release.yml takes the files from.
RELEASE := $(BIN)/release
HELM ?= $$(hack/build-tools hack/tools/helm)/helm
# Flags of helm push: --plain-http for a registry on this machine.
HELM_PUSH ?=
CHART := deploy/helm/nfs-csi

.PHONY: release-check
release-check: ## Check that the commit can be released as VERSION: tag, manifests, changelog
	hack/release-check $(VERSION) $(TAG)

.PHONY: release-files
release-files: ## Write what a release of VERSION has into bin/release: images, SBOMs, chart, notes, checksums
	rm -rf $(RELEASE)
	$(MAKE) --no-print-directory images IMAGES=$(RELEASE) TAG=$(VERSION) VERSION=$(VERSION)
	$(HELM) package $(CHART) --version $(VERSION:v%=%) --app-version $(VERSION) --destination $(RELEASE)
	hack/release-notes $(VERSION) docs/changelog.md >$(RELEASE)/notes.md
	cd $(RELEASE) && sha256sum *.tar *.tgz *.spdx.json >SHA256SUMS

.PHONY: release-push
release-push: ## Push the images in bin/release, and the chart to oci://REGISTRY/charts
	$(BIN)/pack-images push $(PROGRAMS:%=$(RELEASE)/%.tar) | tee $(RELEASE)/pushed.txt
	$(HELM) push $(HELM_PUSH) $(RELEASE)/nfs-csi-*.tgz oci://$(REGISTRY)/charts 2>&1 | tee $(RELEASE)/chart.log
	sed -n 's|^Digest: *|$(REGISTRY)/charts/nfs-csi@|p' $(RELEASE)/chart.log >>$(RELEASE)/pushed.txt

.PHONY: release-digests
release-digests: ## Print the digests of what release-push pushed, as NAME=DIGEST
	@sed -n 's|.*/\([^/@]*\)@\(sha256:.*\)|\1=\2|p' $(RELEASE)/pushed.txt

.PHONY: release-sign
release-sign: ## Sign the images, the chart, the SBOMs and the checksums with cosign, keyless
	hack/release-sign $(RELEASE)

.PHONY: release-publish
release-publish: ## Create the GitHub release of VERSION with the files in bin/release
	gh release create $(VERSION) --verify-tag --title $(VERSION) --notes-file $(RELEASE)/notes.md \
		$(if $(findstring -rc.,$(VERSION)),--prerelease) \
		$(RELEASE)/*.tar $(RELEASE)/*.tgz $(RELEASE)/*.spdx.json $(RELEASE)/SHA256SUMS $(RELEASE)/SHA256SUMS.sigstore.json

##@ Help

.PHONY: help
help: ## List these targets
	@awk 'BEGIN {FS = ":.*## "} \
		/^##@/ {printf "\n%s\n", substr($$0, 5)} \
		/^[a-z][a-z0-9-]*:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
