#!/bin/bash
# Plugins of other headers: one that was built when structs had fewer members trains to the
# same bits, one of another version is refused by its number.
. "$(dirname "$0")/train_lib.sh"
corpus >/dev/null
command -v cc >/dev/null || { echo "cc is missing"; exit 77; }

# build NAME SCRIPT...: gpt2 against headers that sed SCRIPT changed
build() {
    local name=$1
    shift
    rm -rf "$tmp/include" && cp -r include "$tmp/include"
    [ $# -eq 0 ] || sed -i -E "$@" "$tmp"/include/zlaunch/*.h
    cp models/gpt2.c models/settings.h "$tmp"
    grep -q 'define ZT_PLUGIN_CACHED ' "$tmp/include/zlaunch/plugin.h" ||
        sed -i -E 's/\.flags = ZT_PLUGIN_CACHED//; s/, \.key_begin = in\[1\]//' "$tmp/gpt2.c"
    cc -shared -fPIC -O2 -D_GNU_SOURCE -I"$tmp/include" -o "$tmp/$name.so" "$tmp/gpt2.c" -lm
}
# train PLUGIN OUT ARGS...
train() {
    local plugin=$1 out=$2
    shift 2
    "$bin/zlaunch" --num_gpus 2 --log_format json "$plugin" --n_layer 2 --n_head 2 --n_embd 32 \
        --block_size 32 --train_file "$tmp/corpus.txt" --do_train --max_steps 4 \
        --logging_steps 1 --seed 7 --per_device_train_batch_size 2 --dropout 0.1 \
        --fingerprint_steps 1 --prompt abc --generate_tokens 60 --temperature 0 "$@" >"$out" 2>"$out.err"
}

check "a plugin of these headers builds" build same
check "it trains" train "$tmp/same.so" "$tmp/log.same"

# the last members of every struct that a plugin fills were not there yet
check "a plugin of older headers builds" build older \
    -e '/zt_tensor \*(bias|mask|key_begin, \*key_end);/d' -e '/float magnitude; /d' \
    -e '/\(\*after_step\)\(zt_weights/d' -e '/\(\*setup\)\(zt_weights/d' \
    -e '/\(\*save_state\)\(zt_/d' -e '/\(\*load_state\)\(const zt_/d' \
    -e '/ZT_PLUGIN_CACHED 1u/d' -e '/uint32_t flags;/d' -e '/uint32_t tasks;/d' -e 's/^(#define ZT_ABI_MINOR) .*/\1 0u/'
check "its structs are shorter" sh -c "! cmp -s '$tmp/same.so' '$tmp/older.so'"
check "it trains, too" train "$tmp/older.so" "$tmp/log.older"
check "to the same bits" same_bits "$tmp/log.same" "$tmp/log.older"
# it has no flag yet that lets text go on from a cache: it reads the whole context
sample() { sed -n 's/.*"event":"sample".*"text":/text: /p' "$1"; }
check "and writes the same text" sh -c '[ -n "$1" ] && [ "$1" = "$2" ]' - \
    "$(sample "$tmp/log.same")" "$(sample "$tmp/log.older")"

# refuses NAME TEXT
refuses() {
    train "$tmp/$1.so" "$tmp/log.$1"
    [ $? -ne 0 ] && grep -q "$2" "$tmp/log.$1.err" "$tmp/log.$1"
}
build two -e 's/^#define ZT_ABI .*/#define ZT_ABI 2u/'
check "a plugin of ABI 2 is refused" refuses two 'built against plugin ABI 2, this zworker'
build newer -e 's/^#define ZT_ABI_MINOR .*/#define ZT_ABI_MINOR 9u/'
check "a newer one is refused" refuses newer 'built against plugin ABI 3.9, this zworker'
build garbage -e 's/struct_bytes = sizeof\(struct zt_plugin\)/struct_bytes = 123457/'
check "a size that makes no sense is refused" refuses garbage 'has 123457 bytes'

# leaves NAME END [WHEN]: a plugin in which rank 1 ends its process in the eighth pass, as a library that it uses might
leaves() {
    cp models/gpt2.c models/settings.h "$tmp"
    sed -i "s/^    struct gpt2 \*net = self;\$/&\n    static int n;\n    if (atoi(getenv(\"RANK\")) == 1 \&\& ++n ${3:-==} 8) $2;/
        1i #include <stdlib.h>\n#include <unistd.h>" "$tmp/gpt2.c"
    cc -shared -fPIC -O2 -D_GNU_SOURCE -Iinclude -o "$tmp/$1.so" "$tmp/gpt2.c" -lm
}
fails() { # fails NAME CODE TEXT: and says so
    train "$tmp/$1.so" "$tmp/log.$1"
    [ $? -eq "$2" ] && grep -q "$3" "$tmp/log.$1.err" "$tmp/log.$1"
}
check "a plugin that calls exit(0) builds" leaves exits 'exit(0)'
check "  and has not succeeded" fails exits 70 'exit(0) was called before the work was done'
check "one that calls exit(75) builds" leaves exits75 'exit(75)'
check "  and has not saved anything" fails exits75 70 'exit(75) was called before the work was done'
check "one whose child ends builds" leaves forks 'if (!fork()) exit(0)'
check "  and goes on" fails forks 0 'step'
check "one that ends the process at once builds" leaves drops '_exit(0)'
check "  and has not succeeded either" fails drops 70 'rank 1 ended with exit code 0 before its work was done'
# a parameter that is frozen between two starts
check "one that is to be frozen builds" leaves thaws '(void)0'
check "  and trains" train "$tmp/thaws.so" "$tmp/log.thaws" --save_steps 2 --output_dir "$tmp/thaws"
sed -i '/const char \*kind, int64_t rows/,/^}/s/init, 0);/init, strcmp(name, "wpe") ? 0 : ZT_FROZEN);/' "$tmp/gpt2.c"
cc -shared -fPIC -O2 -D_GNU_SOURCE -Iinclude -o "$tmp/freezes.so" "$tmp/gpt2.c" -lm
train "$tmp/freezes.so" "$tmp/log.freezes" --max_steps 6 --output_dir "$tmp/thaws" --resume_from_checkpoint auto
check "  and goes on with a parameter frozen" test $? -eq 0
check "  which is told, once" test "$(grep -c '"event":"log".*transformer.wpe.weight was trained before and is frozen now' "$tmp/log.freezes")" -eq 1
# the look at what it does ends the sleep of a rank, and not the hang
check "one that sleeps builds" leaves sleeps 'sleep(600)' '>='
export ZLAUNCH_HANG_TIMEOUT=2
check "  and is stopped, though the look wakes it up" fails sleeps 124 'no progress for 2 s'
unset ZLAUNCH_HANG_TIMEOUT
[ "$failures" -eq 0 ] || cat "$tmp"/*.err
finish
