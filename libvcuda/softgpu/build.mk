# The software GPU: a driver in software, as libraries, nvidia-smi, and the tool that makes a driver
# root of them.

SOFTGPU := libvcuda/softgpu
SOFTGPU_OUT := build/softgpu
SOFTGPU_CFLAGS := $(CFLAGS_COMMON) -D_GNU_SOURCE -Wmissing-prototypes -fvisibility=hidden -fPIC -I$(SOFTGPU)
# symbolic: a call of its own must not land in a shim that stands before it.
SOFTGPU_LIBFLAGS = -shared -Wl,-Bsymbolic -Wl,-z,defs -Wl,-z,now -Wl,--no-undefined -ldl -lpthread

softgpu_shared := find lock attach device_time
softgpu_cuda := init errors procaddress device attribute context context_query block memory pool pointer copy \
  ptx module function occupancy launch stream event
softgpu_nvml := nvml_init nvml_device nvml_memory nvml_usage nvml_processes nvml_pid nvml_event

softgpu_objects = $(patsubst %,$(SOFTGPU_OUT)/obj/%.o,$(1))

SOFTGPU_TARGETS := $(addprefix $(SOFTGPU_OUT)/,libcuda.so.1 libnvidia-ml.so.1 nvidia-smi softgpu \
  vcuda-workload)
BUILD_TARGETS += $(SOFTGPU_TARGETS)

.PHONY: softgpu
softgpu: $(SOFTGPU_TARGETS) ## the software GPU's libraries and programs

$(SOFTGPU_OUT)/obj/%.o: $(SOFTGPU)/%.c $(wildcard $(SOFTGPU)/*.h)
	@mkdir -p $(@D)
	@echo "cc        $<"
	@$(CC) $(SOFTGPU_CFLAGS) -I$(CUDA_INCLUDE) -c -o $@ $<

$(SOFTGPU_OUT)/obj/stubs_%.c: $(SOFTGPU)/stubs.py $(wildcard $(CUDA_INCLUDE)/cuda.h $(CUDA_INCLUDE)/nvml.h)
	@mkdir -p $(@D)
	@CC="$(CC)" python3 $(SOFTGPU)/stubs.py $* $(CUDA_INCLUDE) $@

$(SOFTGPU_OUT)/obj/aliases.ld: $(SOFTGPU)/stubs.py $(wildcard $(CUDA_INCLUDE)/cuda.h)
	@mkdir -p $(@D)
	@CC="$(CC)" python3 $(SOFTGPU)/stubs.py aliases $(CUDA_INCLUDE) $@

$(SOFTGPU_OUT)/obj/stubs_%.o: $(SOFTGPU_OUT)/obj/stubs_%.c
	@$(CC) $(SOFTGPU_CFLAGS) -Wno-missing-prototypes -c -o $@ $<

$(SOFTGPU_OUT)/libcuda.so.1: $(call softgpu_objects,$(softgpu_shared) $(softgpu_cuda) stubs_cuda) $(SOFTGPU_OUT)/obj/aliases.ld
	@echo "link      $@"
	@$(CC) $(CFLAGS_COMMON) -Wl,-soname,libcuda.so.1 -o $@ $^ $(SOFTGPU_LIBFLAGS)

$(SOFTGPU_OUT)/libnvidia-ml.so.1: $(call softgpu_objects,$(softgpu_shared) $(softgpu_nvml) stubs_nvml)
	@echo "link      $@"
	@$(CC) $(CFLAGS_COMMON) -Wl,-soname,libnvidia-ml.so.1 -o $@ $^ $(SOFTGPU_LIBFLAGS)

$(SOFTGPU_OUT)/nvidia-smi: $(call softgpu_objects,smi smi_query)
	@echo "link      $@"
	@$(CC) $(CFLAGS_COMMON) -o $@ $^ -ldl

$(SOFTGPU_OUT)/softgpu: $(call softgpu_objects,create create_state files)
	@echo "link      $@"
	@$(CC) $(CFLAGS_COMMON) -o $@ $^

$(SOFTGPU_OUT)/vcuda-workload: $(call softgpu_objects,workload workload_gpu)
	@echo "link      $@"
	@$(CC) $(CFLAGS_COMMON) -o $@ $^ -ldl
