# The turn keeper, $(OUT)/lib/vcuda-turn-keeper: static against musl as the launcher is, so that it is
# small and runs on any distribution. For the tests the same program, linked with glibc: virtual time
# replaces its clock.

TURNS := $(OUT)/lib/vcuda-turn-keeper
TURNS_SOURCES := $(wildcard libvcuda/turns/*/*.c)
TURNS_FILES := $(TURNS_SOURCES) $(wildcard libvcuda/turns/*/*.h) libvcuda/vcuda_abi.h libvcuda/turns/build.mk
TURNS_CFLAGS = $(CFLAGS_COMMON) -Wmissing-prototypes -Ilibvcuda -Ilibvcuda/turns

$(TURNS): $(TURNS_FILES) oci/launcher/musl/fortify.h
	@mkdir -p $(@D)
	@echo "link      $@"
	@$(MUSL_CC) $(TURNS_CFLAGS) $(MUSL_CFLAGS) $(MUSL_LINKING) -o $@ $(TURNS_SOURCES) $(MUSL_LIBRARY)/crtn.o

build/turns/vcuda-turn-keeper: $(TURNS_FILES)
	@mkdir -p $(@D)
	@echo "link      $@"
	@$(CC) $(TURNS_CFLAGS) -D_GNU_SOURCE -o $@ $(TURNS_SOURCES) -pthread

# Its sanitizers are linked in: the clock's library is loaded before any other.
build/sanitize/vcuda-turn-keeper: $(TURNS_FILES)
	@mkdir -p $(@D)
	@echo "link      $@"
	@$(CC) $(TURNS_CFLAGS) -D_GNU_SOURCE -g -fsanitize=address,undefined -fno-sanitize-recover \
		-static-libasan -static-libubsan -o $@ $(TURNS_SOURCES) -pthread

RUNTIME_TARGETS += $(TURNS)
BUILD_TARGETS += build/turns/vcuda-turn-keeper
