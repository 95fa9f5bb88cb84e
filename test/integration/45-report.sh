#!/bin/bash
# zlaunch --report: what is here, what is wrong, and what to do about it.
. "$(dirname "$0")/launch_lib.sh"
. "$(dirname "$0")/levels_lib.sh"
export HOME=$tmp/home
mkdir -p "$HOME"
unset SSH_AUTH_SOCK SLURM_JOB_ID
version=$("$zlaunch" --version | cut -d' ' -f2)

launch --report
check "this machine can run something: 0" code_is 0
check "nothing on stderr" test ! -s "$tmp/err"
for what in "version            $version" "kernel             $(uname -r)" "glibc " "libssh2 " "oneDNN " \
    "version            $version, plugin ABI " "cpu                usable: " "meta               usable: " "mpi " "cuda " "nccl " \
    "numa_nodes " "open_files         $(ulimit -Sn)" "locked_memory " "address_space " "dev_shm " \
    "cgroup_memory " "cgroup_cpus " "huge_pages " "hostfile " "ssh_agent " "ssh_known_hosts "; do
    check "it tells: $what" out_has "  $what"
done
check "  the level of instructions among it" grep -qE '^  cpu +usable: instructions up to [a-z0-9_]+( \(.*\))?$' "$tmp/out"
if has_level amx && ! describes_tiles; then
    check "tiles that oneDNN cannot use are told" out_has "instructions up to amx (oneDNN: avx512_bf16; CPUID's leaf 0x1d does not"
fi
if has_level avx2; then
    ZLAUNCH_CPU_ISA=avx2 launch --report
    check "ZLAUNCH_CPU_ISA limits the level" out_has "cpu                usable: instructions up to avx2"
fi
if ! has_level amx; then
    ZLAUNCH_CPU_ISA=amx launch --report
    check "  to one that is there" out_has "cpu                not usable: --cpu_isa amx: this processor "
fi
launch --report --log_format json
check "json: one line" test "$(wc -l <"$tmp/out")" = 1
check "json: an object that says so" grep -q '^{"ts":"[^"]*Z","event":"report",.*"usable":true.*}$' "$tmp/out"
check "json: limits are numbers" grep -qE '"open_files":[0-9]+' "$tmp/out"

(ulimit -Sn 200 && launch --report && cat "$tmp/out") >"$tmp/low"
check "few open files are a problem" grep -q 'warning: only 200 files may be open' "$tmp/low"
check "  with the command to give" grep -q 'to do: ulimit -n 65536' "$tmp/low"

printf 'a slots=4\nb slots=4\n' >"$tmp/hosts"
launch --report --hostfile "$tmp/hosts"
check "a hostfile is counted" out_has "$tmp/hosts: 2 hosts, 8 slots"
check "no way to log in there is a problem" out_has "neither an ssh agent nor a key"
check "  no host key is another" out_has "no host key is known"
check "  but this host can run jobs: 0" code_is 0
echo 'a slots=4' >"$tmp/one"
launch --report --hostfile "$tmp/one"
check "nor is there one to a single host that is another" out_has "neither an ssh agent nor a key"
echo 'localhost slots=4' >"$tmp/one"
launch --report --hostfile "$tmp/one"
check "  and none is needed to this one" sh -c '! grep -q "neither an ssh agent nor a key" "$0"' "$tmp/out"
launch --report --hostfile "$tmp/hosts" --ssh_identity "$tmp/nokey"
check "a key that was named and is not there is another" out_has "warning: --ssh_identity $tmp/nokey: No such file or directory"
check "  alone" sh -c '! grep -q "neither an ssh agent nor a key" "$0"' "$tmp/out"
launch --report --hostfile "$tmp/nohosts"
check "a hostfile that is not there" out_has "to do: name a file that is there and can be read"
mkdir -p "$HOME/.ssh"
echo "a ssh-ed25519 AAAA" >"$HOME/.ssh/known_hosts"
: >"$HOME/.ssh/id_ed25519"
launch --report --hostfile "$tmp/hosts"
check "keys are found" out_has "ssh_keys           id_ed25519"
check "known hosts are counted" out_has "known_hosts: 1 line"
check "  then there is nothing to complain about ssh" sh -c "! grep -q 'there are other hosts' '$tmp/out'"
SSH_AUTH_SOCK=$tmp/nobody launch --report
check "an agent that is not there is told" out_has "$tmp/nobody: nobody answers there"
echo 'a slots=many' >"$tmp/hosts"
launch --report --hostfile "$tmp/hosts"
check "a hostfile that cannot be read: 65" code_is 65
check "  with its line" out_has "$tmp/hosts:1"
launch --report --bind_core_list 99999
check "cores that are not there: 2" code_is 2

ZLAUNCH_ZWORKER=$tmp/none launch --report
check "no zworker: 66" code_is 66
check "  with what to do" out_has "to do: run make"
ZLAUNCH_ZWORKER=/bin/false launch --report
check "a zworker that does not run: 71" code_is 71
printf '#!/bin/sh\necho "{\\"version\\":\\"0.0.1\\"}"\n' >"$tmp/old"
chmod +x "$tmp/old"
ZLAUNCH_ZWORKER=$tmp/old launch --report
check "a zworker of another version: 78" code_is 78
check "  named" out_has "zworker is version 0.0.1, zlaunch $version"
ZLAUNCH_MPI_BACKEND=$tmp/none launch --report
check "a backend that cannot be used is told" out_has "  mpi                not usable: "
check "  and is no reason not to run" code_is 0
# A driver that is none, to be asked.
cat >"$tmp/cuda.c" <<C
#include <stddef.h>
#include <stdio.h>
int cuInit(unsigned f) { return f ? 1 : 0; }
int cuDriverGetVersion(int *v) { *v = 12040; return 0; }
int cuDeviceGetCount(int *n) { *n = 2; return 0; }
int cuDeviceGetName(char *s, int n, int i) { snprintf(s, (size_t)n, "Played Device %d", i); return 0; }
int cuDeviceTotalMem_v2(size_t *b, int i) { (void)i; *b = (size_t)80 << 30; return 0; }
C
if [ -z "${ZT_VARIANT-}" ] && cc -shared -fPIC -o "$tmp/libcuda.so.1" "$tmp/cuda.c" 2>/dev/null; then
    LD_LIBRARY_PATH=$tmp launch --report
    check "a CUDA driver is asked" out_has "driver for CUDA 12.4, 2 devices"
    check "its devices are listed" out_has "cuda               Played Device 1, 80.0 GiB"
else
    echo "skip - a played CUDA driver: no compiler, or a sanitised build"
fi
check "the summary of a job has its own option" sh -c "'$zlaunch' --help | grep -q -- '--summary FILE'"
finish
