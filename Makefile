# zlaunch: one Makefile for everything. `make help` lists the targets.
#
# A library per folder, an arrow per DEPS line. A unit test links only its own library and
# what that one may use, so an upward call is an undefined symbol.

VARIANT ?= release
V       ?= 0
PREFIX  ?= /usr/local
DESTDIR ?=
VERSION := 0.1.0

CC     ?= cc
AR     ?= ar
B      := build/$(VARIANT)
# the everyday build leaves its binaries in bin/, a sanitised one beside its objects
BIN    := $(if $(filter release,$(VARIANT)),bin,$(B)/bin)
Q      := $(if $(filter 1,$(V)),,@)
say    = $(if $(filter 1,$(V)),,@printf '  %-7s %s\n' $(1) $(2))

# ---------------------------------------------------------------- what each library may use
LIBS := common store config comm text data kernels offload optim checkpoint tools autograd zero monitor engine generate daemon launcher

DIRS_common     := common
DIRS_store      := store
DIRS_config     := worker/config
DIRS_comm       := worker/comm
DIRS_data       := worker/data
DIRS_text       := worker/text worker/records worker/template
DIRS_kernels    := kernels
DIRS_offload    := worker/offload
DIRS_optim      := worker/optim
DIRS_checkpoint := worker/checkpoint worker/checkpoint/disk worker/torch_file worker/deepspeed
DIRS_tools      := worker/tools
DIRS_autograd   := worker/autograd
DIRS_zero       := worker/zero
DIRS_monitor    := worker/monitor
DIRS_engine     := worker/engine worker/tasks
DIRS_generate   := worker/generate
DIRS_daemon     := worker/daemon
DIRS_launcher   := launcher

DEPS_common     :=
DEPS_store      := common
DEPS_config     := optim kernels common
DEPS_comm       := kernels common
DEPS_data       := text common
DEPS_text       := common
DEPS_kernels    := common
DEPS_offload    := kernels common
DEPS_optim      := kernels common
DEPS_checkpoint := common
DEPS_tools      := text checkpoint offload common
DEPS_autograd   := kernels common
DEPS_zero       := autograd offload optim comm config kernels common
DEPS_monitor    := common
DEPS_engine     := monitor zero autograd offload optim data text comm checkpoint config kernels store common
DEPS_generate   := engine monitor zero autograd offload optim data text comm checkpoint config kernels store common
DEPS_daemon     := comm kernels common
DEPS_launcher   := store common

# ---------------------------------------------------------------- flags
WARN := -Wall -Wextra -Wpedantic -Wshadow -Wvla -Wformat=2 -Wstrict-prototypes \
        -Wmissing-prototypes -Wno-format-nonliteral -Wno-format-truncation \
        -Wno-unknown-pragmas
ifneq ($(findstring clang,$(shell $(CC) --version 2>/dev/null)),)
WARN += -Wno-unknown-warning-option -Wno-gnu-zero-variadic-macro-arguments
endif
ifeq ($(WERROR),1)
WARN += -Werror
endif

# -ffp-contract=off: a sum written as mul+add is exactly that; fma is always explicit.
# -fno-trapping-math: nobody reads the flags of floating-point exceptions. Without it gcc 14
# leaves loops with a choice in them (activations, softmax) scalar. No result depends on it.
OPT_release := -O3 -fno-math-errno -fno-trapping-math -ffp-contract=off
OPT_asan    := -O1 -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer -ffp-contract=off
OPT_tsan    := -O1 -fsanitize=thread -ffp-contract=off
OPT_coverage := -O1 --coverage -fprofile-update=atomic -fno-math-errno -ffp-contract=off
# the loops of kernels take most of the time of the tests: a hundredth of it as vectors
ifneq ($(filter asan tsan,$(VARIANT)),)
$(B)/kernels/%: OPT_$(VARIANT) := $(subst -O1,-O2 -fno-math-errno -fno-trapping-math,$(OPT_$(VARIANT)))
endif
LD_asan     := -fsanitize=address,undefined
LD_tsan     := -fsanitize=thread
LD_coverage := --coverage

# Threads of the CPU backend: OpenMP, shared with oneDNN. TSan cannot see inside libgomp,
# so that build takes the pthread form of kernels/cpu/parallel.c instead.
OMP := $(if $(filter tsan,$(VARIANT)),-DZT_PARALLEL_PTHREADS,-fopenmp)

CFLAGS  ?= -g
ALL_CFLAGS = -std=gnu11 $(WARN) $(OPT_$(VARIANT)) $(OMP) -fPIC -fvisibility=hidden -I. -Iinclude \
             -D_GNU_SOURCE -DZT_VERSION='"$(VERSION)"' -MMD -MP $(CFLAGS)
ALL_LDFLAGS = $(LD_$(VARIANT)) $(OMP) $(LDFLAGS)
LDLIBS  = -ljansson -luv -lxxhash -lhwloc -ldl -lpthread -lm

SYS_kernels := -ldnnl
SYS_launcher := -lssh2
SYS_store   := -lsodium
SYS_text    := -lpcre2-8 -lutf8proc -lsodium

# ---------------------------------------------------------------- optional backends
# A probe compiles one line; `make HAVE_CUDA=0` overrules it.
COMMA := ,
HASH  := \#
probe = $(shell printf '%s\n' '$(1)' | $(2) -fsyntax-only -x c - >/dev/null 2>&1 && echo 1 || echo 0)
CUDA_HOME ?= /usr/local/cuda
HAVE_CUDA ?= $(call probe,$(HASH)include <cuda_runtime_api.h>,$(CC) -I$(CUDA_HOME)/include)
# NCCL's header may be there without the library, or be too old: this one links
NCCL_LINK = -L$(CUDA_HOME)/lib64 -Wl,-rpath,$(CUDA_HOME)/lib64 -lnccl -lcudart_static -ldl -lpthread -lrt
HAVE_NVCC ?= $(if $(wildcard $(CUDA_HOME)/bin/nvcc),1,0)
HAVE_NCCL ?= $(shell printf '%s\n' '$(HASH)include <nccl.h>' 'int main(void) { return ncclCommInitRankScalable(0, 1, 0, 1, 0, 0); }' | \
  $(CC) -isystem $(CUDA_HOME)/include -x c - -o /dev/null $(NCCL_LINK) >/dev/null 2>&1 && echo 1 || echo 0)
