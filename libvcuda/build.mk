# The shim: build/lib/libvcuda.so.1 and build/abi_print.

VCUDA_SOURCES := $(wildcard libvcuda/src/*.c)
VCUDA_OBJECTS := $(VCUDA_SOURCES:libvcuda/src/%.c=build/obj/vcuda/%.o) build/obj/vcuda/entries.o
VCUDA_VERSION := $(shell sed -n 's/^version = "\(.*\)"$$/\1/p' pyproject.toml)
VCUDA_GENERATED := build/generated/entries.S build/generated/real.h build/generated/vcuda.map
VCUDA_CFLAGS = $(CFLAGS_COMMON) -D_GNU_SOURCE -fvisibility=hidden -fPIC -Ilibvcuda -Ilibvcuda/src \
	-Ibuild/generated -isystem $(CUDA_INCLUDE)

# SONAME: a program's dlopen("libcuda.so.1") is then answered with the shim whatever was loaded
# before. DT_RPATH $ORIGIN: see claim_public_names in load.c. nodelete: fork handlers stay
# registered. libdl.so.2 holds what is asked for under its old version where glibc is older than
# 2.34.
VCUDA_LDFLAGS := -shared -Wl,-soname,libcuda.so.1 -Wl,--version-script=build/generated/vcuda.map \
	-Wl,-Bsymbolic -Wl,-z,lazy -Wl,-z,relro -Wl,-z,nodelete -Wl,-z,defs \
	-Wl,--disable-new-dtags,-rpath,'$$ORIGIN' -pthread \
	-Wl,--no-as-needed -l:libdl.so.2

build/generated/.made: libvcuda/policy.list $(wildcard libvcuda/generate/*.py)
	@echo "generate  the table of entry points"
	@CC="$(CC)" PYTHONPATH=libvcuda python3 -m generate $(CUDA_INCLUDE) libvcuda/policy.list build/generated
	@touch $@

$(VCUDA_GENERATED): build/generated/.made ;

build/obj/vcuda/%.o: libvcuda/src/%.c $(VCUDA_GENERATED) $(wildcard libvcuda/*.h libvcuda/src/*.h)
	@mkdir -p $(@D)
	@echo "cc        $<"
	@$(CC) $(VCUDA_CFLAGS) -c -o $@ $<

build/obj/vcuda/mark.o: VCUDA_CFLAGS += -DVCUDA_VERSION='"$(VCUDA_VERSION)"'
build/obj/vcuda/mark.o: pyproject.toml

build/obj/vcuda/entries.o: build/generated/entries.S libvcuda/src/entries.inc
	@mkdir -p $(@D)
	@$(CC) -Ilibvcuda/src -c -o $@ $<

# Made beside and renamed: a process that has the old file mapped keeps it.
build/lib/libvcuda.so.1: $(VCUDA_OBJECTS) libvcuda/build.mk
	@mkdir -p $(@D)
	@echo "link      $@"
	@$(CC) -o $@.new $(VCUDA_OBJECTS) $(VCUDA_LDFLAGS)
	@mv -f $@.new $@

build/abi_print: libvcuda/abi_print.c libvcuda/vcuda_abi.h
	@mkdir -p $(@D)
	@$(CC) $(CFLAGS_COMMON) -Ilibvcuda -o $@ $<

BUILD_TARGETS += build/lib/libvcuda.so.1 build/abi_print
