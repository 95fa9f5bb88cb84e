#!/bin/bash
# A hot loop that a compiler leaves scalar stops the build.
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
