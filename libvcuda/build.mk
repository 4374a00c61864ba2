# The shim, $(OUT)/lib/libvcuda.so.1, and build/abi_print.

# Linked first, the hot path and the exports that lead to it stay at the same addresses when code
# elsewhere changes: another place can cost a copy 1.4 ns.
VCUDA_HOT := $(addprefix libvcuda/shim/,compute/launch.c copy/copies.c copy/copy_batches.c copy/copy_boxes.c \
	copy/memsets.c allocate/linear_memory.c memory/settle.c memory/reserve.c charge/charge.c charge/alloc_map.c \
	view/memory_info.c allocate/stream_memory.c charge/pool_charge.c)
VCUDA_REST := $(filter-out $(VCUDA_HOT),$(wildcard libvcuda/shim/*/*.c))
VCUDA_SOURCES := $(VCUDA_HOT) $(VCUDA_REST)
VCUDA_OBJECTS := $(VCUDA_HOT:libvcuda/shim/%.c=$(OUT)/obj/vcuda/%.o) $(OUT)/obj/vcuda/entries.o \
	$(VCUDA_REST:libvcuda/shim/%.c=$(OUT)/obj/vcuda/%.o)
VCUDA_VERSION := $(shell sed -n 's/^version = "\(.*\)"$$/\1/p' pyproject.toml)
VCUDA_GENERATED := build/generated/entries.S build/generated/real.h build/generated/vcuda.map
# Aligned, so that code elsewhere in the shim does not move its hot path: 15 ns of an allocation.
VCUDA_CFLAGS = $(CFLAGS_COMMON) -falign-functions=64 -D_GNU_SOURCE -fvisibility=hidden -fPIC -Ilibvcuda -Ilibvcuda/shim \
	-Ibuild/generated -isystem $(CUDA_INCLUDE) -DVCUDA_VERSION='"$(VCUDA_VERSION)"'

# SONAME: a program's dlopen("libcuda.so.1") is then answered with the shim whatever was loaded
# before. DT_RPATH $ORIGIN: see claim_public_names in load.c. nodelete: fork handlers stay
# registered. libdl.so.2 holds the functions that are bound under an old version, where glibc is
# older than 2.34.
VCUDA_LDFLAGS := -shared -Wl,-soname,libcuda.so.1 -Wl,--version-script=build/generated/vcuda.map \
	-Wl,-Bsymbolic -Wl,-z,lazy -Wl,-z,relro -Wl,-z,nodelete -Wl,-z,defs \
	-Wl,--disable-new-dtags,-rpath,'$$ORIGIN' -pthread \
	-Wl,--no-as-needed -l:libdl.so.2

build/generated/.made: libvcuda/policy.list libvcuda/exports.list libvcuda/undeclared.h $(wildcard libvcuda/generate/*.py)
	@echo "generate  the table of entry points"
	@CC="$(CC)" PYTHONPATH=libvcuda python3 -m generate $(CUDA_INCLUDE) libvcuda build/generated
	@touch $@

$(VCUDA_GENERATED): build/generated/.made ;

# The flags are this file's: a change of it compiles all anew.
VCUDA_NEEDS := $(VCUDA_GENERATED) $(wildcard libvcuda/*.h libvcuda/shim/*/*.h) libvcuda/build.mk

$(OUT)/obj/vcuda/%.o: libvcuda/shim/%.c $(VCUDA_NEEDS)
	@mkdir -p $(@D)
	@echo "cc        $<"
	@$(CC) $(VCUDA_CFLAGS) -c -o $@ $<

$(OUT)/obj/vcuda/entry/version_mark.o: pyproject.toml

$(OUT)/obj/vcuda/entries.o: build/generated/entries.S libvcuda/shim/entry/entries.inc libvcuda/shim/entry/gate.inc libvcuda/build.mk
	@mkdir -p $(@D)
	@$(CC) -Ilibvcuda/shim -c -o $@ $<

# Made beside and renamed: a process that has the old file mapped keeps it.
$(OUT)/lib/libvcuda.so.1: $(VCUDA_OBJECTS) libvcuda/build.mk
	@mkdir -p $(@D)
	@echo "link      $@"
	@$(CC) -o $@.new $(VCUDA_OBJECTS) $(VCUDA_LDFLAGS)
	@mv -f $@.new $@

# The shim itself under a sanitizer, for tests/shim/bounds/test_shim_sanitizers.py. TSan ignores fences, and
# gcc warns at each: device.c reads the limits page under one.
SANITIZE_address := -fsanitize=address,undefined -fno-sanitize-recover=undefined
SANITIZE_thread := -fsanitize=thread -Wno-tsan

define sanitized_shim
build/sanitize/$(1)/%.o: libvcuda/shim/%.c $$(VCUDA_NEEDS)
	@mkdir -p $$(@D)
	@$$(CC) $$(VCUDA_CFLAGS) -O0 -fno-omit-frame-pointer $$(SANITIZE_$(1)) -c -o $$@ $$<

build/sanitize/$(1)/libvcuda.so.1: $$(VCUDA_SOURCES:libvcuda/shim/%.c=build/sanitize/$(1)/%.o) $$(OUT)/obj/vcuda/entries.o
	@$$(CC) -o $$@.new $$(SANITIZE_$(1)) $$^ $$(VCUDA_LDFLAGS)
	@mv -f $$@.new $$@
endef
$(foreach kind,address thread,$(eval $(call sanitized_shim,$(kind))))

# libFuzzer's target: the shim's own sources, on a driver and a clock of the target's (tests/shim/fuzz).
# Its pages.c includes the shim's.
FUZZ := tests/shim/fuzz
FUZZ_CFLAGS = $(filter-out -fvisibility=hidden,$(VCUDA_CFLAGS)) -fsanitize=address,undefined \
	-fno-sanitize-recover=undefined -Wno-gnu -Dclock_gettime=fuzz_clock_gettime \
	-Dclock_nanosleep=fuzz_clock_nanosleep -Dsyscall=fuzz_syscall -Dusleep=fuzz_usleep -Dwrite=fuzz_write
FUZZ_SOURCES := $(filter-out libvcuda/shim/pages/pages.c,$(VCUDA_SOURCES)) $(wildcard $(FUZZ)/*.c)

build/fuzz/$(FUZZ)/pages.o: libvcuda/shim/pages/pages.c

build/fuzz/%.o: %.c $(VCUDA_NEEDS) $(wildcard $(FUZZ)/*.h)
	@mkdir -p $(@D)
	@clang $(FUZZ_CFLAGS) -fsanitize=fuzzer-no-link -c -o $@ $<

build/fuzz/pages: $(FUZZ_SOURCES:%.c=build/fuzz/%.o) $(OUT)/obj/vcuda/entries.o
	@echo "link      $@"
	@clang -fsanitize=fuzzer,address,undefined -o $@ $^ -pthread -l:libdl.so.2

build/abi_print: libvcuda/abi_print.c libvcuda/vcuda_abi.h
	@mkdir -p $(@D)
	@$(CC) $(CFLAGS_COMMON) -Ilibvcuda -o $@ $<

RUNTIME_TARGETS += $(OUT)/lib/libvcuda.so.1
BUILD_TARGETS += build/abi_print