CUDNN_HOME ?= $(CUDA_HOME)
CUDNN_LIB  ?= $(firstword $(wildcard $(foreach d,lib64 lib lib/*,$(CUDNN_HOME)/$(d)/libcudnn.so $(CUDNN_HOME)/$(d)/libcudnn.so.9)))
HAVE_CUDNN ?= $(if $(CUDNN_LIB),$(call probe,$(HASH)include <cudnn.h>,$(CC) -I$(CUDNN_HOME)/include -I$(CUDA_HOME)/include),0)
MPICC     ?= mpicc
HAVE_MPI  ?= $(call probe,$(HASH)include <mpi.h>,$(MPICC))

# those of the usual GPUs that this nvcc knows
ifndef GPU_ARCH
GPU_ARCH := $(filter sm_80 sm_90 sm_100,$(shell $(CUDA_HOME)/bin/nvcc --list-gpu-code 2>/dev/null))
endif

# ---------------------------------------------------------------- what there is to build
srcs   = $(filter-out %/main.c,$(sort $(shell find $(DIRS_$(1)) -name '*.c')))
objs   = $(patsubst %.c,$(B)/%.o,$(call srcs,$(1)))
archive = $(B)/lib$(1).a
# a library with everything below it, in link order
closure = $(1) $(DEPS_$(1))

# what needs a library of its own is a shared object, loaded when a run asks for it
MPI_SO  := $(if $(filter 1,$(HAVE_MPI)),$(BIN)/backends/mpi.so)
NCCL_SO := $(if $(filter 1,$(HAVE_NCCL)),$(BIN)/backends/nccl.so)
CUDA_SO := $(if $(filter 11,$(HAVE_CUDA)$(HAVE_NVCC)),$(BIN)/backends/cuda.so)
CUDNN_SO := $(if $(filter 11,$(HAVE_CUDA)$(HAVE_CUDNN)),$(BIN)/backends/cudnn.so)
BACKENDS = $(MPI_SO) $(CUDA_SO) $(CUDNN_SO) $(NCCL_SO)
MODELS  := $(patsubst models/%.c,$(BIN)/models/%.so,$(wildcard models/*.c))
# before `all`, which reads it when it is read itself
TOOLS   := $(patsubst worker/tools/%/main.c,$(BIN)/%,$(wildcard worker/tools/*/main.c))
CHECKPOINT_SO := $(BIN)/libzcheckpoint.so
UNIT    := $(foreach l,$(LIBS),$(patsubst test/unit/$(l)/%.c,$(B)/unit/$(l)/%,$(wildcard test/unit/$(l)/test_*.c)))
BENCHES := $(patsubst bench/%.c,$(B)/bench/%,$(wildcard bench/bench_*.c))
PROBES  := $(patsubst test/peers/%.c,$(B)/peers/%,$(wildcard test/peers/*.c)) $(B)/unit/launcher/ssh_probe
# plugins that only tests load
TEST_MODELS := $(patsubst test/models/%.c,$(B)/test-models/%.so,$(wildcard test/models/*.c))

.PHONY: all help test unit unit-programs unit-levels integration cuda-shim gpu-check gpu-build gpu-package bench asan tsan fuzz lint tidy coverage \
        format format-check layers docs size install install-files uninstall clean summary models man probes
.DEFAULT_GOAL := all

# where they are compiled for AVX-512 at all: by gcc for x86_64, see kernels/cpu/simd.h
VECTORS := $(if $(filter release,$(VARIANT)),$(shell $(CC) -dM -E -x c /dev/null 2>/dev/null | \
             awk '/__clang__/ { no = 1 } /__x86_64__/ { yes = 1 } END { if (yes && !no) print "$(B)/vectors.checked" }'))
$(B)/vectors.checked: scripts/check_vectors $(call archive,kernels)
	$(Q)scripts/check_vectors $(call archive,kernels) && touch $@

all: $(BIN)/zlaunch $(BIN)/zworker $(TOOLS) $(CHECKPOINT_SO) $(MODELS) $(BACKENDS) $(B)/rooms.checked $(VECTORS) summary

summary: $(BIN)/zlaunch $(BIN)/zworker $(TOOLS) $(MODELS) $(BACKENDS)
	@rm -f $(filter-out $(BACKENDS),$(wildcard $(BIN)/backends/*.so))
	@printf '\n  %-10s %s\n' \
	  'backend' 'state' \
	  'cpu' 'built in (oneDNN, OpenMP)' \
	  'meta' 'built in (shapes only)' \
	  'cuda' '$(if $(CUDA_SO),built: $(CUDA_SO)$(COMMA) for $(GPU_ARCH),no CUDA toolkit (CUDA_HOME=$(CUDA_HOME)): --device cuda is left out)' \
	  'cudnn' '$(if $(CUDNN_SO),built: $(CUDNN_SO)$(COMMA) attention of the CUDA backend,no cuDNN: its own kernels do attention (CUDNN_HOME says where one is))' \
	  'nccl' '$(if $(NCCL_SO),built: $(NCCL_SO)$(COMMA) for several GPUs,no NCCL 2.23 or newer in $(CUDA_HOME): several GPUs are left out (apt install libnccl2 libnccl-dev))' \
	  'mpi' '$(if $(MPI_SO),built: $(MPI_SO)$(COMMA) for --comm mpi and mpirun,no $(MPICC) or mpi.h: --comm mpi is left out (apt install mpich libmpich-dev))'
	@printf '\n  built %s, %s and %s\n\n' '$(BIN)/zlaunch' '$(BIN)/zworker $(TOOLS)' '$(MODELS)'

help:
	@printf '%s\n' \
	  'make              bin/zlaunch, bin/zworker, bin/zckpt, bin/zio, bin/ztok, bin/models/*.so, bin/backends/*.so' \
	  'make test         unit and integration tests' \
	  'make unit-levels  unit tests of kernels at each level of instructions' \
	  'make docs         docs/CONFIG.md, METRICS.md and NAMES.md, from their tables' \
	  'make bench        speed, beside the machine limits and, if installed, PyTorch' \
	  'make asan|tsan    the tests in a sanitised build (asan: with UBSan)' \
	  'make cuda-shim    the kernels of the cuda backend, tested on the processor' \
	  'make gpu-check    OUT=dir [PACKAGE=file]: tests and speed on the GPU of this machine' \
	  'make gpu-package  OUT=file GPU_ARCH=sm_90: what gpu-check runs, to take along' \
	  'make fuzz         short libFuzzer runs of every parser (clang)' \
	  'make coverage     how much of each folder the tests run (gcov)' \
	  'make lint         clang-tidy, cppcheck, struct tags, shell syntax; make format: clang-format' \
	  'make tidy         clang-tidy alone, on more paths' \
	  'make layers       prove that no library calls upwards; make size: length of files' \
	  'make install      PREFIX=$(PREFIX) DESTDIR=; make uninstall, with the same: takes it away' \
	  'variables         V=1 CC= CFLAGS= WERROR=1 HAVE_CUDA=0 HAVE_CUDNN=0 HAVE_MPI=0'

# every object depends on the flags it was built with
STAMP = $(CC) $(filter-out -Werror,$(ALL_CFLAGS))
$(B)/flags: FORCE
	@mkdir -p $(@D); printf '%s\n' '$(STAMP)' | cmp -s - $@ || printf '%s\n' '$(STAMP)' > $@
FORCE:

$(B)/%.o: %.c $(B)/flags
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) -c -o $@ $<

define library
$(call archive,$(1)): $(call objs,$(1)) $(B)/flags
	@mkdir -p $$(@D); rm -f $$@
	$$(Q)$$(AR) crs $$@ $(call objs,$(1))
endef
$(foreach l,$(LIBS),$(eval $(call library,$(l))))

$(BIN)/zlaunch: $(B)/launcher/main.o $(foreach l,$(call closure,launcher),$(call archive,$(l)))
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(foreach l,$(call closure,launcher),$(SYS_$(l))) -ljansson -luv -lxxhash \
	  -lhwloc -lpthread -lm

# Programs that open checkpoints on any machine, without what training needs: static where
# the static libraries are there, and in the everyday build alone (sanitizers are not static).
TOOL_LIBS := -Wl,--as-needed $(SYS_text) -ljansson -lxxhash -lpthread -lm
STATIC := $(if $(filter release,$(VARIANT)),$(shell echo 'int main(void) { return 0; }' | \
            $(CC) -static -x c - -o /dev/null $(TOOL_LIBS) >/dev/null 2>&1 && echo -static))
$(TOOLS): $(BIN)/%: $(B)/worker/tools/%/main.o $(foreach l,$(call closure,tools),$(call archive,$(l)))
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(LD_$(VARIANT)) $(LDFLAGS) $(STATIC) -o $@ $^ $(TOOL_LIBS)
# what include/zlaunch/checkpoint.h declares, for programs of their own
$(CHECKPOINT_SO): scripts/libzcheckpoint.map $(foreach l,$(call closure,tools),$(call archive,$(l)))
	$(call say,SO,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_LDFLAGS) -shared -Wl,-soname,libzcheckpoint.so -Wl,--version-script=$< \
	  -Wl,-u,zt_checkpoint_open -o $@ -Wl,--start-group $(filter %.a,$^) -Wl,--end-group $(TOOL_LIBS)

# tests of kernels, on every backend; others are about the inside of one, or about none
SHIM_KERNEL_TESTS := adamw attention attention_decode attention_limits distance elementwise embedding gemm gemm_narrow loss norm quantize random rank_sum reduce rope softmax
OP_TESTS := $(patsubst %,test/unit/kernels/test_%.c,$(SHIM_KERNEL_TESTS))
# an op without a test is built into nothing; one without a kernel does not link
$(B)/ops.checked: kernels/backend.h $(OP_TESTS) scripts/check_ops
	@mkdir -p $(@D)
	$(Q)CC='$(CC)' scripts/check_ops $(OP_TESTS) && touch $@

# the plugin API must be there whole, used or not: --whole-archive, and exported
WORKER_LIBS := daemon generate engine monitor zero autograd offload optim data text comm checkpoint config kernels store
ZWORKER_OBJS := $(patsubst %,$(B)/worker/%.o,main rank start_notice)
$(BIN)/zworker: $(B)/ops.checked $(ZWORKER_OBJS) $(foreach l,$(WORKER_LIBS) common,$(call archive,$(l)))
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_LDFLAGS) -rdynamic -o $@ $(ZWORKER_OBJS) \
	  -Wl,--whole-archive $(call archive,autograd) -Wl,--no-whole-archive \
	  -Wl,--start-group $(foreach l,$(filter-out autograd,$(WORKER_LIBS)) common,$(call archive,$(l))) -Wl,--end-group \
	  $(SYS_kernels) $(SYS_store) $(SYS_text) $(LDLIBS)

$(BIN)/models/%.so: $(B)/models/%.o
	$(call say,SO,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_LDFLAGS) -shared -o $@ $< -lm
models: $(MODELS)
$(B)/test-models/%.so: $(B)/test/models/%.o
	$(call say,SO,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_LDFLAGS) -shared -o $@ $< -lm

# compiled with the wrapper of the MPI it will run with, by our compiler
$(BIN)/backends/mpi.so: backends/mpi.c worker/comm/mesh/transport.h $(B)/flags
	$(call say,MPICC,$@)
	@mkdir -p $(@D) $(B)/backends
	$(Q)MPICH_CC='$(CC)' OMPI_CC='$(CC)' $(MPICC) $(ALL_CFLAGS) -c -o $(B)/backends/mpi.o $<
	$(Q)MPICH_CC='$(CC)' OMPI_CC='$(CC)' $(MPICC) $(ALL_LDFLAGS) -shared -o $@ $(B)/backends/mpi.o

# plain C; -isystem: NVIDIA's headers do not compile without warnings
$(BIN)/backends/nccl.so: backends/nccl.c $(B)/flags
	$(call say,SO,$@)
	@mkdir -p $(@D) $(B)/backends
	$(Q)$(CC) $(ALL_CFLAGS) -isystem $(CUDA_HOME)/include -c -o $(B)/backends/nccl.o $<
	$(Q)$(CC) $(ALL_LDFLAGS) -shared -o $@ $(B)/backends/nccl.o $(NCCL_LINK)

# ---------------------------------------------------------------- the cuda backend without a device
# `make cuda-shim`: kernels/cuda and the tests of kernels, compiled by the host compiler against
# test/shim. VARIANT=asan works; SHIM_SEED=n draws other orders (test/shim/shim.h).
CXX       ?= c++
SHIM      := $(B)/shim
SHIM_WARN := $(filter-out -Wstrict-prototypes -Wmissing-prototypes,$(WARN))
SHIM_DEFS := -Itest/shim -I. -Iinclude -D_GNU_SOURCE -DZT_VERSION='"$(VERSION)"' -MMD -MP
SHIM_CXXFLAGS = -std=c++20 $(SHIM_WARN) $(OPT_$(VARIANT)) -fPIC $(SHIM_DEFS) $(CFLAGS)
# what ref.h makes of a test that was written for the cpu backend
SHIM_REF := -DREF_BACKEND=zt_cuda_backend -DREF_ALLOC=ref_cuda_alloc -DREF_FREE=ref_cuda_free \
            -DREF_ENTER=ref_cuda_enter -DREF_LEAVE=ref_cuda_leave \
            -include test/unit/kernels/ref.h
CUDA_SRCS := $(sort $(shell find kernels/cuda -name '*.cu'))
SHIM_SRCS := $(CUDA_SRCS) $(wildcard test/shim/*.cpp)
SHIM_LIB  := $(B)/libcuda-shim.a
SHIM_UNIT := $(patsubst test/unit/cuda/%.cpp,$(B)/unit/cuda/%,$(wildcard test/unit/cuda/test_*.cpp)) \
             $(patsubst %,$(B)/unit/kernels-on-cuda/test_%,$(SHIM_KERNEL_TESTS))
SHIM_STAMP = $(CXX) $(CC) $(filter-out -Werror,$(SHIM_CXXFLAGS) $(ALL_CFLAGS)) $(SHIM_REF) $(SHIM_SRCS)

$(SHIM)/flags: FORCE
	@mkdir -p $(@D); printf '%s\n' '$(SHIM_STAMP)' | cmp -s - $@ || printf '%s\n' '$(SHIM_STAMP)' > $@
$(SHIM)/%.cu.o: %.cu $(SHIM)/flags
	$(call say,CXX,$<)
	@mkdir -p $(@D)
	$(Q)$(CXX) -x c++ $(SHIM_CXXFLAGS) -c -o $@ $<
$(SHIM)/%.cpp.o: %.cpp $(SHIM)/flags
	$(call say,CXX,$<)
	@mkdir -p $(@D)
	$(Q)$(CXX) $(SHIM_CXXFLAGS) -c -o $@ $<
$(SHIM)/%.c.o: %.c $(SHIM)/flags
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) $(SHIM_REF) -c -o $@ $<
# a kernel that does not say how many threads it is started with may not start
$(B)/bounds.checked: scripts/check_registers $(CUDA_SRCS) $(wildcard kernels/cuda/*.h kernels/cuda/*/*.h)
	@mkdir -p $(@D)
	$(Q)scripts/check_registers kernels/cuda && touch $@
$(SHIM_LIB): $(B)/ops.checked $(B)/bounds.checked $(patsubst %,$(SHIM)/%.o,$(SHIM_SRCS)) $(SHIM)/flags
	@rm -f $@
	$(Q)$(AR) crs $@ $(filter %.o,$^)
SHIM_BELOW := $(SHIM_LIB) $(call archive,kernels) $(call archive,common)
$(B)/unit/cuda/%: $(SHIM)/test/unit/cuda/%.cpp.o $(SHIM_BELOW)
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CXX) $(ALL_LDFLAGS) -o $@ $^ -lcmocka $(SYS_kernels) $(LDLIBS)
$(B)/unit/kernels-on-cuda/%: $(SHIM)/test/unit/kernels/%.c.o $(SHIM)/test/unit/cuda/managed.cpp.o $(SHIM_BELOW)
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CXX) $(ALL_LDFLAGS) -o $@ $^ -lcmocka $(SYS_kernels) $(LDLIBS)
# the same backend on the shim, for zworker to load: ZLAUNCH_CUDA_BACKEND
SHIM_CUDA_SO := $(SHIM)/backends/cuda.so
$(SHIM_CUDA_SO): $(B)/backends/cuda.o $(SHIM_BELOW)
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CXX) $(ALL_LDFLAGS) -shared $(if $(filter release,$(VARIANT)),-Wl$(COMMA)-z$(COMMA)defs) -o $@ $< \
	  -Wl,--whole-archive $(SHIM_LIB) -Wl,--no-whole-archive $(call archive,kernels) $(call archive,common) \
	  $(SYS_kernels) $(LDLIBS)
