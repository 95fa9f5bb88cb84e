# text_lib.sh -- what the tests of training on text share. Source it in the place of train_lib.sh.
. "$(dirname "$0")/train_lib.sh"
g=$bin/models/gpt2.so
tok=test/golden/tokenizer

# gpt2 RANKS OUT ARGS...: 4 steps of 4 rows
gpt2() {
    local ranks=$1 out=$2
    shift 2
    "$bin/zlaunch" --num_gpus "$ranks" --log_format json "$g" --n_layer 1 --n_head 2 --n_embd 32 --block_size 32 \
        --do_train --max_steps 4 --logging_steps 1 --fingerprint_steps 1 --seed 7 --max_grad_norm 0 \
        --per_device_train_batch_size $((4 / ranks)) "$@" >"$out" 2>"$out.err"
}
# refused CODE WORDS ARGS...: such a run ends with the code and says the words
refused() {
    local code=$1 words=$2
    shift 2
    gpt2 1 "$tmp/refused" "$@"
    [ $? -eq "$code" ] && grep -qF -- "$words" "$tmp/refused" "$tmp/refused.err" && return
    cat "$tmp/refused" "$tmp/refused.err" | head -n 4 | cut -c1-300 | sed "s/^/# /"
    return 1
}
