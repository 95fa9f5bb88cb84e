#!/bin/bash
# An op in the table of kernels without a test, or without a kernel for cuda, fails the build by name.
. "$(dirname "$0")/train_lib.sh"
unset MAKEFLAGS MAKELEVEL MFLAGS VARIANT
mkdir "$tmp/src"
cp -r Makefile common include kernels models scripts test worker "$tmp/src"
cd "$tmp/src" || exit 1

build() { # build TARGET: in the copy; what it says to $tmp/said
    make -j1 HAVE_MPI=0 "$1" >"$tmp/said" 2>&1
}
fails() { # fails TARGET WORDS: it does, and says so
    ! build "$1" && grep -qF -- "$2" "$tmp/said"
}

check "the table as it is passes" build build/release/ops.checked
sed -i 's|^    X(adamw, struct zt_adamw_args)|    X(adamw, struct zt_adamw_args) X(shuffle, struct zt_fill_args)|' kernels/backend.h
check "an op without a test stops zworker, by name" fails bin/zworker "check_ops: the op shuffle"
check "and says where the test belongs" grep -q 'REF_RUN(dev, shuffle, &args).*SHIM_KERNEL_TESTS' "$tmp/said"
check "and the library of the shim" fails build/release/libcuda-shim.a "check_ops: the op shuffle"
check "nothing was compiled for it" test ! -e build/release/worker/main.o

echo '/* REF_RUN(dev, shuffle, &args); */' >>test/unit/kernels/test_random.c
check "a comment is no test" fails build/release/ops.checked "check_ops: the op shuffle"
echo 'void f(void) { REF_RUN(dev, shuffle, &args); }' >>test/unit/kernels/test_random.c
check "a call is one" build build/release/ops.checked

check "the cuda device is compiled with the op" build build/release/shim/kernels/cuda/device.cu.o
c++ -shared -Wl,-z,defs -o "$tmp/cuda.so" build/release/shim/kernels/cuda/device.cu.o >"$tmp/said" 2>&1
check "and does not link without its kernel, by name" grep -q 'undefined reference.*zt_cuda_shuffle' "$tmp/said"
finish
