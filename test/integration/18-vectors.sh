#!/bin/bash
# A hot loop that a compiler leaves scalar stops the build, and so does a CUDA kernel that may not start.
. "$(dirname "$0")/train_lib.sh"
cc=${CC:-cc}

# compile NAME FLAGS...: a loop under the name of a clone for AVX-512
compile() {
    local name=$1
    shift
    printf 'void f(float *x, long n) __asm__("%s.arch_x86_64_v4");
            void f(float *x, long n) { for (long i = 0; i < n; i++) x[i] *= 2; }\n' "$name" |
        $cc -O3 -march=x86-64-v4 -mprefer-vector-width=512 "$@" -c -x c -o "$tmp/$name.o" -
}

# ---- CUDA kernels: threads by __launch_bounds__, registers as the compiler reports them ----
mkdir "$tmp/cuda"
printf '#define SIDE 32 /* threads */\n' >"$tmp/cuda/sizes.h"
printf 'static __global__ void __launch_bounds__(SIDE * SIDE)\n    large_kernel(int n)\n{\n}\n' >"$tmp/cuda/a.cu"
printf 'static __global__ void small_kernel(int n)\n' >"$tmp/cuda/b.cu"
report() { # report REGISTERS KERNEL
    printf "ptxas info    : Compiling entry function '_Z%d%si' for 'sm_90'\n    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n" ${#2} "$2"
    echo "ptxas info    : Used $1 registers, used 1 barriers"
}
refused() { # refused WORDS ARGS...: by check_registers
    local words=$1
    shift
    ! scripts/check_registers "$@" >"$tmp/out" 2>"$tmp/err" && grep -q "$words" "$tmp/err"
}
check "a kernel without bounds is refused by name" refused "b.cu: small_kernel has no __launch_bounds__" "$tmp/cuda"
check "those of the CUDA backend have them" scripts/check_registers kernels/cuda
sed -i 's/void small/void __launch_bounds__(256) small/' "$tmp/cuda/b.cu"
{ report 64 large_kernel && report 255 small_kernel; } >"$tmp/fits"
check "what fits passes" scripts/check_registers "$tmp/cuda" "$tmp/fits"
check "and is printed" grep -q 'large_kernel *sm_90 *1024 threads,  64 registers' <(scripts/check_registers "$tmp/cuda" "$tmp/fits")
report 66 large_kernel >"$tmp/more"
check "1024 threads with more than 64 registers cannot start" refused "large_kernel cannot start: 1024 threads of 66 registers" "$tmp/cuda" "$tmp/fits" "$tmp/more"

# ---- loops ----
if [ "$(uname -m)" != x86_64 ]; then
    echo "skipped: not x86_64"
    exit 77
fi
compile wide
compile scalar -fno-tree-vectorize
check "vectors pass" scripts/check_vectors "$tmp/wide.o"
scripts/check_vectors "$tmp/wide.o" "$tmp/scalar.o" 2>"$tmp/err"
code=$?
check "a scalar loop among them is refused" [ "$code" -eq 1 ]
check "  by name" grep -q "scalar.arch_x86_64_v4 in .*scalar.o holds no 512-bit register" "$tmp/err"
finish
