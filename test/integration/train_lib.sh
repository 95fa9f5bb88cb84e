# Shared by the training tests; sourced. Gives: a scratch folder $tmp, train(), loss_curve(),
# field(), fingerprint(), check(), finish. Uses only what the project builds, awk and sed.
# shellcheck shell=bash
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
bin=${ZT_BIN:-bin}
tmp=$(mktemp -d)
export XDG_CACHE_HOME=$tmp/cache # the rates of dry runs
trap 'rm -rf "$tmp"' EXIT
failures=0

check() { # check NAME COMMAND...: one claim
    local name=$1
    shift
    if "$@"; then
        echo "ok - $name"
    else
        echo "not ok - $name"
        failures=$((failures + 1))
    fi
}

# rates for --dry_run, which is for its memory then: the host shim of CUDA is none to measure
some_rates() {
    echo '{"products": 1e14, "attention": 1e14, "functions": 1e12, "streams": 1e12, "updates": 1e12, "transfers": 1e10}'
}

finish() {
    exit "$((failures > 0))"
}

# A fixed text for every test: license texts are on every Debian machine.
corpus() {
    cat /usr/share/common-licenses/GPL-3 /usr/share/common-licenses/Apache-2.0 >"$tmp/corpus.txt"
    echo "$tmp/corpus.txt"
}

# train RANKS OUT ARGS...: a tiny GPT, JSON events to OUT
train() {
    local ranks=$1 out=$2
    shift 2
    "$bin/zlaunch" --num_gpus "$ranks" --log_format json "$bin/models/gpt2.so" \
        --n_layer 2 --n_head 2 --n_embd 32 --block_size 32 --train_file "$tmp/corpus.txt" \
        --do_train --logging_steps 1 --learning_rate 1e-3 --seed 7 "$@" >"$out" 2>"$out.err"
}

# field NAME FILE: the values of a field of the step events, one a line
field() {
    grep '"event":"step"' "$2" | sed -n "s/.*\"$1\":\"\{0,1\}\([^,\"}]*\).*/\1/p"
}

# same_curve A B TOLERANCE: losses agree step by step, relatively
same_curve() {
    [ -s "$1" ] && [ -s "$2" ] || return 1
    paste <(field loss "$1") <(field loss "$2") | awk -v tol="$3" '
        NF != 2 { exit 1 }
        { d = $1 - $2; if (d < 0) d = -d; if (d > tol * $1) { print "step " NR ": " $1 " " $2; bad = 1 } n++ }
        END { exit bad || n == 0 }'
}

# same_bits A B: fingerprints and losses are the same text, and there are some; else all is shown
same_bits() {
    local f
    [ -n "$(field fingerprint "$1")" ] &&
        [ "$(field fingerprint "$1")" = "$(field fingerprint "$2")" ] &&
        [ "$(field loss "$1")" = "$(field loss "$2")" ] && return
    diff <(field fingerprint "$1"; field loss "$1") <(field fingerprint "$2"; field loss "$2") | sed 's/^/# diff: /'
    for f in "$1" "$1.err" "$2" "$2.err"; do
        sed "s|^|# ${f##*/}: |" "$f" 2>&1 | cut -c 1-400 | tail -n 40
    done
    return 1
}
