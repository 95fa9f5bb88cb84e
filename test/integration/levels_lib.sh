# Levels of instructions (--cpu_isa) that this processor has, found out without zlaunch.
flags_of() {
    case $1 in
    avx2) echo avx2 fma ;;
    avx512) echo avx2 avx512f avx512bw avx512dq avx512vl ;;
    avx512_bf16) echo avx512f avx512_bf16 ;;
    amx) echo avx512_bf16 amx_tile amx_bf16 ;;
    esac
}
has_level() {
    local flag
    for flag in $(flags_of "$1"); do grep -qw "$flag" /proc/cpuinfo || return; done
}
# some virtual machines have tiles, and say nothing of their sizes: oneDNN is kept from them there
describes_tiles() {
    command -v cc >/dev/null || return 0
    [ -x "$tmp/tiles" ] || cc -x c -o "$tmp/tiles" - <<'C' || return
#include <cpuid.h>
int main(void)
{
    unsigned a, b, c, d;

    return !__get_cpuid_count(0x1d, 0, &a, &b, &c, &d) || a == 0;
}
C
    "$tmp/tiles"
}
