# Moongate. `make run` shows it, `make test` proves it, `make help` lists the rest.
# Needs Go, make and git only; a C compiler adds the race detector.

# A Go older than go.mod asks for fetches the right toolchain itself.
export GOTOOLCHAIN := auto

# Tests and tools are compiled as the product is, so that what they share is compiled once: a second way costs a machine without caches some minutes.
export CGO_ENABLED := 0
export GOFLAGS := $(filter-out -trimpath,$(or $(GOFLAGS),$(shell go env GOFLAGS))) -trimpath

# go build takes the profile by itself; tests of this module are told, so that they run what is shipped. The other modules do without, as staticcheck does
# in any case, so that what they need is compiled once.
PROFILE := -pgo=cmd/moongate/default.pgo

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
COMMIT ?= $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
CLI := github.com/moongate-dev/moongate/internal/cli
LDFLAGS := -s -w -X $(CLI).version=$(VERSION) -X $(CLI).commit=$(COMMIT)

# The race detector needs cgo, and cgo needs a C compiler.
CC_FOUND := $(shell command -v "$$(go env CC)" 2>/dev/null)
RACE := $(if $(CC_FOUND),yes,)

# Name and tag of the image, and the time that it says it was made: the commit's.
IMAGE ?= ghcr.io/moongate-dev/moongate
TAG ?= $(VERSION)
CREATED := $(shell git log -1 --format=%ct 2>/dev/null || echo 0)

# Modules of their own, so that nothing they need is the product's.
MODULES := test test/alerts test/caddy test/charts test/h2spec test/interop test/page test/websocket tools/image tools/release
# And those that are tested on a cluster.
CLUSTER_MODULES := test/cluster test/conformance test/documents test/nodrop test/scale

# Packages with tests that need a Kubernetes, behind the tag cluster.
CLUSTER_PKGS := ./internal/provision ./internal/status/writer ./internal/source/kube

PKGS ?= ./...
TESTFLAGS ?=
FUZZTIME ?= 10s

# Only `make generate` runs it, so it is no tool of go.mod.
CONTROLLER_GEN := sigs.k8s.io/controller-tools/cmd/controller-gen@v0.23.0

.PHONY: help
help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: run
run: build ## build bin/moongate and serve an editable example from ./moongate-demo
	./bin/moongate demo

.PHONY: build
build: ## build bin/moongate
	go build -ldflags '$(LDFLAGS)' -o bin/moongate ./cmd/moongate

.PHONY: check
check: build redis-server nginx ## the inner loop: vet and everything quick (under 3 minutes)
	go vet $(PKGS)
	go test -short $(PROFILE) $(TESTFLAGS) $(PKGS)

# Allocation tests count what the race detector adds, so both ways are run: first as it
# ships, then with the detector.
.PHONY: test
test: test-packages test-h2load test-modules test-race test-in-cluster ## every test, again under the race detector, and on a cluster (root)

# Global rate limits are tested with it.
.PHONY: redis-server
redis-server:
	@command -v redis-server >/dev/null || \
	  { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	    { apt-get install --yes --no-install-recommends redis-server >/dev/null 2>&1 || \
	      { apt-get update >/dev/null && apt-get install --yes --no-install-recommends redis-server >/dev/null; }; }; } || \
	  { echo "install Debian's package redis-server" >&2; exit 1; }

# What moongate migrate makes is compared with it.
.PHONY: nginx
nginx:
	@command -v nginx >/dev/null || [ -x /usr/sbin/nginx ] || [ "$$(uname)" != Linux ] || \
	  { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	    { apt-get install --yes --no-install-recommends nginx >/dev/null 2>&1 || \
	      { apt-get update >/dev/null && apt-get install --yes --no-install-recommends nginx >/dev/null; }; }; } || \
	  { echo "install Debian's package nginx" >&2; exit 1; }

# The built-in page is tested in it.
.PHONY: chromium
chromium:
	@command -v chromium-headless-shell >/dev/null || command -v chromium >/dev/null || command -v google-chrome >/dev/null || \
	  { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	    { apt-get install --yes --no-install-recommends chromium-headless-shell >/dev/null 2>&1 || \
	      { apt-get update >/dev/null && apt-get install --yes --no-install-recommends chromium-headless-shell >/dev/null; }; }; } || \
	  { echo "install Debian's package chromium-headless-shell" >&2; exit 1; }

.PHONY: test-packages
test-packages: build redis-server nginx
	@date '+%H:%M:%S $@'
	go test $(PROFILE) $(TESTFLAGS) $(PKGS)

.PHONY: test-h2load
test-h2load: build
	@date '+%H:%M:%S $@'
	@$(MAKE) --no-print-directory -C test h2load

