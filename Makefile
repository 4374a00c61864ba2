# `make demo` and `make test` are each enough on a fresh Debian 12 or Ubuntu 24.04 with root, git,
# make and python3: each target installs what it needs and removes nothing, builds, and runs.
# `make help` lists the rest.

# Without its cache each start of Python compiles what it imports, and the tests start thousands.
unexport PYTHONDONTWRITEBYTECODE

PREFIX ?= /usr
SYSCONFDIR ?= /etc
DESTDIR ?=
# Such as /usr/lib/systemd/system; empty: no unit is installed.
UNITDIR ?=
# Empty: compile for this machine. arm64: by a cross compiler, into build/arm64.
VCUDA_ARCH ?=
ifeq ($(VCUDA_ARCH),arm64)
OUT := build/arm64
CC := aarch64-linux-gnu-gcc
MUSL_CC := $(CC) -specs $(OUT)/musl/musl-gcc.specs
else
OUT := build
CC := gcc
MUSL_CC := musl-gcc
endif
VENV := build/venv
CUDA_INCLUDE = $(firstword $(wildcard $(VENV)/lib/python3*/site-packages/nvidia/cu13/include))
# Two checkouts of one commit compile to the same bytes, wherever they lie.
CFLAGS_COMMON := -std=gnu11 -O2 -g -Wall -Wextra -Werror -ffile-prefix-map='$(CURDIR)=.'
# RUNTIME_TARGETS: compiled for each machine. BUILD_TARGETS: for this one only.
BUILD_TARGETS :=
RUNTIME_TARGETS :=

PYTHON_SOURCES := oci runtime_hook plugin libvcuda tests packaging/vcuda packaging/vcuda-node-agent \
  packaging/vcuda-scheduler-extender packaging/sbom.py packaging/checks docs/site
C_SOURCES = $(shell git ls-files '*.c' '*.h')
SHELL_SOURCES := packaging/prepare packaging/genuine-driver packaging/install packaging/packages \
  packaging/release packaging/manifests packaging/musl-arm64 tests/support/make-root tests/run-halves .ci/run

.DEFAULT_GOAL := help

include libvcuda/build.mk
include libvcuda/softgpu/build.mk
include oci/launcher/build.mk
include libvcuda/turns/build.mk
include packaging/build.mk

.PHONY: help
help: ## what this Makefile can do
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sort | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

.PHONY: prepare
prepare: ## install everything that the tests need: packages, engines, the virtual environment
	@packaging/prepare test

# What one target needs: prepare-build, prepare-demo, …
prepare-%:
	@packaging/prepare $*

.PHONY: genuine
genuine: ## bring NVIDIA's own libraries and nvidia-smi below build/genuine, for the tests
	@packaging/genuine-driver

# A second make, because the headers' folder exists only after prepare-build.
.PHONY: build compile
build: prepare-build ## compile the shim, the launcher and the software GPU
	@echo '[build] shim, launcher, software GPU'
	@$(MAKE) --no-print-directory -j$$(nproc) compile

compile: $(RUNTIME_TARGETS) $(BUILD_TARGETS)
	@:

.PHONY: arm64 runtime
runtime: $(RUNTIME_TARGETS)

arm64: prepare-packages build ## the runtime for arm64, by a cross compiler, below build/arm64
	@$(MAKE) --no-print-directory VCUDA_ARCH=arm64 runtime

PYTEST = $(VENV)/bin/python -m pytest
# Needs neither root nor an engine, so it prepares nothing itself.
.PHONY: unit
unit: $(VENV)/bin/pytest ## the tests of pure code, in under a minute, without root; ARGS=… goes to pytest
	@$(PYTEST) -n $$(nproc) --dist loadfile --no-loadscope-reorder -q tests/unit $(ARGS)

$(VENV)/bin/pytest:
	@echo "$@: not found; run 'sudo make prepare'" >&2; exit 1

AT_A_TIME = $(shell echo $$(($$(nproc) * 3))) # for most of its time a test waits
.PHONY: test
test: prepare packages ## every test, on real engines and the software GPU; ARGS=… goes to pytest
	-@tests/support/make-root
	@PYTEST='$(PYTEST)' tests/run-halves $(AT_A_TIME) $(ARGS)

.PHONY: cluster
cluster: prepare build ## our chart on a real Kubernetes; KUBEBUILDER_ASSETS=DIR has its programs; ARGS=… goes to pytest
	@KUBEBUILDER_ASSETS='$(KUBEBUILDER_ASSETS)' $(PYTEST) tests/cluster $(ARGS)

# They print figures, and write them to build/cluster-….json. The first needs no engine.
.PHONY: cluster-rate cluster-starts cluster-soak
cluster-rate: prepare build ## pods a second that a real kube-scheduler places; NODES='1 100 1000' ROUNDS=3
	@$(VENV)/bin/python -m tests.cluster.measure.rate $(if $(NODES),--nodes $(NODES)) $(if $(ROUNDS),--rounds $(ROUNDS)) $(ARGS)

