# SPDX-License-Identifier: Apache-2.0

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo 0.0.0-dev)
# FIPS=1 links the FIPS 140-3 module of the Go standard library in the version that is certified, and has
# it in force from the start (go.dev/doc/security/fips140).
# What git knows of the tree is in the version, so that a tree without .git gives the same bytes.
GOBUILD  = CGO_ENABLED=0 $(if $(FIPS),GOFIPS140=certified) go build -trimpath -buildvcs=false -ldflags '-s -w -X main.version=$(VERSION) -X main.committed=$(SOURCE_DATE_EPOCH)'

# Packages are made for these, and dated by the last commit.
ARCHES  ?= amd64 arm64
export SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || echo 0)
PACK     = go run ./packaging/pack

# The image of node-cert-controller is for these, and is known by this name in manifests.
IMAGE_ARCHES ?= amd64 arm64 ppc64le s390x
IMAGE_LAYOUT  = dist/node-cert-controller.oci
BUILDAH       = buildah --root $(CURDIR)/build/image/store --runroot $(CURDIR)/build/image/run --storage-driver vfs

# What the real parts of the tests and the demo need, as Debian and Ubuntu name it.
PACKAGES = systemd-container mmdebstrap dbus strace gcc libc6-dev lintian rpm rpmlint ignition buildah jq openssl iproute2 p11-kit p11-kit-modules ca-certificates spin
# And the virtual machines besides.
VM_PACKAGES = qemu-system-x86 e2fsprogs

.PHONY: build deb rpm tar plugin image install-yaml chart share install install-controller demo test test-selinux test-powercut bench bench-fleet fuzz simulate simulate-mutations docs generate lint controlplane host-root packages clean

## build: the static binaries, bin/node-cert-agent, bin/node-cert-controller and bin/kubectl-node_certs
build:
	$(GOBUILD) -o bin/node-cert-agent ./cmd/node-cert-agent
	$(GOBUILD) -o bin/node-cert-controller ./cmd/node-cert-controller
	$(GOBUILD) -o bin/kubectl-node_certs ./cmd/kubectl-node_certs

## deb, rpm, tar: the packages for $(ARCHES), in dist/
deb rpm: $(ARCHES:%=programs-%) share build/nfpm
	@mkdir -p dist
	@version=$$($(PACK) version '$(VERSION)') && for arch in $(ARCHES); do for d in nfpm nfpm-controller; do \
		ARCH=$$arch PACKAGE_VERSION=$$version build/nfpm package --config packaging/$$d.yaml --packager $@ --target dist/ >build/nfpm.log || { cat build/nfpm.log; exit 1; }; \
	done; done && ls dist/*.$@

tar: $(ARCHES:%=programs-%) share
	@mkdir -p dist
	@version=$$($(PACK) version '$(VERSION)') && for arch in $(ARCHES); do \
		$(PACK) tar packaging/nfpm.yaml $$arch >dist/node-cert-agent_$${version}_$$arch.tar.gz || exit; \
	done && ls dist/*.tar.gz

## image: node-cert-controller for $(IMAGE_ARCHES), as an OCI layout in dist/; needs buildah
# Storage and result begin empty, and buildah says nothing of itself in the image: same commit, same digest.
image: $(IMAGE_ARCHES:%=programs-%)
	@rm -rf build/image $(IMAGE_LAYOUT) && mkdir -p build/image dist
	@$(BUILDAH) manifest create node-cert-controller >build/image/log
	@for arch in $(IMAGE_ARCHES); do \
		$(BUILDAH) build --os linux --arch $$arch --timestamp $(SOURCE_DATE_EPOCH) --identity-label=false \
			--label org.opencontainers.image.title=node-cert-controller \
			--label org.opencontainers.image.source=https://github.com/node-cert-agent/node-cert-agent \
			--label org.opencontainers.image.licenses=Apache-2.0 \
			--label org.opencontainers.image.version='$(VERSION)' \
			--manifest node-cert-controller --file packaging/image/Containerfile build/$$arch >>build/image/log 2>&1 \
			|| { cat build/image/log; exit 1; }; \
	done
	@$(BUILDAH) manifest push --quiet --all --format oci node-cert-controller oci:$(IMAGE_LAYOUT):'$(VERSION)' >>build/image/log
	@rm -rf build/image/store build/image/run
	@echo "$(IMAGE_LAYOUT) $$(jq -r '.manifests[0].digest' $(IMAGE_LAYOUT)/index.json)"

## install-yaml: dist/install.yaml, with the image that is in dist/, to be found at IMAGE (registry/path, no tag)
install-yaml: build/kustomize
	@test -n '$(IMAGE)' || { echo 'say where the image is: make install-yaml IMAGE=registry.example/node-cert-controller'; exit 1; }
	@test -f $(IMAGE_LAYOUT)/index.json || { echo 'run make image first: install.yaml names the image by its digest'; exit 1; }
	@mkdir -p build/install
	@digest=$$(jq -er '.manifests[0].digest' $(IMAGE_LAYOUT)/index.json) && printf '%s\n' \
		'apiVersion: kustomize.config.k8s.io/v1beta1' 'kind: Kustomization' \
		'resources: [../../packaging/install]' \
		"images: [{name: registry.invalid/node-cert-controller, newName: '$(IMAGE)', digest: '$$digest'}]" >build/install/kustomization.yaml
	@build/kustomize build build/install >build/install/install.yaml && mv build/install/install.yaml dist/install.yaml
	@grep -H '  image:' dist/install.yaml

## chart: the Helm chart, in dist/: packaging/helm with packaging/kubernetes beside, and the version set
chart:
	@rm -rf build/chart && mkdir -p build/chart dist
	@cp -R packaging/helm build/chart/node-cert-controller && cp -R packaging/kubernetes build/chart/node-cert-controller/
	@version=$$($(PACK) version '$(VERSION)' | sed 's/~/-/') && cd build/chart && \
		sed -i -E "s/^(version|appVersion): .*/\1: \"$$version\"/" node-cert-controller/Chart.yaml && \
		tar -c --sort=name --mode=u=rwX,go=rX --owner=0 --group=0 --numeric-owner --mtime=@$(SOURCE_DATE_EPOCH) node-cert-controller | \
		gzip -9n >../../dist/node-cert-controller-$$version.tgz && ls ../../dist/node-cert-controller-$$version.tgz

