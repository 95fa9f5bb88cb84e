#!/bin/bash
# What the documentation says to type does something: each config that ships trains, each command for a
# plugin is planned with the files that it names, and the guide's own plugin is built and writes text.
. "$(dirname "$0")/train_lib.sh"
case $bin in
bin) build=build/release ;;
*) build=${bin%/bin} ;;
esac
mkdir "$tmp/w" "$tmp/w/build"
ln -s "$(realpath "$bin")" "$tmp/w/bin"
ln -s "$(realpath "$build")" "$tmp/w/build/release"
ln -s "$PWD/ds_configs" "$PWD/README.md" "$tmp/w"

tiny=("$bin/models/gpt2.so" --n_layer 1 --n_head 1 --n_embd 16 --block_size 16 --train_file README.md --max_steps 3)
trains() { "$bin/zlaunch" --num_gpus 2 "${tiny[@]}" --deepspeed "$1" >"$tmp/o" 2>&1 || { cat "$tmp/o"; return 1; }; }
for config in ds_configs/*.json; do
    check "$config trains" trains "$config"
done
check "none of them speaks of what is missing" sh -c '! grep -il "not in this version" ds_configs/*'

# functions of the headers that the guide does not name
unnamed() {
    sed -nE 's/^ZT_API [^(]*\b(zt_[a-z0-9_]+)\(.*/\1/p' include/zlaunch/*.h | grep -vxF -f <(grep -oE 'zt_[a-z0-9_]+' docs/PLUGINS.md)
}
check "the guide names every function: $(unnamed | tr '\n' ' ')" test -z "$(unnamed)"

# the first C block of the guide is a plugin
awk '/^```c$/ { on = 1; next } /^```/ { if (on) exit } on' docs/PLUGINS.md >"$tmp/w/bigram.c"
check "the guide has a plugin" grep -q '^ZT_PLUGIN' "$tmp/w/bigram.c"
if command -v cc >/dev/null; then
    check "it compiles without a warning" cc -Wall -Wextra -Werror -O2 -shared -fPIC -Iinclude -o "$tmp/w/bigram.so" "$tmp/w/bigram.c"
fi

# files that commands name
cp README.md "$tmp/w/tinyshakespeare.txt"
head -c 200000 /dev/zero | tee "$tmp/w/train.bin" >"$tmp/w/tokens.bin"
ln -s "$PWD/test/golden/qwen2/model" "$tmp/w/Qwen2.5-0.5B"

# commands of the sh blocks of a page, one a line, without comments
commands() {
    awk '/^```sh$/ { on = 1; next } /^```/ { on = 0 } on' "$1" | sed -e ':a' -e '/\\$/{N;s/\\\n//;ba' -e '}' |
        sed -e 's/[[:space:]]#.*//' -e 's/;  */\n/g' | grep -E '^(bin/(zlaunch|zworker)|build/)'
}
# planned COMMAND: it runs, as a plan where it would train; 78: this machine is too small for it
planned() {
    local c=$1 code
    case $c in
    *--check_config* | *--help* | *--report* | *stepwise*) ;;
    "bin/zlaunch --dry_run"*) ;;
    bin/zlaunch*) c="bin/zlaunch --dry_run ${c#bin/zlaunch}" ;;
    *) c="$c --dry_run" ;;
    esac
    [[ $c == *--train_file* ]] || c=${c/ .../ --train_file README.md}
    c=${c/ .../ --block_size 32}
    c=${c/--deepspeed ds.json/--deepspeed ds_configs/zero1.json}
    (cd "$tmp/w" && eval "$c") >"$tmp/o" 2>&1
    code=$?
    [ $code -eq 0 ] || { [ $code -eq 78 ] && grep -q 'this run needs' "$tmp/o"; } || { tail -5 "$tmp/o"; return 1; }
}
num=0
for page in README.md docs/*.md; do
    while IFS= read -r c; do
        case $c in # need other hosts or a job that runs, or are no plugin
        *--hostfile* | *--attach* | *--ctl* | *--detach* | *python* | *PLUGIN.so*) continue ;;
        *bigram.so*) [ -f "$tmp/w/bigram.so" ] || continue ;;
        esac
        num=$((num + 1))
        check "$page: $(tr -s ' ' <<<"$c")" planned "$c"
    done < <(commands "$page")
done
check "there were some" test "$num" -ge 10
finish
