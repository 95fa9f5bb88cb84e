# Shared by the tests that train on a device; sourced. scripts/gpu_check runs them. Beyond
# train_lib.sh: $toy, $json, late(), tokens(), run(), why(), planned(). From the environment:
#   ZT_BIN       where zlaunch is       ZT_TOY=1     tiny shapes: for the host shim
#   ZT_FIGURES   JSON lines go there    ZT_SECONDS   what all of it may take (600)
#   ZT_PYTHON    has torch; empty: no PyTorch
# shellcheck shell=bash
. "$(dirname "${BASH_SOURCE[0]}")/../integration/train_lib.sh"
. bench/figures.sh
toy=${ZT_TOY:-0}
json=${ZT_FIGURES:-/dev/null}
deadline=$((SECONDS + ${ZT_SECONDS:-600}))

late() { [ $SECONDS -ge $deadline ]; }

# tokens COUNT FILE: that many letters of a text, a uint16 each
tokens() {
    cat README.md docs/*.md | LC_ALL=C tr -c '\040-\176' ' ' | head -c "$1" | LC_ALL=C sed 's/./&\x00/g' >"$2"
}

# run OUT MODEL ARGS...: a training run, its JSON events in OUT; on one rank of the device
# unless ARGS or $ranks say otherwise
run() {
    local out=$1 model=$2
    shift 2
    timeout -k 5 $((SECONDS < deadline ? deadline - SECONDS : 1)) "$bin/zlaunch" --num_gpus "${ranks:-1}" --log_format json \
        "$bin/models/$model.so" --device cuda --do_train --data_format nanogpt --logging_steps 1 --seed 7 \
        "$@" >"$out" 2>"$out.err"
}

# why OUT: what a run that failed said
why() {
    local said
    said=$(sed -n 's/.*"event":"fail".*"text":"\(.*\)"}$/\1/p' "$1" | head -n 1)
    echo "# ${said:-$(tail -n 2 "$1.err")}" | cut -c 1-300
}

# planned OUT MODEL ARGS...: MiB that the plan of such a run says for each GPU
planned() {
    local out=$1
    some_rates >"$out.rates"
    run "$@" --dry_run --rates "$out.rates"
    sed -n 's/.*"event":"memory_plan".*"total_bytes":\([0-9]*\).*/\1/p' "$out" | head -n 1 |
        awk '{ printf "%.1f", $1 / 1048576 }'
}