build/kustomize: packaging/kustomize/go.mod packaging/kustomize/go.sum
	go build -C packaging/kustomize -o ../../build/kustomize sigs.k8s.io/kustomize/kustomize/v5
## plugin: kubectl node-certs for $(PLUGIN_PLATFORMS), in dist/
PLUGIN_PLATFORMS ?= linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64
plugin:
	@mkdir -p dist
	@version=$$($(PACK) version '$(VERSION)') && for p in $(PLUGIN_PLATFORMS); do \
		os=$${p%/*} arch=$${p#*/}; \
		GOOS=$$os GOARCH=$$arch $(GOBUILD) -o build/plugin/$$p/ ./cmd/kubectl-node_certs || exit; \
		tar -C build/plugin/$$p --sort=name --owner=0 --group=0 --numeric-owner --mtime=@$(SOURCE_DATE_EPOCH) -c . | \
			gzip -9n >dist/kubectl-node_certs_$${version}_$${os}_$$arch.tar.gz || exit; \
	done && ls dist/kubectl-node_certs_*

## install, install-controller: lay the files of a package out below DESTDIR, for image builders
install: programs-$(shell go env GOARCH) share
	@$(PACK) install packaging/nfpm.yaml $$(go env GOARCH) '$(DESTDIR)/'

install-controller: programs-$(shell go env GOARCH) share
	@$(PACK) install packaging/nfpm-controller.yaml $$(go env GOARCH) '$(DESTDIR)/'

programs-%:
	@mkdir -p build/$*
	GOOS=linux GOARCH=$* $(GOBUILD) -o build/$*/ ./cmd/node-cert-agent ./cmd/node-cert-controller
	@for p in node-cert-agent node-cert-controller; do $(PACK) sbom build/$*/$$p >build/$*/$$p.spdx.json || exit; done

# What is the same for all: manual pages and completions.
share:
	@mkdir -p build/share
	@go build -o build/share/agent ./cmd/node-cert-agent
	@for shell in bash zsh fish; do build/share/agent completion $$shell >build/share/node-cert-agent.$$shell || exit; done
	@build/share/agent man >build/share/commands
	@for page in node-cert-agent node-cert-controller; do \
		sed -e 's/@VERSION@/$(VERSION)/' -e '/^@COMMANDS@$$/{r build/share/commands' -e 'd}' packaging/man/$$page.8 | gzip -9n >build/share/$$page.8.gz || exit; \
	done

build/nfpm: packaging/nfpm/go.mod packaging/nfpm/go.sum
	go build -C packaging/nfpm -o ../../build/nfpm github.com/goreleaser/nfpm/v2/cmd/nfpm

## demo: the main job on real parts, told as it happens (KEEP=1 leaves it running)
demo: build packages
	go run ./tests/cmd/demo $(if $(KEEP),-keep)

## test: everything; a part that cannot run is a failure
test:
	go run ./tests/cmd/suite

## test-NAME: one part of it, with what it needs; tests/README.md lists them
test-%:
	@go run ./tests/cmd/suite -run $*

