#!/bin/bash
# A sample of the calls into the C library that may fail, each failing once: a job ends with its result,
# or with a sentence and an exit code, and leaves nothing. scripts/soak has them all. ZT_SEED: another
# sample; ZT_FAULTS: how many points.
cd "$(dirname "$0")/../.." || exit 1
[ -z "${ZT_VARIANT:-}" ] || { echo "skip - a sanitiser has an allocator of its own" && exit 77; }
command -v cc >/dev/null || { echo "skip - there is no cc" && exit 77; }
n=${ZT_FAULTS:-10}
test/faults/inject --sample "$n" --seed "${ZT_SEED:-1}" local || code=$?
# connections between ranks that end by themselves, all of them: no rank has failed
test/faults/inject --name readv nodes || code=$?
# a rank that zlaunch has no memory to hear of
test/faults/inject --role zlaunch --name malloc --at on_started restart || code=$?
# a restart that zlaunch has no memory for
test/faults/inject --role zlaunch --name calloc --at restart restart || code=$?
# answers of the daemon that a rank's MPI waits for
[ ! -e "${ZT_BIN:-bin}/backends/mpi.so" ] || test/faults/inject --role daemon --name send --at zt_pmi_socket_drain mpi || code=$?
exit ${code:-0}
