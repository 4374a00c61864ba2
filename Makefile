# `make demo` and `make test` are each enough on a fresh Debian 12 or Ubuntu 24.04 with root, git,
# make and python3: they install what they need, build, and run. `make help` lists the rest.

PREFIX ?= /usr
SYSCONFDIR ?= /etc
DESTDIR ?=
CC ?= gcc
VENV := build/venv
CUDA_INCLUDE = $(firstword $(wildcard $(VENV)/lib/python3*/site-packages/nvidia/cu13/include))
CFLAGS_COMMON := -std=gnu11 -O2 -g -Wall -Wextra -Werror
BUILD_TARGETS :=

.DEFAULT_GOAL := help

-include libvcuda/build.mk
-include libvcuda/softgpu/build.mk
-include oci/launcher/build.mk

.PHONY: help prepare build
help: ## what this Makefile can do
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sort | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

prepare: ## install distribution packages and the virtual environment
	@packaging/prepare

# A second make, because the headers' folder exists only after prepare.
build: prepare ## compile the shim, the launcher and the software GPU
	@$(MAKE) --no-print-directory compile

.PHONY: compile
compile: $(BUILD_TARGETS)

.PHONY: install
install: ## lay the built product out below DESTDIR/PREFIX
	@packaging/install $(PREFIX) $(SYSCONFDIR) $(DESTDIR)
