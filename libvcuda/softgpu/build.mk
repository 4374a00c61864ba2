# The software GPU: a driver in software, as libraries, nvidia-smi, and the tool that makes a driver
# root of them.

SOFTGPU := libvcuda/softgpu
SOFTGPU_OUT := build/softgpu
# U first: Ubuntu's compiler defines it already.
SOFTGPU_HARDENING := -fstack-protector-strong -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2
SOFTGPU_LINK := $(CFLAGS_COMMON) $(SOFTGPU_HARDENING) -Wl,-z,relro,-z,now,-z,noexecstack
SOFTGPU_CFLAGS := $(CFLAGS_COMMON) $(SOFTGPU_HARDENING) -D_GNU_SOURCE -Wmissing-prototypes \
  -fvisibility=hidden -fPIC -I$(SOFTGPU)
# symbolic: a call of its own must not land in a shim that stands before it.
SOFTGPU_LIBFLAGS = -shared -Wl,-Bsymbolic -Wl,-z,defs -Wl,--no-undefined -ldl -lpthread

# By room; each library and program is made of whole rooms.
softgpu_room = $(patsubst $(SOFTGPU)/%.c,%,$(sort $(foreach room,$(1),$(wildcard $(SOFTGPU)/$(room)/*.c))))
softgpu_cuda := $(call softgpu_room,driver graph memory virtual stream array copy checkpoint module context launch)

softgpu_objects = $(patsubst %,$(SOFTGPU_OUT)/obj/%.o,$(1))

SOFTGPU_TARGETS := $(addprefix $(SOFTGPU_OUT)/,libcuda.so.1 libnvidia-ml.so.1 nvidia-smi softgpu \
  nvidia-cuda-mps-control nvidia-cuda-mps-server vcuda-workload libsoftclock.so.1)
# The gates are x86-64's assembly.
MACHINE := $(shell uname -m)
ifeq ($(MACHINE),x86_64)
BUILD_TARGETS += $(SOFTGPU_TARGETS)
endif

.PHONY: softgpu
softgpu: $(SOFTGPU_TARGETS) ## the software GPU's libraries and programs

$(SOFTGPU_OUT)/obj/%.o: $(SOFTGPU)/%.c $(wildcard $(SOFTGPU)/*/*.h) $(SOFTGPU)/build.mk
	@mkdir -p $(@D)
	@echo "cc        $<"
	@$(CC) $(SOFTGPU_CFLAGS) -I$(CUDA_INCLUDE) -c -o $@ $<

SOFTGPU_HEADERS = $(wildcard $(CUDA_INCLUDE)/cuda.h $(CUDA_INCLUDE)/cudaTypedefs.h $(CUDA_INCLUDE)/nvml.h)
softgpu_generate = mkdir -p $(@D) && CC="$(CC)" python3 $(SOFTGPU)/stubs.py $(1) $(CUDA_INCLUDE) $@

.PRECIOUS: $(SOFTGPU_OUT)/obj/stubs_%.c $(SOFTGPU_OUT)/obj/stubs_%_gate.S $(SOFTGPU_OUT)/obj/%.names

$(SOFTGPU_OUT)/obj/stubs_%.c: $(SOFTGPU)/stubs.py $(SOFTGPU_HEADERS)
	@$(call softgpu_generate,$*)

$(SOFTGPU_OUT)/obj/stubs_%_gate.S: $(SOFTGPU)/stubs.py $(SOFTGPU_HEADERS)
	@$(call softgpu_generate,$*_gate)

$(SOFTGPU_OUT)/obj/%.names: $(SOFTGPU)/stubs.py $(SOFTGPU_HEADERS)
	@$(call softgpu_generate,$*_names)

$(SOFTGPU_OUT)/obj/aliases.ld: $(SOFTGPU)/stubs.py $(SOFTGPU_HEADERS)
	@$(call softgpu_generate,aliases)

$(SOFTGPU_OUT)/obj/stubs_%.o: $(SOFTGPU_OUT)/obj/stubs_%.c $(SOFTGPU)/build.mk
	@$(CC) $(SOFTGPU_CFLAGS) -Wno-missing-prototypes -c -o $@ $<

$(SOFTGPU_OUT)/obj/stubs_%_gate.o: $(SOFTGPU_OUT)/obj/stubs_%_gate.S
	@$(CC) -c -o $@ $<

# All that a library does, its entry points under the names behind the gate: calls among them don't
# pass it again.
$(SOFTGPU_OUT)/obj/cuda_behind.o: $(call softgpu_objects,$(call softgpu_room,engine state) $(softgpu_cuda) stubs_cuda stubs_errors)
$(SOFTGPU_OUT)/obj/nvml_behind.o: $(call softgpu_objects,$(call softgpu_room,engine state mig nvml) stubs_nvml)
$(SOFTGPU_OUT)/obj/%_behind.o: $(SOFTGPU_OUT)/obj/%.names
	@$(CC) -r -nostdlib -o $@.whole $(filter %.o,$^)
	@objcopy --redefine-syms=$(SOFTGPU_OUT)/obj/$*.names $@.whole $@
	@rm $@.whole

$(SOFTGPU_OUT)/libcuda.so.1: $(call softgpu_objects,cuda_behind stubs_cuda_gate stubs_points) $(SOFTGPU_OUT)/obj/aliases.ld
	@echo "link      $@"
	@$(CC) $(SOFTGPU_LINK) -Wl,-soname,libcuda.so.1 -o $@ $^ $(SOFTGPU_LIBFLAGS)

$(SOFTGPU_OUT)/libnvidia-ml.so.1: $(call softgpu_objects,nvml_behind stubs_nvml_gate)
	@echo "link      $@"
	@$(CC) $(SOFTGPU_LINK) -Wl,-soname,libnvidia-ml.so.1 -o $@ $^ $(SOFTGPU_LIBFLAGS)

$(SOFTGPU_OUT)/nvidia-smi: $(call softgpu_objects,$(call softgpu_room,smi))
$(SOFTGPU_OUT)/nvidia-cuda-mps-control: $(call softgpu_objects,$(call softgpu_room,mps engine state))
$(SOFTGPU_OUT)/softgpu: $(call softgpu_objects,$(call softgpu_room,create mig engine state) stubs_errors)
$(SOFTGPU_OUT)/vcuda-workload: $(call softgpu_objects,$(call softgpu_room,workload))
$(addprefix $(SOFTGPU_OUT)/,nvidia-smi nvidia-cuda-mps-control softgpu vcuda-workload):
	@echo "link      $@"
	@$(CC) $(SOFTGPU_LINK) -pie -o $@ $^ -ldl

$(SOFTGPU_OUT)/nvidia-cuda-mps-server: $(SOFTGPU_OUT)/nvidia-cuda-mps-control
	@cp $< $@

$(SOFTGPU_OUT)/libsoftclock.so.1: $(wildcard $(SOFTGPU)/clock/*.c $(SOFTGPU)/clock/*.h) $(SOFTGPU)/build.mk
	@echo "link      $@"
	@$(CC) $(SOFTGPU_LINK) -D_GNU_SOURCE -I$(SOFTGPU) -fvisibility=hidden -fPIC -shared -Wl,-z,defs -o $@ $(filter %.c,$^)
