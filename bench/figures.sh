# Numbers of the bench scripts; sourced. record() appends to the file that $json names.
# shellcheck shell=bash

# stats FILE: "median least most count" of one number a line
stats() {
    sort -g "$1" | awk '{ v[NR] = $1 }
        END { if (!NR) { print "nan nan nan 0"; exit }
              printf "%.6g %.6g %.6g %d\n", (v[int((NR + 1) / 2)] + v[int(NR / 2) + 1]) / 2, v[1], v[NR], NR }'
}

calc() { awk "BEGIN { printf \"%.6g\", ($1) }"; }
round() { awk -v x="$1" -v p="${2:-0}" 'BEGIN { if (x == "nan") print "-"; else printf "%.*f\n", p, x }'; }

# record KEY VALUE ...: one JSON object; what does not look like a number is a string
record() {
    local sep='{'
    while [ $# -gt 0 ]; do
        if [ "$1" != commit ] && [[ $2 =~ ^-?[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]+)?$ ]]; then
            printf '%s"%s":%s' "$sep" "$1" "$2"
        elif [ "$2" = nan ]; then
            printf '%s"%s":null' "$sep" "$1"
        else
            printf '%s"%s":"%s"' "$sep" "$1" "${2//\"/}"
        fi
        sep=,
        shift 2
    done >>"$json"
    echo '}' >>"$json"
}

# ---------------------------------------------------------------- the history
# figure NAME VALUE UNIT [KEY VALUE ...]: one line of bench/results/history.jsonl, or of the file in
# ZT_HISTORY ("none": nowhere). NAME is the same in every run: what is measured, with "/" between its parts. Keys:
#   least, most, count   the spread of what VALUE is the median of
#   better               "more" or "less"; without it by the unit: times are better when they are less
#   limit, peer          the same figure for what the machine allows, and for another program
#   peer_name            which one
# What was not measured leaves no line.
figure() {
    local json=${ZT_HISTORY:-bench/results/history.jsonl} name=$1 value=$2 unit=$3 better=more
    [ "$json" != none ] && [[ $value =~ ^-?[0-9] ]] || return 0
    case $unit in s | ms | us | bytes) better=less ;; esac
    shift 3
    case " $* " in *" better "*) ;; *) set -- better "$better" "$@" ;; esac
    [ -n "${history_machine:-}" ] || history_facts
    record figure "$name" value "$value" unit "$unit" "$@" bench "${0##*/}" commit "$history_commit" \
        date "$history_date" machine "$history_machine" compiler "$history_compiler" load "$history_load"
}

# what all lines of a run have in common; a tree that differs from its commit is "COMMIT-dirty"
history_facts() {
    local gpu
    history_commit=$(git rev-parse --short=10 HEAD 2>/dev/null || echo none)
    git diff --quiet HEAD -- . ':!bench/results' 2>/dev/null || history_commit=$history_commit-dirty
    history_date=$(date -u +%Y-%m-%dT%H:%M:%SZ)
    gpu=$(nvidia-smi -i "${CUDA_VISIBLE_DEVICES:-0}" --query-gpu=name --format=csv,noheader 2>/dev/null | head -n 1 || :)
    history_machine="$(uname -m), $(processor), $(nproc) cores${ZLAUNCH_CPU_ISA:+, up to $ZLAUNCH_CPU_ISA}${gpu:+, $gpu}"
    history_compiler=$(${CC:-cc} --version 2>/dev/null | sed -n '1{s/ (.*) / /;p}' || :)
    history_load=$(cut -d ' ' -f 1 /proc/loadavg)
}

# as /proc/cpuinfo has it, where the architecture does
processor() {
    local name
    name=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)
    echo "${name:-unknown processor}"
}

# the first python that has PyTorch; nothing where none has
find_python() {
    local p
    for p in "${ZT_VENV:-build/venv}/bin/python" build/venv/bin/python python3; do
        "$p" -c 'import torch' 2>/dev/null && echo "$p" && return
    done
    return 0
}
