#!/bin/bash
# What the documentation says to type does what it says: each config that ships trains, each command is
# executed, with a small model and few steps, and the guide's own plugin is built and writes text.
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

# functions of the headers that the guide's table of all does not name
unnamed() {
    sed -nE 's/^ZT_API [^(]*\b(zt_[a-z0-9_]+)\(.*/\1/p' include/zlaunch/*.h |
        grep -vxF -f <(sed -n '/^## All functions/,/^## Testing/p' docs/PLUGINS.md | grep -oE 'zt_[a-z0-9_]+')
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
head -c 20000 /dev/zero | tee "$tmp/w/train.bin" >"$tmp/w/tokens.bin"
ln -s "$PWD/test/golden/qwen2/model" "$tmp/w/Qwen2.5-0.5B"
cp ds_configs/zero1.json "$tmp/w/ds.json"
# a model folder with a tokenizer in it
"$bin/zlaunch" --num_gpus 1 "${tiny[@]}" --tokenizer_name test/golden/tokenizer --output_dir "$tmp/w/gpt2" >"$tmp/o" 2>&1
check "weights are saved with the tokenizer that they were trained with" cmp "$tmp/w/gpt2/tokenizer.json" test/golden/tokenizer/tokenizer.json
echo "localhost slots=2" >"$tmp/w/hostfile"

# commands of the sh blocks of a page, one a line, without comments
commands() {
    awk '/^```sh$/ { on = 1; next } /^```/ { on = 0 } on' "$1" | sed -e ':a' -e '/\\$/{N;s/\\\n//;ba' -e '}' |
        sed -e 's/[[:space:]]#.*//' -e 's/;  */\n/g' | grep -E '^(bin|build|scripts)/|^(make|cc|sbatch|torchrun|mpirun)( |$)'
}
# why COMMAND: the reason why it cannot be executed here; false: it can
why() {
    case $1 in
    scripts/*) echo "installs packages, and builds" ;;
    make*) echo "builds" ;;
    cc*) echo "needs make install: 49-install.sh compiles by it" ;;
    sbatch*) echo "needs Slurm: 44-slurm.sh has one" ;;
    torchrun*) command -v torchrun >/dev/null && return 1 || echo "needs PyTorch's torchrun" ;;
    mpirun*) command -v mpirun >/dev/null && [ -f "$bin/backends/mpi.so" ] && return 1 || echo "needs MPI" ;;
    *"-- python"*) echo "runs a script of the reader's" ;;
    *PLUGIN.so*) echo "names no plugin" ;;
    *bigram.so*) [ -f "$tmp/w/bigram.so" ] && return 1 || echo "needs a compiler" ;;
    *) return 1 ;;
    esac
}
# small COMMAND: the same for a model and a time that a test has; the last of two options wins
small() {
    local c=$1 steps=2
    [[ $c == *--train_file* ]] || c=${c/ .../ --train_file README.md}
    c=${c/ .../}
    c=${c/--num_gpus [48]/--num_gpus 2}
    c=${c/mpirun -n 4/mpirun -n 2}
    newest=$(ls -d "$tmp"/w/out/checkpoint-* 2>/dev/null | sort -V | tail -n 1)
    c=${c//out\/checkpoint-100/out/${newest##*/}}
    [[ $c != *--resume_from_checkpoint* ]] || steps=4
    [[ $c != *--detach* ]] || steps="1000000 --output_dir kept --save_steps 1000000"
    case $c in
    *--help* | *--report* | *"tuned --prompt"* | *--ctl* | *--attach* | *--dry_run* | *--check_config* | *stepwise* | *zckpt* | *zero_to_fp32*) ;;
    *gpt2.so*) c="$c --n_layer 1 --n_head 1 --n_embd 16 --block_size 16 --max_eval_samples 4 --max_steps $steps" ;;
    *Qwen*) c="$c --block_size 16 --max_steps 2" ;;
    *llama.so*) c="$c --hidden_size 16 --intermediate_size 32 --num_hidden_layers 1 --num_attention_heads 2 \
        --num_key_value_heads 1 --block_size 16 --max_steps 2" ;;
    *bigram.so*) c="$c --max_steps 2" ;;
    esac
    [[ $c != *--generate_tokens* ]] || c="$c --generate_tokens 3"
    printf '%s' "$c"
}
# executed COMMAND: it does what it is there for; 78: this machine is too small for a plan
executed() {
    local c code says=
    c=$(small "$1")
    case $c in
    *--resume_from_checkpoint*) says="step 4/4" ;;
    *--detach* | *--ctl* | *--attach*) ;;
    *--max_steps*) says="step 2/2" ;;
    esac
    [[ $1 == *--resume_from_checkpoint* ]] || [[ $1 != *--output_dir\ out* ]] || rm -rf "$tmp/w/out"
    [[ $c != *--attach* ]] || c="timeout -s INT 2 $c"
    (cd "$tmp/w" && eval "timeout 120 $c") >"$tmp/o" 2>&1 </dev/null
    code=$?
    # timeout's Ctrl-C only leaves
    [[ $c != *--attach* || $code != 124 ]] || ! grep -q "the job goes on" "$tmp/o" || code=0
    { [ $code -eq 0 ] && grep -q -- "$says" "$tmp/o"; } || { [ $code -eq 78 ] && grep -q 'this run needs' "$tmp/o"; } ||
        { echo "# code $code: $c"; tail -n 5 "$tmp/o" | sed 's/^/# /'; return 1; }
}
for page in README.md docs/*.md; do
    num=0
    while IFS= read -r c; do
        if reason=$(why "$c"); then
            echo "# $page: not executed here, for it $reason: $(tr -s ' ' <<<"$c")"
            continue
        fi
        num=$((num + 1))
        check "$page: $(tr -s ' ' <<<"$c")" executed "$c"
    done < <(commands "$page")
    case $page in
    README.md) check "most of its commands were executed" test "$num" -ge 18 ;;
    *MIGRATE.md) check "those of each way to come from were executed" test "$num" -ge 4 ;;
    esac
done
(cd "$tmp/w" && bin/zlaunch --ctl last stop) >"$tmp/o" 2>&1
check "the job that was left alone is stopped" test $? -eq 0
is_stopped() { ! (cd "$tmp/w" && bin/zlaunch --ctl last status) >/dev/null 2>&1; }
for _ in $(seq 1500); do is_stopped && break || sleep 0.02; done
check "and ends" is_stopped
finish