# Go keeps results of the other modules though files of this one have changed.
.PHONY: test-modules
test-modules: build chromium
	@date '+%H:%M:%S $@'
	@$(MAKE) --no-print-directory -C test strace
	failed=0; for module in $(MODULES) $(CLUSTER_MODULES); do (cd $$module && go test -count 1 $(TESTFLAGS) ./...) || failed=1; done; exit $$failed

.PHONY: test-race
test-race: build redis-server nginx
	@date '+%H:%M:%S $@'
ifeq ($(RACE),yes)
	CGO_ENABLED=1 go test -race $(PROFILE) $(TESTFLAGS) $(PKGS)
else
	@echo 'no C compiler: the race detector is not run' >&2
endif

# For .ci/run, which does it beside the first tests.
.PHONY: ahead
ahead: ## compile what the last parts of make test take longest to
	@date '+%H:%M:%S $@'
ifeq ($(RACE),yes)
	CGO_ENABLED=1 go build -race $(PROFILE) $(PKGS)
endif
	@$(MAKE) --no-print-directory -C test/cluster programs

.PHONY: lint
lint: ## gofmt, go vet, staticcheck
	@date '+%H:%M:%S $@'
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); test -z "$$unformatted" || { echo "gofmt -w is needed for:"; echo "$$unformatted"; exit 1; }
	go vet $(PKGS)
	go build -o bin/staticcheck honnef.co/go/tools/cmd/staticcheck
	bin/staticcheck $(PKGS)
	go vet -tags cluster $(CLUSTER_PKGS) && bin/staticcheck -tags cluster $(CLUSTER_PKGS)
	failed=0; for module in $(MODULES) $(CLUSTER_MODULES); do (cd $$module && go vet ./... && $(CURDIR)/bin/staticcheck ./...) || failed=1; done; exit $$failed

.PHONY: fuzz
fuzz: ## every fuzz target for FUZZTIME (10s) each
	@set -e; for pkg in $$(go list $(PKGS)); do \
	  for target in $$(go test -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do \
	    echo "$$pkg $$target"; go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) $$pkg; \
	  done; \
	done

.PHONY: bench
bench: ## compare with nginx, HAProxy (Debian packages) and Caddy; see docs/performance.md
	$(MAKE) -C test bench

.PHONY: profile
profile: ## measure cmd/moongate/default.pgo anew, by which the compiler optimizes; see docs/performance.md
	$(MAKE) -C test profile

.PHONY: golden
golden: ## rewrite the golden files from what the translator says; read the diff
	go test ./internal/translate -update

.PHONY: pictures
pictures: build chromium ## take the pictures of docs/dashboard.md
	cd test/page && go test -count 1 . -update

.PHONY: conformance-page
conformance-page: ## write docs/conformance.md: which tests prove which features and fields
	cd test/conformance && go test ./proofs -run TestPage -update

# The generated files are committed, so only who edits a .proto or an API type needs protoc.
.PHONY: generate
generate: ## regenerate *.pb.go (needs protoc), and the deep copies and CRDs of api/
	@command -v protoc >/dev/null || { echo 'protoc is missing: install your system'"'"'s protobuf-compiler' >&2; exit 1; }
	@mkdir -p bin
	go build -o bin/ google.golang.org/protobuf/cmd/protoc-gen-go google.golang.org/grpc/cmd/protoc-gen-go-grpc
	cd internal/config && protoc --plugin=../../bin/protoc-gen-go -I . --go_out=. --go_opt=paths=source_relative *.proto
	cd internal/proxy/filter/externalauth/extauthz && protoc --plugin=../../../../../bin/protoc-gen-go -I . --go_out=. --go_opt=paths=source_relative extauthz.proto
	cd internal/deliver/wire && protoc --plugin=../../../bin/protoc-gen-go --plugin=../../../bin/protoc-gen-go-grpc -I . -I ../../config \
	  --go_out=. --go_opt=paths=source_relative --go-grpc_out=. --go-grpc_opt=paths=source_relative delivery.proto
	# The percentages of gateway.envoyproxy.io are floats.
	for api in api/v1alpha1 api/gatewayx/v1alpha1 api/envoygateway/v1alpha1; do \
	  go run $(CONTROLLER_GEN) object paths=./$$api crd:allowDangerousTypes=true paths=./$$api output:crd:dir=$$api || exit; \
	done
	@$(MAKE) --no-print-directory manifest

.PHONY: manifest
manifest: ## copy the CRDs into the charts, and render deploy/moongate.yaml
	cd test/charts && go test -run 'TestCopies|TestManifest' . -update

.PHONY: image
image: ## write bin/moongate-image.tar for amd64 and arm64, without Docker
	set -e; for arch in amd64 arm64; do \
	  CGO_ENABLED=0 GOOS=linux GOARCH=$$arch go build -trimpath -ldflags '$(LDFLAGS)' -o bin/image/$$arch/moongate ./cmd/moongate; \
	done
	@cd tools/image && go run . -name '$(IMAGE):$(TAG)' -version '$(VERSION)' -revision '$(COMMIT)' -created $(CREATED) \
	  -o ../../bin/moongate-image.tar amd64=../../bin/image/amd64/moongate arm64=../../bin/image/arm64/moongate