## test-selinux, test-powercut: the package in emulated machines, where SELinux enforces, and where the power is cut 20 times
test-selinux test-powercut: PACKAGES += $(VM_PACKAGES)
test-selinux: packages
	go test -tags vm -count=1 -v -timeout 60m -run 'SELinux' ./tests/vm

test-powercut: packages
	go test -tags vm -count=1 -v -timeout 120m -run 'PowerCuts|DoesNotSync' ./tests/vm

## bench: latency, memory, idle cost, size and start, as ratios to a baseline of the same run
bench: build controlplane host-root
	go run ./tests/cmd/bench

## bench-renewal: failed handshakes while the server pair of a busy etcd is replaced, in our way and in kubeadm's
RENEWALS ?= 300
bench-renewal: controlplane
	go test -tags real -run '^$$' -bench ServerPair -benchtime $(RENEWALS)x -timeout 30m ./tests/renewal

## soak-renewal: three members of etcd, then a cluster of kubeadm, with PLANES control-plane hosts, whose certificates live LIFE, under load for SOAK each
SOAK ?= 1h
LIFE ?= 10m
PLANES ?= 1
soak-renewal: controlplane host-root
	go test -tags real -run '^$$' -bench Soak -benchtime $(SOAK) -timeout 0 -v ./tests/renewal -life $(LIFE)
	go test -tags real -run '^$$' -bench Soak -benchtime $(SOAK) -timeout 0 -v ./tests/kubeadm -life $(LIFE) -planes $(PLANES)

## demo-renewal: three members of etcd whose certificates have all ended come back, without a restart
demo-renewal: controlplane
	go test -tags real -count=1 -v -run Expired ./tests/renewal

## bench-fleet: a fleet of NODES agents on one real API server (6 minutes for 500); FLEET has more options, as -signed
NODES ?= 500,2000,5000
bench-fleet: controlplane
	go run ./tests/cmd/benchfleet -nodes $(NODES) $(FLEET)

## fuzz: each fuzz target for a minute
fuzz:
	go run ./tests/cmd/suite -fuzz 1m

## simulate: random walks of the loop and of the identity, for SIMULATE each
SIMULATE ?= 2h
simulate:
	go test -count=1 -p 1 -timeout 0 -v -run 'TestWalks' ./tests/simulate ./tests/simulate/identity -seed 0 -duration $(SIMULATE)

## simulate-mutations: have both kinds of walks find seeded mistakes in the code that decides
simulate-mutations:
	go test -count=1 -p 1 -timeout 2h -v -run 'Mutation' ./tests/simulate ./tests/simulate/identity -mutations

## docs: write what is generated: the table of dependencies and the picture of the demo
docs:
	go test ./tests -run 'Dependencies|Picture' -update

## generate: write what the types of cluster/api say: their copies, the definitions of kinds, and docs/api.md
GENERATED_GO  = cluster/api/v1alpha1
GENERATED_CRD = packaging/kubernetes
GENERATED_DOC = docs
generate:
	go tool -modfile=cluster/api/generate/go.mod controller-gen paths=./cluster/api/v1alpha1 \
		object:headerFile=cluster/api/generate/header.go.txt output:object:dir=$(GENERATED_GO) \
		crd:headerFile=cluster/api/generate/header.yaml.txt output:crd:dir=build/crd
	@mkdir -p $(GENERATED_CRD)/crd $(GENERATED_CRD)/components/publisher
	@mv build/crd/node-cert-agent.io_nodebundles.yaml $(GENERATED_CRD)/components/publisher/
	@for kind in controllerconfigs nodecertificatestates; do \
		mv build/crd/node-cert-agent.io_$$kind.yaml $(GENERATED_CRD)/crd/$$kind.node-cert-agent.io.yaml || exit; \
	done
	@go -C cluster/api/generate run . $(foreach f,crd/controllerconfigs.node-cert-agent.io.yaml crd/nodecertificatestates.node-cert-agent.io.yaml \
		components/publisher/node-cert-agent.io_nodebundles.yaml,$(abspath $(GENERATED_CRD))/$(f)) >build/api.md
	@mv build/api.md $(GENERATED_DOC)/api.md

## lint: golangci-lint, built from its module (some minutes, once)
lint:
	go tool -modfile=tests/lint/go.mod golangci-lint run

## controlplane: build etcd, the servers of Kubernetes, kubectl, kubelet and kubeadm (about 8 minutes, once)
controlplane:
	go run ./tests/cmd/controlplane

## host-root: make the root file systems of the test hosts, of this release and a newer one (once)
host-root: packages
	go run ./tests/cmd/host

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
	rm -rf bin build dist