# the same with every op counted: bench/count_step
$(SHIM)/backends/count_ops.so: $(B)/bench/count_ops.o $(SHIM_BELOW) | $(SHIM_CUDNN_SO)
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CXX) $(ALL_LDFLAGS) -shared -o $@ $< -Wl,--whole-archive $(SHIM_LIB) -Wl,--no-whole-archive \
	  $(call archive,kernels) $(call archive,common) $(SYS_kernels) $(LDLIBS)
# the same source on the shim: what it calls comes from the shim's cuda.so, which is global
SHIM_NCCL_SO := $(SHIM)/backends/nccl.so
$(SHIM_NCCL_SO): backends/nccl.c $(SHIM)/flags
	$(call say,SO,$@)
	@mkdir -p $(@D)
	$(Q)$(CXX) -x c++ $(SHIM_CXXFLAGS) -c -o $(SHIM)/backends/nccl.o $<
	$(Q)$(CXX) $(ALL_LDFLAGS) -shared -o $@ $(SHIM)/backends/nccl.o
# what the cuda backend on the shim may load in place of cudnn.so
SHIM_CUDNN_SO := $(SHIM)/backends/cudnn.so
$(SHIM_CUDNN_SO): $(SHIM)/test/unit/cuda/gated_object.cpp.o
	$(call say,SO,$@)
	@mkdir -p $(@D)
	$(Q)$(CXX) $(ALL_LDFLAGS) -shared -o $@ $<