cluster-starts: prepare build ## a real cluster's pod with a share, from creation to Running, over one without; PAIRS=40
	@$(VENV)/bin/python -m tests.cluster.measure.starts $(if $(PAIRS),--pairs $(PAIRS))

cluster-soak: prepare build ## 1,000 pods by DRA amid kills of agent, kubelet and containerd; PODS=…
	@$(VENV)/bin/python -m tests.cluster.measure.soak $(if $(PODS),--pods $(PODS))

.PHONY: soak-pods
soak-pods: prepare build ## 10,000 pods live and die through CRI, and the agent stays as large as it was; PODS=…
	@$(VENV)/bin/python -m tests.release.soak.pods --json-out build/soak-pods.json $(if $(PODS),--pods $(PODS))

.PHONY: soak-races
soak-races: prepare build ## 10,000 containers under threads that swap links in, 10,000 sweeps under one that swaps files
	@VCUDA_SOAK=10000 $(PYTEST) --timeout=0 tests/engines/hostile/test_hostile_races.py tests/contract/host/ledger/test_left_open.py

.PHONY: demo
demo: prepare-demo build ## two containers share one GPU, and what happens at their limits
	@packaging/install $(CURDIR)/build/demo $(CURDIR)/build/demo/etc
	@build/demo/bin/vcuda demo --softgpu-dir build/softgpu --json-out build/demo.json

.PHONY: bench
bench: prepare-bench build ## measure what it costs; ONLY=start, ctr, agent, dra, scrape, shim, crowd, scheduler, shares or suspend runs one
	@$(VENV)/bin/python -m tests.bench $(if $(ONLY),--only $(ONLY)) --json-out build/bench.json $(ARGS)

.PHONY: soak
soak: prepare build ## thousands of starts leave nothing and do not slow down; STARTS=10000, ENGINES='runc-v1 …'
	@$(VENV)/bin/python -m tests.release.soak --json-out build/soak.json \
	  $(if $(STARTS),--starts $(STARTS)) $(if $(ENGINES),--engines $(ENGINES))

.PHONY: fuzz
fuzz: prepare-fuzz build $(if $(ONLY),$(if $(filter pages,$(ONLY)),fuzz-pages,fuzz-launcher),fuzz-launcher fuzz-pages) ## feed every parser untrusted bytes; SECONDS=60 each, ONLY=… one of them

.PHONY: fuzz-pages
fuzz-pages: build/fuzz/pages
	@mkdir -p build/fuzz/found-pages
	@build/fuzz/pages -max_total_time=$(or $(SECONDS),60) -max_len=400 -timeout=20 -detect_leaks=0 \
	  -artifact_prefix=build/fuzz/pages- build/fuzz/found-pages $(FUZZ)/corpus

.PHONY: gpu
gpu: prepare-bench build ## ask a real GPU what only hardware can answer: bench/hardware.md; PYTHON=… has PyTorch
	@$(VENV)/bin/python -m tests.gpu --json-out build/gpu.json \
	  $(if $(SOFTGPU_ROOT),,--report bench/hardware.md) \
	  $(if $(PYTHON),--python $(PYTHON)) $(ARGS)

.PHONY: pictures
pictures: prepare build docs ## take the pictures of docs/pictures from running programs; ONLY=node, cluster or site
	@$(VENV)/bin/python -m tests.release.pictures $(if $(ONLY),--only $(ONLY))

.PHONY: check
check: prepare-check docs ## formatting, lint, types, import direction, links of the documentation
	@echo '[check] ruff'; $(VENV)/bin/ruff check $(PYTHON_SOURCES) && $(VENV)/bin/ruff format --check $(PYTHON_SOURCES)
	@echo '[check] mypy'; $(VENV)/bin/mypy
	@echo '[check] import-linter'; $(VENV)/bin/lint-imports
	@echo '[check] guest access'; $(VENV)/bin/python packaging/checks/guest_access.py oci runtime_hook plugin
	@echo '[check] C rooms'; $(VENV)/bin/python packaging/checks/c_rooms.py
	@echo '[check] words'; $(VENV)/bin/python packaging/checks/words.py
	@echo '[check] clang-format'; $(VENV)/bin/clang-format --dry-run -Werror $(C_SOURCES)
	@echo '[check] shell syntax'; for script in $(SHELL_SOURCES); do bash -n $$script || exit 1; done

.PHONY: install
install: ## lay the built product out below DESTDIR/PREFIX; UNITDIR=… the systemd unit too
	@packaging/install '$(PREFIX)' '$(SYSCONFDIR)' '$(DESTDIR)' '$(UNITDIR)'

.PHONY: manifests
manifests: prepare-check ## render packaging/chart into packaging/kubernetes
	@packaging/manifests

.PHONY: clean
clean: ## remove what was built; the virtual environment too
	rm -rf build