# Helm and dpkg compare versions, so that a commit without a tag is a version before the first.
RELEASE_VERSION = $(shell echo '$(VERSION)' | grep -Ex 'v[0-9]+\.[0-9]+\.[0-9]+([-+].*)?' || echo 'v0.0.0-0.g$(VERSION)')
RELEASE_PLATFORMS := linux/amd64 linux/arm64 darwin/amd64 darwin/arm64

.PHONY: release
release: ## write bin/release: archives, Debian packages, image, charts, manifest, SBOMs and checksums
	set -e; for platform in $(RELEASE_PLATFORMS); do \
	  CGO_ENABLED=0 GOOS=$${platform%/*} GOARCH=$${platform#*/} go build -trimpath -ldflags '$(subst $(CLI).version=$(VERSION),$(CLI).version=$(RELEASE_VERSION),$(LDFLAGS))' \
	    -o bin/build/$$platform/moongate ./cmd/moongate; \
	done
	@cd tools/image && go run . -name '$(IMAGE):$(RELEASE_VERSION)' -version '$(RELEASE_VERSION)' -revision '$(COMMIT)' -created $(CREATED) \
	  -o ../../bin/build/moongate-image.tar amd64=../../bin/build/linux/amd64/moongate arm64=../../bin/build/linux/arm64/moongate
	@cd tools/release && go run . -root ../.. -version '$(RELEASE_VERSION)' -created $(CREATED) -image ../../bin/build/moongate-image.tar -o ../../bin/release \
	  $(foreach platform,$(RELEASE_PLATFORMS),$(platform)=../../bin/build/$(platform)/moongate)

.PHONY: clean
clean: ## remove what make builds
	rm -rf bin

# What needs a cluster runs as root. Kubernetes is built once, outside of the repository, in some minutes.
.PHONY: test-in-cluster
test-in-cluster: test-cluster packages-on-cluster scripted conformance documents nodrop scale-small ## everything that is proved on a cluster (root)

.PHONY: packages-on-cluster
packages-on-cluster: ## what tests of single packages can find out on a cluster alone (root)
	@date '+%H:%M:%S $@'
	@$(MAKE) --no-print-directory -C test/cluster down NAME=packages
	@$(MAKE) --no-print-directory -C test/cluster up NAME=packages NODES=2 >/dev/null
	@bin/cluster -name packages apply api/v1alpha1
	@export KUBECONFIG="$$(bin/cluster -name packages exec printenv KUBECONFIG)" CLUSTER='$(CURDIR)/bin/cluster -name packages'; \
	  go test $(PROFILE) -tags cluster -p 1 -count 1 -run '(OnACluster|^TestCluster)$$' $(TESTFLAGS) $(CLUSTER_PKGS); status=$$?; \
	  $(MAKE) --no-print-directory -C test/cluster down NAME=packages; exit $$status

.PHONY: conformance
conformance: ## the official conformance suite, with Moongate from its chart, and its report into conformance/ (root)
	@date '+%H:%M:%S $@'
	@$(MAKE) --no-print-directory -C test/conformance all

.PHONY: scripted
scripted: ## its simplest tests with a gateway that is not Moongate: what they prove is the cluster (root)
	@date '+%H:%M:%S $@'
	@$(MAKE) --no-print-directory -C test/conformance scripted

.PHONY: documents
documents: ## the commands of README and docs that need a cluster (root)
	@date '+%H:%M:%S $@'
	@$(MAKE) --no-print-directory -C test/documents all

.PHONY: nodrop
nodrop: ## requests under way while everything fails or changes (root)
	@date '+%H:%M:%S $@'
	@$(MAKE) --no-print-directory -C test/nodrop all

.PHONY: scale
scale: ## what thousands of routes cost, and how soon a change is served; see docs/performance.md (root)
	@$(MAKE) --no-print-directory -C test/scale all

.PHONY: scale-small
scale-small: ## the same with few routes: whether every answer, count and status is right (root)
	@date '+%H:%M:%S $@'
	@$(MAKE) --no-print-directory -C test/scale small

.PHONY: cluster
cluster: ## start a Kubernetes without containers and print its KUBECONFIG (root)
	@$(MAKE) --no-print-directory -C test/cluster up

.PHONY: cluster-down
cluster-down: ## end it
	@$(MAKE) --no-print-directory -C test/cluster down

.PHONY: test-cluster
test-cluster: ## test the cluster itself (root)
	@date '+%H:%M:%S $@'
	@$(MAKE) --no-print-directory -C test/cluster test