# the limits that the bench of a device compares with, of small operands: that it draws them is a test's to say
SHIM_BENCH := $(SHIM)/bench_cuda
$(SHIM)/bench/bench_cuda.cu.o: private SHIM_DEFS += -DSQUARE=48 -DCOPY=65536 -DARENA=1048576 -DFLUSH=4096
$(SHIM_BENCH): $(SHIM)/bench/bench_cuda.cu.o $(SHIM_BELOW)
	$(call say,LD,$@)
	$(Q)$(CXX) $(ALL_LDFLAGS) -o $@ $^ $(SYS_kernels) $(LDLIBS)
# what test_shim_loaded loads: an object with the shim inside, and one linked against nothing
$(B)/unit/cuda/test_shim_loaded: | $(B)/unit/cuda/loaded_cuda.so $(B)/unit/cuda/loaded_nccl.so
$(B)/unit/cuda/loaded_cuda.so: $(patsubst %,$(SHIM)/%.o,test/unit/cuda/loaded_cuda.cpp $(wildcard test/shim/*.cpp))
	$(call say,SO,$@)
	@mkdir -p $(@D)
	$(Q)$(CXX) $(ALL_LDFLAGS) -shared -o $@ $^ -ldl -lpthread
$(B)/unit/cuda/loaded_nccl.so: test/unit/cuda/loaded_nccl.c $(SHIM)/flags
	$(call say,SO,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) -Itest/shim $(ALL_LDFLAGS) -shared -o $@ $<
# tests in C have none of it inside: they load both, as zworker does
SHIM_LOADS := $(patsubst test/unit/cuda/%.c,$(B)/unit/cuda/%,$(wildcard test/unit/cuda/test_*.c))
SHIM_UNIT  += $(SHIM_LOADS)
$(SHIM_LOADS): $(B)/unit/cuda/%: $(B)/test/unit/cuda/%.o $(foreach l,$(call closure,comm),$(call archive,$(l))) \
  | $(SHIM_CUDA_SO) $(SHIM_NCCL_SO) $(SHIM_CUDNN_SO)
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ -lcmocka $(SYS_kernels) $(LDLIBS)
.PRECIOUS: $(SHIM)/%.cu.o $(SHIM)/%.cpp.o $(SHIM)/%.c.o
cuda-shim: $(SHIM_UNIT)
	$(Q)scripts/run_tests --unit $(SHIM_UNIT)

# ---------------------------------------------------------------- attention by cuDNN
# backends/cudnn.so, which the cuda backend loads when it is there (kernels/cuda/attention/sdpa.h). Needs the
# headers and the library of cuDNN in CUDNN_HOME, and no device to be built.
$(BIN)/backends/cudnn.so $(B)/gpu/unit/cudnn/backends/cudnn.so: $(patsubst %,$(B)/backends/%.o,cudnn cudnn_graph cudnn_plan cudnn_gated)
	$(call say,SO,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_LDFLAGS) -shared -o $@ $^ $(CUDNN_LIB) -Wl,-rpath,$(dir $(CUDNN_LIB))
$(patsubst %,$(B)/%.o,backends/cudnn backends/cudnn_graph backends/cudnn_plan backends/cudnn_gated test/unit/cudnn/test_plans): private CFLAGS += -I$(CUDNN_HOME)/include -I$(CUDA_HOME)/include

# its plans for a device that is not there (test/unit/cudnn/test_plans.c)
ifeq ($(CUDNN_SO)$(VARIANT),$(BIN)/backends/cudnn.sorelease)
SHIM_UNIT += $(B)/unit/cudnn/test_plans
endif
$(B)/unit/cudnn/libcuda.so.1: $(B)/test/unit/cudnn/driver.o
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_LDFLAGS) -shared -Wl,-soname,$(@F) -o $@ $<
$(B)/unit/cudnn/test_plans: $(patsubst %,$(B)/%.o,test/unit/cudnn/test_plans backends/cudnn backends/cudnn_graph backends/cudnn_plan backends/cudnn_gated) \
                            $(B)/unit/cudnn/libcuda.so.1
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(CUDNN_LIB) -Wl,-rpath,'$$ORIGIN:$(dir $(CUDNN_LIB))' \
	  $(patsubst %,-Wl$(COMMA)--wrap=cudnn%,Create Destroy BackendSetAttribute) -lcmocka

# an object without a library, for the test of how one is used
$(B)/unit/cuda/sdpa_object.so: $(B)/test/unit/cuda/sdpa_object.o
	$(call say,SO,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_LDFLAGS) -shared -o $@ $^
$(B)/unit/cuda/test_sdpa: | $(B)/unit/cuda/sdpa_object.so

# ---------------------------------------------------------------- rooms
# an arrow between folders that scripts/rooms does not know, or a circle, stops the build
$(B)/rooms.checked: scripts/rooms scripts/check_rooms $(foreach l,$(LIBS),$(call archive,$(l)))
	$(Q)scripts/check_rooms $(B) && touch $@

# ---------------------------------------------------------------- tests
# what every test of a library brings along, by whether it has kernels
harness = $(patsubst %,$(B)/test/unit/%.o,filter $(if $(filter kernels,$(call closure,$(1))),cpu_isa))
define unit_rule
$(B)/unit/$(1)/%: $(B)/test/unit/$(1)/%.o $(call harness,$(1)) $(foreach l,$(call closure,$(1)),$(call archive,$(l)))
	$$(call say,LD,$$@)
	@mkdir -p $$(@D)
	$$(Q)$$(CC) $$(ALL_LDFLAGS) -o $$@ $$< $(call harness,$(1)) \
	  -Wl,--start-group $(foreach l,$(call closure,$(1)),$(call archive,$(l))) -Wl,--end-group -lcmocka \
	  $(foreach l,$(call closure,$(1)),$(SYS_$(l))) $$(LDLIBS)
endef
$(foreach l,$(LIBS),$(eval $(call unit_rule,$(l))))
.PRECIOUS: $(B)/%.o

# what test_backend finds instead of backends/cuda.so; it loads all of them, and the address
# sanitizer minds that they export one name
TEST_BACKENDS := $(patsubst %,$(B)/unit/kernels/backends/%.so,good no_symbol other_abi other_size)
TEST_BACKEND_no_symbol  := -DSYMBOL=zt_other_backend
TEST_BACKEND_other_abi  := -DMORE_ABI=1
TEST_BACKEND_other_size := -DMORE_BYTES=8
$(B)/unit/kernels/backends/%.so: test/unit/kernels/loaded_backend.c $(call archive,common)
	$(call say,SO,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) $(TEST_BACKEND_$*) $(ALL_LDFLAGS) -fno-sanitize=address -shared -o $@ $(filter %.c %.a,$^)
$(B)/unit/kernels/test_backend: | $(TEST_BACKENDS)

unit-programs: $(UNIT)
unit: $(UNIT) $(MPI_SO)
	$(Q)scripts/run_tests --unit $(UNIT)

# the tests that see the level of instructions (--cpu_isa), at each level that this processor has
LEVELS := avx2 avx512 avx512_bf16 amx
LEVEL_TESTS := $(filter $(patsubst %,$(B)/unit/%,$(patsubst %,kernels/test_%,attention% convert% gemm% philox% tile%) \
                 autograd/test_grad%),$(UNIT))
unit-levels: $(LEVEL_TESTS)
	$(Q)for level in $(LEVELS); do echo "-- up to $$level"; \
	  ZLAUNCH_CPU_ISA=$$level scripts/run_tests --unit $^ || failed=1; done; [ -z "$$failed" ]

integration: all $(PROBES) $(TEST_MODELS) $(SHIM_CUDA_SO) $(SHIM_NCCL_SO) $(SHIM_CUDNN_SO) $(SHIM_BENCH)
	$(Q)ZT_BIN=$(BIN) scripts/run_tests --integration $(sort $(wildcard test/integration/[0-9]*))

test: all $(UNIT) $(SHIM_UNIT) $(SHIM_CUDA_SO) $(SHIM_NCCL_SO) $(SHIM_CUDNN_SO) $(SHIM_BENCH) $(PROBES) $(TEST_MODELS)
	$(Q)ZT_BIN=$(BIN) scripts/run_tests --all $(UNIT) $(SHIM_UNIT) $(sort $(wildcard test/integration/[0-9]*))

asan tsan:
	$(Q)$(MAKE) --no-print-directory VARIANT=$@ sanitized

# the unit tests of a sanitised build, and the end-to-end tests that its kind of fault could hide
# in: all but the longest for asan (ASan and UBSan in one build); numbers and threads for the others. Of settings that differ in options alone
# (test/unit/sample.h, cuda/test_products.cpp) and of long tests (LONG_asan) a sample is run, another one each day; ZT_SAMPLE=1 make asan runs all
in_turn    = $(if $(filter 1,$(ZT_SAMPLE)),$1,$(shell printf '%s\n' $1 | awk -v day="$${ZT_SEED:-$$(date +%j)}" '(NR + $2) % 3 == day % 3'))
LONG_asan := 50- 34- 25-predict.sh 51- 36- 32- 31-golden-l 30-golden-g 25-seq2seq 44-s 25-odd 47- \
             25-tok 25-pack 20- 24- 30-golden-d 25-gen 25-tasks 25-fields 25-samples 21- 22- 41-nodes 41-ssh 25-metrics 30-golden-s 33-
LATER     := $(filter-out $(call in_turn,$(LONG_asan),0),$(LONG_asan))
E2E_asan  := $(filter-out $(foreach n,13 23 25-predict-l 26 27 28 29 31-golden-m 42-node 43-node 45-node 45-ssh 48-ssh 49 52 $(LATER),test/integration/$(n)%),$(wildcard test/integration/[0-9]*))
E2E_tsan  := $(wildcard $(foreach n,$(call in_turn,20- 28- 25-fields 21- 24-,0),test/integration/$(n)*))
# The longest unit tests take turns in the same way, others for asan than for tsan; what kills processes that save, or takes
# their power, is about files and not about threads.
LONG_unit := zero/test_failure zero/test_gradients zero/test_stages checkpoint/test_checkpoint zero/test_gather_weights zero/test_regions \
             zero/test_planning launcher/test_supervise cuda/test_sdpa comm/test_tcp comm/test_mpi comm/test_nccl comm/test_mpi_failure \
             kernels-on-cuda/test_attention kernels-on-cuda/test_attention_limits text/test_tokenizer kernels/test_gemm kernels/test_gemm_threads zero/test_plugin_weights \
             autograd/test_grad_shapes
LATER_unit := $(filter-out $(call in_turn,$(LONG_unit),$(if $(filter tsan,$(VARIANT)),1,0)),$(LONG_unit)) \
              $(if $(filter tsan,$(VARIANT)),checkpoint/test_crash checkpoint/test_power_loss)
# the shim's fibers are not for tsan; reading a config takes one thread, and so do gradients beside the kernels,
# whose own tests run there; zero/test_stages and test_failure have the threads of zero/test_gradients
SHIM_tested := $(if $(filter-out tsan,$(VARIANT)),$(filter-out $(LATER_unit:%=$(B)/unit/%),$(SHIM_UNIT)))
UNIT_tested := $(filter-out $(LATER_unit:%=$(B)/unit/%) $(if $(filter tsan,$(VARIANT)),$(B)/unit/config/% $(B)/unit/autograd/test_grad_% $(B)/unit/zero/test_gradients),$(UNIT))
sanitized: $(BIN)/zlaunch $(BIN)/zworker $(TOOLS) $(MODELS) $(MPI_SO) $(UNIT_tested) $(SHIM_tested) $(PROBES) $(TEST_MODELS) \
  $(if $(SHIM_tested),$(SHIM_CUDA_SO) $(SHIM_NCCL_SO) $(SHIM_CUDNN_SO))
	$(Q)ZT_SAMPLE=$${ZT_SAMPLE:-4} ZT_SEED=$${ZT_SEED:-$$(date +%j)} ZT_BIN=$(BIN) ZT_VARIANT=$(VARIANT) \
	  scripts/run_tests --all $(UNIT_tested) $(SHIM_tested) $(sort $(E2E_$(VARIANT)))

# The unit tests and the end-to-end tests that go through most of the code, counted line by line
E2E_coverage := $(wildcard $(foreach n,10 11 12 15 20 22 25 28 31 40 41 44-daemon 47,test/integration/$(n)-*))
coverage:
	$(Q)$(MAKE) --no-print-directory VARIANT=coverage coverage-run
coverage-run: $(BIN)/zlaunch $(BIN)/zworker $(TOOLS) $(MODELS) $(MPI_SO) $(UNIT) $(PROBES) $(TEST_MODELS)
	$(Q)find $(B) -name '*.gcda' -delete
	$(Q)ZT_BIN=$(BIN) ZT_VARIANT=coverage scripts/run_tests --all $(UNIT) $(sort $(E2E_coverage)) || failed=1; \
	  scripts/coverage $(B) && [ -z "$$failed" ]

# ---------------------------------------------------------------- the cuda backend on a device
# `make gpu-check OUT=dir`: scripts/gpu_check says what that is. `make gpu-build GPU_ARCH=sm_90`
# is the part of it that needs nvcc (CUDA_HOME) and no GPU.
GPU        := $(B)/gpu
NVCC       := $(CUDA_HOME)/bin/nvcc
NVCC_ARCH  = $(foreach a,$(GPU_ARCH),-gencode=arch=$(a:sm_%=compute_%)$(COMMA)code=$(a))
NVCC_FLAGS = -std=c++20 -O3 -lineinfo -Xfatbin=-compress-all $(NVCC_ARCH) -ccbin $(CXX) -I. -Iinclude -D_GNU_SOURCE \
             -DZT_VERSION='"$(VERSION)"' -Xcompiler -Wall,-Wextra,-fPIC -MMD -MP
GPU_STAMP  = $(NVCC) $(NVCC_FLAGS) $(CC) $(filter-out -Werror,$(ALL_CFLAGS)) $(SHIM_REF)
GPU_LIB    := $(B)/libcuda-gpu.a
GPU_BELOW  := $(GPU_LIB) $(call archive,kernels) $(call archive,common)
GPU_LINK   = $(CXX) $(ALL_LDFLAGS) -o $@ $^ -L$(CUDA_HOME)/lib64 -Wl,-rpath,$(CUDA_HOME)/lib64 \
             -lcublasLt -lcudart $(SYS_kernels) $(LDLIBS)
GPU_UNIT   := $(patsubst %,$(GPU)/unit/cuda/test_%,device products tuning) \
              $(patsubst %,$(GPU)/unit/kernels/test_%,$(SHIM_KERNEL_TESTS))

$(GPU)/flags: FORCE
	@mkdir -p $(@D); printf '%s\n' '$(GPU_STAMP)' | cmp -s - $@ || printf '%s\n' '$(GPU_STAMP)' > $@
# registers as ptxas reports them; what else the compiler says is shown
$(GPU)/%.o: % $(GPU)/flags
	$(call say,NVCC,$<)
	@mkdir -p $(@D)
	$(Q)$(NVCC) -x cu -Xptxas=-v $(NVCC_FLAGS) -c -o $@ $< 2>$@.ptxas || { cat $@.ptxas >&2; exit 1; }
	$(Q)grep -vE '^ptxas info|bytes stack frame' $@.ptxas >&2 || true
$(GPU)/%.c.o: %.c $(GPU)/flags
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) $(SHIM_REF) -c -o $@ $<
$(GPU_LIB): $(B)/ops.checked $(patsubst %,$(GPU)/%.o,$(CUDA_SRCS))
	$(Q)scripts/check_registers kernels/cuda $(patsubst %,$(GPU)/%.o.ptxas,$(CUDA_SRCS))
	@rm -f $@
	$(Q)$(AR) crs $@ $(filter %.o,$^)
$(GPU)/unit/cuda/%: $(GPU)/test/unit/cuda/%.cpp.o $(GPU_BELOW)
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(GPU_LINK) -lcmocka
$(GPU)/unit/kernels/%: $(GPU)/test/unit/kernels/%.c.o $(GPU)/test/unit/cuda/managed.cpp.o $(GPU_BELOW)
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(GPU_LINK) -lcmocka
$(GPU)/bench_cuda: $(GPU)/bench/bench_cuda.cu.o $(GPU_BELOW)
	$(call say,LD,$@)
	$(Q)$(GPU_LINK)
# what zworker loads for --device cuda; -z defs: an op without a kernel does not link
$(BIN)/backends/cuda.so: $(B)/backends/cuda.o $(GPU_BELOW)
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CXX) $(ALL_LDFLAGS) -shared -Wl,-z,defs -o $@ $^ -L$(CUDA_HOME)/lib64 \
	  -Wl,-rpath,$(CUDA_HOME)/lib64 -lcublasLt -lcudart_static $(SYS_kernels) $(LDLIBS) -lrt
.PRECIOUS: $(GPU)/%.o $(GPU)/%.c.o
$(GPU)/unit/cudnn/%: $(GPU)/test/unit/cudnn/%.cpp.o $(GPU_BELOW) | $(GPU)/unit/cudnn/backends/cudnn.so
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(GPU_LINK) -lcmocka
gpu-build: $(GPU_UNIT) $(GPU)/bench_cuda $(if $(CUDNN_SO),$(GPU)/unit/cudnn/test_cudnn)
gpu-check:
	$(Q)CUDA_HOME='$(CUDA_HOME)' scripts/gpu_check '$(or $(OUT),build/gpu-check)' '$(PACKAGE)' $(PARTS)
# what gpu-check runs, for a machine that cannot build it: make gpu-package GPU_ARCH=sm_90
gpu-package: all gpu-build
	$(Q)scripts/gpu_package '$(or $(OUT),build/gpu-package.tar.gz)' $(BIN) $(GPU) $(GPU_ARCH)

# ---------------------------------------------------------------- benches
$(B)/bench/%: $(B)/bench/%.o $(B)/test/unit/cpu_isa.o $(foreach l,$(WORKER_LIBS) common,$(call archive,$(l)))
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $(filter %.o,$^) -Wl,--start-group \
	  $(foreach l,$(WORKER_LIBS) common,$(call archive,$(l))) -Wl,--end-group $(SYS_kernels) $(SYS_store) $(SYS_text) $(LDLIBS)

# programs of the comparisons with other implementations: they load plugins, as zworker does
$(B)/peers/%: $(B)/test/peers/%.o $(foreach l,$(WORKER_LIBS) common,$(call archive,$(l)))
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_LDFLAGS) -rdynamic -o $@ $< \
	  -Wl,--whole-archive $(call archive,autograd) -Wl,--no-whole-archive \
	  -Wl,--start-group $(foreach l,$(filter-out autograd,$(WORKER_LIBS)) common,$(call archive,$(l))) -Wl,--end-group \
	  $(SYS_kernels) $(SYS_store) $(SYS_text) $(LDLIBS)
probes: $(PROBES)

bench: all $(BENCHES)
	$(Q)bench/run $(B)/bench
	$(Q)bench/run_zero --steps 2
	$(Q)bench/run_comm
	$(Q)bench/run_checkpoint

# ---------------------------------------------------------------- fuzzing (clang's libFuzzer)
FUZZ_CC := clang
FUZZERS := $(patsubst test/fuzz/%.c,build/fuzz/%,$(wildcard test/fuzz/fuzz_*.c))
FUZZ_SRCS = $(call srcs,common) $(call srcs,store) $(call srcs,config) $(call srcs,optim) kernels/view.c $(call srcs,text) $(call srcs,data) $(call srcs,checkpoint) \
            $(patsubst %,launcher/ssh/%.c,formats known_hosts config key) launcher/plan/hostfile.c worker/daemon/pmi.c worker/daemon/job.c \
            worker/engine/adapters/peft_config.c worker/engine/adapters/targets.c
FUZZ_FLAGS = -std=gnu11 -g -O1 -fsanitize=address,undefined -I. -Iinclude -D_GNU_SOURCE \
             -DZT_VERSION='"$(VERSION)"' -Wno-everything -MMD -MP
FUZZ_OBJS = $(patsubst %.c,build/fuzz/obj/%.o,$(FUZZ_SRCS))
build/fuzz/obj/%.o: %.c
	$(call say,FUZZCC,$<)
	@mkdir -p $(@D)
	$(Q)$(FUZZ_CC) $(FUZZ_FLAGS) -fsanitize=fuzzer-no-link -c -o $@ $<
build/fuzz/code.a: $(FUZZ_OBJS)
	@rm -f $@
	$(Q)$(AR) crs $@ $^
build/fuzz/%: test/fuzz/%.c build/fuzz/code.a
	$(call say,FUZZ,$@)
	@mkdir -p $(@D)
	$(Q)$(FUZZ_CC) $(filter-out -MMD -MP,$(FUZZ_FLAGS)) -fsanitize=fuzzer -o $@ $< build/fuzz/code.a $(SYS_store) $(SYS_text) -ljansson -luv -lxxhash -lhwloc -lpthread -lm
FUZZ_SECONDS ?= 20
fuzz: $(FUZZERS)
	$(Q)scripts/run_fuzz $(FUZZ_SECONDS) $(FUZZERS)

# ---------------------------------------------------------------- hygiene
format:
	$(Q)scripts/format
format-check:
	$(Q)scripts/format --check
lint: format-check
	$(Q)scripts/lint
tidy:
	$(Q)scripts/lint deep

# each library, whole, against only what lies below it
layers: $(B)/rooms.checked $(foreach l,$(LIBS),$(call archive,$(l)))
	$(Q)set -e; $(foreach l,$(filter-out launcher engine generate,$(LIBS)),\
	  $(CC) $(ALL_LDFLAGS) -shared -o $(B)/layer.so -Wl,-z,defs -Wl,--whole-archive $(call archive,$(l)) -Wl,--no-whole-archive \
	  -Wl,--start-group $(foreach d,$(DEPS_$(l)),$(call archive,$(d))) -Wl,--end-group $(SYS_kernels) $(SYS_store) $(SYS_text) $(LDLIBS);) \
	  rm -f $(B)/layer.so; echo '  layers: every arrow points down'

# pages that are made from tables of the code; a unit test compares them
docs: $(BIN)/zworker
	$(Q)$(BIN)/zworker --print_man markdown > docs/CONFIG.md
	$(Q)$(BIN)/zworker --print_man metrics > docs/METRICS.md
	$(Q)$(BIN)/zworker --print_man names > docs/NAMES.md

size:
	@git ls-files '*.c' '*.h' '*.cu' '*.cpp' | xargs wc -l | sort -rn | head -40

# ---------------------------------------------------------------- install
MAN1 := $(wildcard docs/man/*.1)
MAN5 := $(wildcard docs/man/*.5)
install: all install-files
install-files: # of what is built
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/lib/zlaunch/models \
	  $(DESTDIR)$(PREFIX)/lib/zlaunch/backends \
	  $(DESTDIR)$(PREFIX)/include/zlaunch $(DESTDIR)$(PREFIX)/lib/pkgconfig \
	  $(DESTDIR)$(PREFIX)/share/man/man1 $(DESTDIR)$(PREFIX)/share/man/man5 \
	  $(DESTDIR)$(PREFIX)/share/zlaunch \
	  $(DESTDIR)$(PREFIX)/share/bash-completion/completions \
	  $(DESTDIR)$(PREFIX)/share/zsh/site-functions
	install -m 755 $(BIN)/zlaunch $(BIN)/zworker $(TOOLS) $(DESTDIR)$(PREFIX)/bin
	install -m 755 $(CHECKPOINT_SO) $(DESTDIR)$(PREFIX)/lib
	install -m 755 $(MODELS) $(DESTDIR)$(PREFIX)/lib/zlaunch/models
	$(if $(wildcard $(BIN)/backends/*.so),install -m 755 $(wildcard $(BIN)/backends/*.so) $(DESTDIR)$(PREFIX)/lib/zlaunch/backends)
	install -m 644 include/zlaunch/*.h $(DESTDIR)$(PREFIX)/include/zlaunch
	install -m 644 hostfile.example $(DESTDIR)$(PREFIX)/share/zlaunch
	cp -r ds_configs $(DESTDIR)$(PREFIX)/share/zlaunch/
	$(BIN)/zlaunch --print_man > $(DESTDIR)$(PREFIX)/share/man/man1/zlaunch.1
	$(BIN)/zworker --print_man > $(DESTDIR)$(PREFIX)/share/man/man1/zworker.1
	$(Q)for t in $(notdir $(TOOLS)); do \
	  $(BIN)/$$t --print_man > $(DESTDIR)$(PREFIX)/share/man/man1/$$t.1 && \
	  $(BIN)/$$t --print_completion bash > $(DESTDIR)$(PREFIX)/share/bash-completion/completions/$$t && \
	  $(BIN)/$$t --print_completion zsh > $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_$$t || exit 1; done
	$(BIN)/zworker --print_man config > $(DESTDIR)$(PREFIX)/share/man/man5/zlaunch-config.5
	$(BIN)/zlaunch --print_completion bash > $(DESTDIR)$(PREFIX)/share/bash-completion/completions/zlaunch
	$(BIN)/zlaunch --print_completion zsh > $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_zlaunch
	$(Q)for f in zlaunch zcheckpoint; do \
	  sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@VERSION@|$(VERSION)|' scripts/$$f.pc.in \
	    > $(DESTDIR)$(PREFIX)/lib/pkgconfig/$$f.pc || exit 1; done

# What install-files puts there, and its folders where nothing else is in them.
uninstall:
	rm -f $(addprefix $(DESTDIR)$(PREFIX)/bin/,zlaunch zworker $(notdir $(TOOLS))) \
	  $(DESTDIR)$(PREFIX)/lib/$(notdir $(CHECKPOINT_SO)) $(addprefix $(DESTDIR)$(PREFIX)/lib/pkgconfig/,zlaunch.pc zcheckpoint.pc) \
	  $(DESTDIR)$(PREFIX)/share/man/man5/zlaunch-config.5 \
	  $(foreach t,zlaunch zworker $(notdir $(TOOLS)),$(DESTDIR)$(PREFIX)/share/man/man1/$(t).1 \
	    $(DESTDIR)$(PREFIX)/share/bash-completion/completions/$(t) \
	    $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_$(t))
	rm -rf $(DESTDIR)$(PREFIX)/lib/zlaunch $(DESTDIR)$(PREFIX)/include/zlaunch $(DESTDIR)$(PREFIX)/share/zlaunch

clean:
	rm -rf build bin

-include $(shell find $(B) build/fuzz -name '*.d' 2>/dev/null)
