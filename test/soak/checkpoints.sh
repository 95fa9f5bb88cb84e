#!/bin/bash
# Checkpoints at length: a save killed before and after every system call of it and refused its bytes at every
# length and at every write, power lost at random moments of it, and bits flipped in every file. "large": the same
# with files that threads write and read past the page cache. ZT_ROUNDS: losses of power for each kind of save
# (2000); ZT_SEED: which.
cd "$(dirname "$0")/../.." || exit 1
make -s build/release/unit/checkpoint/test_{crash,power_loss,checkpoint} || exit 1
export ZT_SEED=${ZT_SEED:-$RANDOM} ZT_ROUNDS=${ZT_ROUNDS:-2000} ZT_MATRIX=full ZT_MUTATIONS=1 ZT_SIZE=${1:-small}
programs=(test_crash test_power_loss test_checkpoint)
[ "$ZT_SIZE" = small ] || { programs=(test_crash test_power_loss) && ZT_MUTATIONS=1000; }
failures=0
echo "# ZT_SEED=$ZT_SEED"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
for program in "${programs[@]}"; do
    "build/release/unit/checkpoint/$program" >"$log" 2>&1
    code=$?
    # "# kill: 231 moments" stands for as many trials
    sed -n 's/^# \([a-z ]*\): \([0-9]*\) moments$/\2 \1/p; s/^\([0-9]*\) mutations, 0 accepted$/\1 flipped bits/p' "$log" | while read -r n what; do
        for _ in $(seq "$n"); do echo "ok - trial: $what"; done
    done
    [ $code -eq 0 ] || { sed 's/^/# /' "$log" && echo "not ok - trial: $program" && failures=1; }
done
exit $failures
