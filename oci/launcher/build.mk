# The launcher and the hooks. Static against musl: it adds 0.06 ms to an exec, where a static glibc
# program adds 0.35 ms and a dynamic one 0.45 ms, eleven times in a pod's life.

LAUNCHER := $(OUT)/bin/vcuda-container-runtime
LAUNCHER_PYTHON ?= /usr/bin/python3
LAUNCHER_PATHS = -DVCUDA_CONFIG='"$(SYSCONFDIR)/vcuda/config.toml"' \
                 -DVCUDA_PYTHON='"$(LAUNCHER_PYTHON)"' \
                 -DVCUDA_PYTHON_PATH='"$(PREFIX)/lib/vcuda/python"'

# Position-independent, so that no address is known beforehand, with what the loader writes read-only
# afterwards. musl's specs know no -static-pie, so the start files are named here; musl has no FORTIFY,
# musl/fortify.h has its checks.
MUSL_LIBRARY = $(if $(filter arm64,$(VCUDA_ARCH)),$(OUT)/musl/lib,/usr/lib/$(MACHINE)-linux-musl)
MUSL_CFLAGS = $(CFLAGS_COMMON) -fPIE -fstack-protector-strong -include oci/launcher/musl/fortify.h \
  -Ioci/launcher -ffunction-sections -fdata-sections
MUSL_LINKING = -static -nostartfiles $(MUSL_LIBRARY)/rcrt1.o $(MUSL_LIBRARY)/crti.o \
  -Wl,-pie,--no-dynamic-linker,-z,text,-z,relro,-z,now,-z,noexecstack

# Each program is linked with all files that have no `main`, and keeps what it calls.
LAUNCHER_MAINS := $(addprefix oci/launcher/,runtime/main.c hooks/hook.c hooks/procfs_hook.c)
LAUNCHER_FILES := $(wildcard oci/launcher/*/*.[ch]) oci/launcher/build.mk
LAUNCHER_PARTS := $(filter-out $(LAUNCHER_MAINS),$(wildcard oci/launcher/*/*.c))
# What has an installation's paths is compiled for each; the other parts once for all.
LAUNCHER_OF_PATHS := oci/launcher/handover/exec.c
LAUNCHER_OBJECTS := $(patsubst oci/%.c,$(OUT)/obj/%.o,$(filter-out $(LAUNCHER_OF_PATHS),$(LAUNCHER_PARTS)))
MUSL_LINK = $(MUSL_CC) $(MUSL_CFLAGS) $(MUSL_LINKING) $(LAUNCHER_PATHS) -Wl,--gc-sections \
  -o $@ oci/launcher/$(MAIN) $(LAUNCHER_OF_PATHS) $(LAUNCHER_OBJECTS) $(MUSL_LIBRARY)/crtn.o

HOOK := $(OUT)/bin/vcuda-container-hook
PROCFS_HOOK := $(OUT)/lib/vcuda-procfs-hook

RUNTIME_TARGETS += $(LAUNCHER) $(HOOK) $(PROCFS_HOOK)

# No package installs arm64's musl on this host. Debian's package for arm64 is 4 MB, works with the
# compiler that builds the shim, and has the version that the programs for amd64 have. A cross compiler
# with its own musl is 100 MB.
ifeq ($(VCUDA_ARCH),arm64)
$(LAUNCHER) $(HOOK) $(PROCFS_HOOK) $(LAUNCHER_OBJECTS): $(OUT)/musl/version
endif

build/arm64/musl/version: packaging/musl-arm64
	@echo "fetch     $(@D)"
	@packaging/musl-arm64 $(@D)
	@touch $@

$(LAUNCHER_OBJECTS): $(OUT)/obj/%.o: oci/%.c $(wildcard oci/launcher/*/*.h) oci/launcher/build.mk
	@mkdir -p $(@D)
	@$(MUSL_CC) $(MUSL_CFLAGS) -c -o $@ $<

$(LAUNCHER): MAIN := runtime/main.c
# Static, so that no variable of an image loads anything into it: hooks/hook.c.
$(HOOK): MAIN := hooks/hook.c
# Static against musl as the launcher is: it runs at each start of a container with a share.
$(PROCFS_HOOK): MAIN := hooks/procfs_hook.c

$(LAUNCHER) $(HOOK) $(PROCFS_HOOK): $(LAUNCHER_FILES) $(LAUNCHER_OBJECTS)
	@mkdir -p $(@D)
	@echo "link      $@"
	@$(MUSL_LINK)

# The launcher's parsers, for libFuzzer (launcher) and for a comparison with Python's
# (launcher-answers). clang, because gcc has no libFuzzer.
LAUNCHER_FUZZ := tests/release/fuzz/launcher_parsers.c tests/release/fuzz/launcher_parsers.h $(wildcard oci/launcher/*/*.[ch])
LAUNCHER_FUZZ_CFLAGS = $(CFLAGS_COMMON) -Ioci/launcher -fno-omit-frame-pointer -fno-sanitize-recover=all \
                   $(LAUNCHER_PATHS)

build/fuzz/launcher: tests/release/fuzz/launcher_fuzzer.c $(LAUNCHER_FUZZ)
	@mkdir -p $(@D)
	@echo "link      $@"
	@clang $(LAUNCHER_FUZZ_CFLAGS) -fsanitize=fuzzer,address,undefined -o $@ $< tests/release/fuzz/launcher_parsers.c \
	  $(LAUNCHER_PARTS)

build/fuzz/launcher-answers: tests/release/fuzz/launcher_answers.c $(LAUNCHER_FUZZ)
	@mkdir -p $(@D)
	@echo "link      $@"
	@clang $(LAUNCHER_FUZZ_CFLAGS) -fsanitize=address,undefined -o $@ $< tests/release/fuzz/launcher_parsers.c \
	  $(LAUNCHER_PARTS)

.PHONY: fuzz-launcher
fuzz-launcher: build/fuzz/launcher build/fuzz/launcher-answers
	@$(VENV)/bin/python -m tests.release.fuzz --seconds $(or $(SECONDS),60) $(ONLY)
