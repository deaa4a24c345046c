# SPDX-License-Identifier: Apache-2.0

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo 0.0.0-dev)
GOBUILD  = CGO_ENABLED=0 go build -trimpath -ldflags '-s -w -X main.version=$(VERSION)'

# What the real parts of the tests and the demo need, as Debian and Ubuntu name it.
PACKAGES = systemd-container mmdebstrap dbus strace gcc libc6-dev

.PHONY: build demo test bench fuzz lint controlplane host-root packages clean

## build: the static binaries, bin/node-cert-agent and bin/node-cert-approver
build:
	$(GOBUILD) -o bin/node-cert-agent ./cmd/node-cert-agent
	$(GOBUILD) -o bin/node-cert-approver ./cmd/node-cert-approver

## demo: the main job on real parts, told as it happens (KEEP=1 leaves it running)
demo: build packages
	go run ./tests/demo $(if $(KEEP),-keep)

## test: everything; a part that cannot run is a failure
test: build controlplane host-root
	go run ./tests/suite

## bench: latency, memory, idle cost, size and start, as ratios to a floor of the same run
bench: build controlplane host-root
	go run ./tests/bench

## fuzz: each fuzz target for a minute
fuzz:
	go run ./tests/suite -fuzz 1m

## lint: golangci-lint, which has to be installed
lint:
	golangci-lint run

## controlplane: build etcd, kube-apiserver, kube-controller-manager and kubectl (about 5 minutes, once)
controlplane:
	go run ./tests/controlplane/cmd/controlplane

## host-root: make the root file system of the test hosts (once)
host-root: packages
	go run ./tests/host/cmd/host

## packages: install what the real parts need, if this is Debian or Ubuntu and we are root
packages:
	@missing=; for p in $(PACKAGES); do dpkg-query -W -f '$${Status}' $$p 2>/dev/null | grep -q '^install ok installed' || missing="$$missing $$p"; done; \
	if [ -z "$$missing" ]; then exit 0; fi; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		echo "installing$$missing"; \
		{ apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing; } >/dev/null; \
	else \
		echo "not installed:$$missing"; \
		echo "the real host needs them and root; without them the demo runs in plain mode, and 'go test ./...' runs what needs neither"; \
	fi

clean:
	rm -rf bin dist
