# Numbers of the bench scripts; sourced. record() appends to the file that $json names.
# shellcheck shell=bash

# stats FILE: "median least most count" of one number a line
stats() {
    sort -g "$1" | awk '{ v[NR] = $1 }
        END { if (!NR) { print "nan nan nan 0"; exit }
              printf "%.6g %.6g %.6g %d\n", (v[int((NR + 1) / 2)] + v[int(NR / 2) + 1]) / 2, v[1], v[NR], NR }'
}

calc() { awk "BEGIN { printf \"%.6g\", $1 }"; }
round() { awk -v x="$1" -v p="${2:-0}" 'BEGIN { if (x == "nan") print "-"; else printf "%.*f\n", p, x }'; }

# record KEY VALUE ...: one JSON object; what does not look like a number is a string
record() {
    local sep='{'
    while [ $# -gt 0 ]; do
        if [[ $2 =~ ^-?[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]+)?$ ]]; then
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

# the first python that has PyTorch; nothing where none has
find_python() {
    local p
    for p in "${ZT_VENV:-build/venv}/bin/python" build/venv/bin/python python3; do
        "$p" -c 'import torch' 2>/dev/null && echo "$p" && return
    done
    return 0
}
