#!/bin/bash
# Two ranks learn a text: the loss falls, evaluation and sample come out, weights are saved.
. "$(dirname "$0")/train_lib.sh"
corpus >/dev/null
train 2 "$tmp/log" --max_steps 60 --n_embd 64 --per_device_train_batch_size 8 --learning_rate 1e-2 --do_eval \
    --output_dir "$tmp/a/new/out" --prompt "The " --generate_tokens 40
check "exit code 0" test $? -eq 0
check "it says what it will do" \
    grep -qE '"event":"note".*"text":"gpt2: .*k parameters, f32, 2 ranks on cpu, ZeRO stage 0; 60 steps of 16 rows of 32 tokens, .* epochs of .*k tokens; weights go to ' "$tmp/log"
train 1 "$tmp/away" --max_steps 2 --deepspeed '{"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"},
    "offload_param": {"device": "cpu"}}, "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": "auto", "warmup_num_steps": "auto"}}}'
check "and where state is kept" grep -q 'ZeRO stage 3, optimizer on cpu, weights on cpu; 2 steps' "$tmp/away"
check "a run at learning rate 0 is a warning" grep -q 'the learning rate is 0 at every step of this run, .*: fewer warm-up steps' "$tmp/away"
"$bin/zlaunch" --num_gpus 1 --log_format json "$bin/models/gpt2.so" --n_layer 1 --n_head 1 --n_embd 8 --block_size 32 --train_file "$tmp/corpus.txt" \
    --max_steps 3 --deepspeed '{"scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 0, "warmup_num_steps": 2}}}' >"$tmp/away" 2>&1
check "  which a warm-up that is over does not explain" grep -q 'at every step of this run, .*: its schedule ended before it, or has no' "$tmp/away"
train 1 "$tmp/away" --max_steps 2 --learning_rate 1e-50
check "  nor one that only double precision has" grep -q 'at every step of this run, .*: in single precision, .*, it is 0' "$tmp/away"
train 1 "$tmp/away" --max_steps 3 --deepspeed '{"scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": "auto", "warmup_num_steps": "auto"}}}'
check "  at some it is said" grep -q 'the learning rate is 0 at the first 2 steps' "$tmp/away"
check "60 steps were reported" test "$(field loss "$tmp/log" | wc -l)" -eq 60
check "the first loss is that of an untrained model" \
    awk -v l="$(field loss "$tmp/log" | head -1)" 'BEGIN { exit !(l > 5.3 && l < 5.8) }'
check "the loss falls below 3.4 nats" \
    awk -v l="$(field loss "$tmp/log" | tail -1)" 'BEGIN { exit !(l < 3.4) }'
for f in step loss lr grad_norm tokens_per_s samples skipped peak_device_bytes; do
    check "step events carry $f" test -n "$(field $f "$tmp/log")"
done
check "samples count the global batch" test "$(field samples "$tmp/log" | tail -1)" -eq 960
check "there is an evaluation with a perplexity" grep -q '"event":"eval".*"perplexity":' "$tmp/log"
check "there is a sample that begins with the prompt" grep -q '"sample".*"The ' "$tmp/log"
check "model.safetensors is there" test -s "$tmp/a/new/out/model.safetensors"
check "config.json names the model" grep -q '"model_type": *"gpt2"' "$tmp/a/new/out/config.json"

# the saved weights are the trained ones: evaluating them gives the same loss
eval_loss() { grep '"event":"eval"' "$1" | tail -1 | sed 's/.*"loss":\([^,}]*\).*/\1/'; }
"$bin/zlaunch" --num_gpus 1 --log_format json "$bin/models/gpt2.so" --model_name_or_path "$tmp/a/new/out" \
    --train_file "$tmp/corpus.txt" --block_size 32 --do_eval --max_steps 5 --eval_steps 2 --early_stopping_patience 2 --share_gpu >"$tmp/again" 2>"$tmp/again.err"
check "weights load again" test $? -eq 0
check "what is not done is said" grep -q "nothing is trained (--do_train)" "$tmp/again"
"$bin/zlaunch" --num_gpus 1 "$bin/models/gpt2.so" --model_name_or_path "$tmp/a/new/out" --train_file "$tmp/corpus.txt" --eval_file "$tmp/corpus.txt" --block_size 32 --do_train --max_steps 1 >"$tmp/o" 2>&1
check "  of an evaluation, too" grep -q "nothing is evaluated (--do_eval)" "$tmp/o"
check "  patience for one" grep -q -- "--early_stopping_patience is for training, and this run only evaluates" "$tmp/again"
check "  and what has no effect then" grep -q -- "--max_steps is for training, and this run only evaluates" "$tmp/again"
"$bin/zlaunch" --num_gpus 1 "$bin/models/gpt2.so" --model_name_or_path "$tmp/a/new/out" --model gpt2-large --train_file "$tmp/corpus.txt" --max_steps 1 >"$tmp/o" 2>&1
check "another size than the weights have is refused" grep -q -- "--model gpt2-large has 36 layers of width 1280, but the config.json of the weights says" "$tmp/o"
"$bin/zlaunch" --num_gpus 1 "$bin/models/gpt2.so" --model_name_or_path "$tmp/a/new/out" --train_file "$tmp/corpus.txt" --block_size 32 --max_steps 1 \
    --eval_steps 1 --top_k 5 --save_total_limit 2 --gradient_checkpointing --logging_steps 1 --max_train_samples 2 \
    --early_stopping_threshold 0.1 --rates auto --save_on_each_node >"$tmp/o" 2>&1
check "rows that --max_train_samples leaves too few of are told as its" grep -q -- "--max_train_samples leaves 65: rows are in it more than once" "$tmp/o"
check "  patience" grep -q -- "--early_stopping_threshold has no effect without --early_stopping_patience" "$tmp/o"
check "what will not happen is said: evaluation" grep -q -- "--eval_steps has no effect: nothing is evaluated; add --do_eval, and --do_train to train as well" "$tmp/o"
check "  text" grep -q -- "--top_k has no effect: no text is made; add --prompt, and --do_train to train as well" "$tmp/o"
check "  a folder" grep -q -- "--save_on_each_node has no effect without --output_dir" "$tmp/o"
"$bin/zlaunch" --num_gpus 1 "$bin/models/gpt2.so" --model_name_or_path "$tmp/a/new/out" --train_file "$tmp/corpus.txt" --block_size 32 --max_steps 1 \
    --eval_steps 1 --do_train --do_eval --metric_for_best_model perplexity >"$tmp/advised" 2>&1
check "  and what is advised trains as well" grep -q "^step 1/1" "$tmp/advised"
"$bin/zlaunch" --num_gpus 1 "$bin/models/gpt2.so" --model_name_or_path "$tmp/a/new/out" --train_file "$tmp/corpus.txt" --block_size 32 --max_steps 1 \
    --do_train --prompt ab --do_sample --top_k 5 >"$tmp/written" 2>&1
check "  and writes" sh -c 'grep -q "^step 1/1" "$1" && grep -q "^ab" "$1" && ! grep -q "has no effect" "$1"' - "$tmp/written"
check "  the best that nothing asks for" grep -q -- "--metric_for_best_model has no effect: nothing asks for the best; add --load_best_model_at_end" "$tmp/advised"
check "  a plan" grep -q -- "--rates has no effect without --dry_run" "$tmp/o"
check "  what is saved on the way" grep -q -- "--save_total_limit has no effect: nothing is saved on the way; add --save_steps" "$tmp/o"
check "times of recomputed blocks are for those who ask" sh -c '! grep -q "calls of recomputed blocks" "$0"' "$tmp/o"
"$bin/zlaunch" --check_config --num_gpus 1 "$bin/models/gpt2.so" --model_name_or_path "$tmp/a/new/out" --train_file "$tmp/corpus.txt" \
    --block_size 32 --eval_steps 1 >"$tmp/checked" 2>&1
check "--check_config says so, too" sh -c 'grep -q -- "--eval_steps has no effect" "$1" && grep -q "\"eval_strategy\": \"no\"" "$1"' - "$tmp/checked"
"$bin/zlaunch" --num_gpus 1 "$bin/models/gpt2.so" --model_name_or_path "$tmp/a/new/out" --train_file "$tmp/corpus.txt" --block_size 32 \
    --text_column text >"$tmp/o" 2>&1
check "a column of data without columns is refused" grep -q -- "--text_column text: the data (text) have no columns" "$tmp/o"
mkdir "$tmp/bare" && cp "$tmp/a/new/out/model.safetensors" "$tmp/bare"
"$bin/zlaunch" --num_gpus 1 "$bin/models/gpt2.so" --model_name_or_path "$tmp/bare" --train_file "$tmp/corpus.txt" --max_steps 1 >"$tmp/o" 2>&1
check "weights without config.json are told from those of another size" grep -q "there is no config.json beside the weights, so that sizes are those of the options" "$tmp/o"
check "a line of the rank's log is an event of its own" grep -q '^{"ts":"[^"]*","event":"log","level":"info","rank":0,.*"module":"comm"' "$tmp/again"
check "and evaluate to the same loss" awk -v a="$(eval_loss "$tmp/log")" -v b="$(eval_loss "$tmp/again")" \
    'BEGIN { d = a - b; if (d < 0) d = -d; exit !(a > 0 && d < 1e-4 * a) }'
# with a log file a rank is nothing to the screen
"$bin/zlaunch" --num_gpus 2 --enable_each_rank_log "$tmp/logs" "$bin/models/gpt2.so" --n_layer 1 --n_head 1 --n_embd 16 \
    --block_size 16 --train_file "$tmp/corpus.txt" --do_train --do_eval --max_steps 3 >"$tmp/screen" 2>&1
check "logs of ranks: nothing on the screen" test "$? $(wc -c <"$tmp/screen")" = "0 0"
check "... a line of the log names its part, not again the rank" grep -qE '^[0-9:]+ info  data: tokens are bytes' "$tmp"/logs/*_rank0.log
check "... and steps and evaluations in the file" \
    test "$(cat "$tmp"/logs/*_rank0.log | grep -cE '^(step [123]/3  loss|eval at step 3  loss|gpt2: )')" -eq 5
check "the second step says how long it will take" grep -qE '^step 2/3 .*  eta [0-9]' "$tmp"/logs/*_rank0.log
# ... which has what the screen would have: as little, or as events
logged() { # logged DIR OPTIONS
    "$bin/zlaunch" "${@:2}" --num_gpus 1 --enable_each_rank_log "$1" "$bin/models/gpt2.so" --n_layer 1 --n_head 1 --n_embd 16 --block_size 16 \
        --train_file "$tmp/corpus.txt" --do_train --do_eval --max_steps 3 --save_steps 2 --output_dir "$1/out" --prompt abc --generate_tokens 3 \
        >"$tmp/screen" 2>&1
    code=$?
}
logged "$tmp/few" --log_level warning
check "logs of ranks: a text that is written stands there once" test "$code $(grep -ac abc "$tmp"/few/*_rank0.log)" = "0 1"
check "... with --log_level warning results alone" sh -c 'head -n 1 "$1" | grep -q "^eval at step 3" && ! grep -aqE "^(step|gpt2|saved|saves|sample)" "$1"' - "$tmp"/few/*_rank0.log
logged "$tmp/all"
check "... else all, but not what zlaunch alone reads" sh -c 'grep -aq "^saved: .*checkpoint-2" "$1" && grep -aq "^sample:" "$1" && ! grep -aqE "^(saves|kept|answer):" "$1"' - "$tmp"/all/*_rank0.log
logged "$tmp/events" --log_format json
check "... and with --log_format json every line is an event" sh -c \
    'grep -q "\"event\":\"step\",\"rank\":0,\"step\":3," "$1" && ! grep -aqv "^{\"ts\":\"[^\"]*\",\"event\":" "$1"' - "$tmp"/events/*_rank0.log
echo '{"dump_state": true}' >"$tmp/dump.json"
ZLAUNCH_LOG_FORMAT=json "$bin/zworker" "$bin/models/gpt2.so" --n_layer 1 --n_head 1 --n_embd 16 --block_size 16 \
    --train_file "$tmp/corpus.txt" --do_train --max_steps 1 --deepspeed "$tmp/dump.json" >"$tmp/dumped" 2>&1
check "a dumped state is an event among events" test "$? $(grep -c '"event":"config"' "$tmp/dumped") $(grep -cv '^{"ts":"[^"]*","event":' "$tmp/dumped")" = "0 1 0"
# times of what recomputation costs, with the steps; as many calls in each of them
echo '{"activation_checkpointing": {"profile": true}}' >"$tmp/profile.json"
profiled() {
    "$bin/zlaunch" --num_gpus 2 "$bin/models/gpt2.so" --n_layer 2 --n_head 1 --n_embd 16 --block_size 16 --logging_steps 1 \
        --train_file "$tmp/corpus.txt" --do_train --max_steps 3 --deepspeed "$tmp/profile.json" "$@" >"$tmp/profile" 2>&1
}
times='step ([123]): since the last line, ([0-9]+) calls of recomputed blocks took [0-9.]+ ms forward, [0-9.]+ ms again and [0-9.]+ ms backward'
check "a profile of recomputation" profiled --gradient_checkpointing
check "... has a line with each step" test "$(sed -nE "s/.*$times.*/\1 \2/p" "$tmp/profile" | xargs)" = "1 3 2 3 3 3"
check "... and without recomputation it is said to have none" eval \
    'profiled && grep -q "profile has no effect: no block is recomputed" "$tmp/profile" && ! grep -q "calls of" "$tmp/profile"'
[ "$failures" -eq 0 ] || cat "$tmp/log.err" "$tmp/again.err"
# numbers that are not finite where no token is: neither loss nor gradients meet them
train 1 "$tmp/log" --max_steps 1 --n_positions 64 --output_dir "$tmp/lost"
check "finite weights are saved without a word" sh -c 'test -f "$1/lost/model.safetensors" && ! grep -q "not finite" "$1/log.err"' - "$tmp"
file=$tmp/lost/model.safetensors
header=$(od -An -t u8 -N 8 "$file" | tr -d ' ')
end=$(head -c $((8 + header)) "$file" | grep -ao '"transformer.wpe.weight":{[^}]*}' | grep -o '[0-9]*]}' | tr -d ']}')
printf '\000\000\300\177' | dd of="$file" bs=1 seek=$((8 + header + end - 4)) conv=notrunc 2>/dev/null
train 1 "$tmp/log" --max_steps 1 --n_positions 64 --model_name_or_path "$tmp/lost" --output_dir "$tmp/lost2"
check "such weights are named when they are saved" grep -q 'transformer.wpe.weight has numbers that are not finite in f32' "$tmp/log" "$tmp/log.err"
"$bin/zlaunch" --num_gpus 2 "$bin/models/gpt2.so" --n_layer 1 --n_head 1 --n_embd 8 --block_size 32 --train_file "$tmp/corpus.txt" --max_steps 2 \
    --bf16 --output_dir "$tmp/lost3" --deepspeed '{"optimizer": {"type": "AdamW", "params": {"lr": 1e38}}}' >"$tmp/log" 2>&1
check "weights that a loss met are no success, however late" test $? -eq 1
check "  but are saved, and that is said" sh -c 'test -f "$1/lost3/model.safetensors" &&
    grep -q "the weights that are saved are not finite, nor is the loss of the last step" "$1/log"' - "$tmp"
train 1 "$tmp/log" --max_steps 1 --n_positions 64 --model_name_or_path "$tmp/lost" --output_dir "$tmp/lost4" --save_steps 1
"$bin/zckpt" verify "$tmp/lost4/checkpoint-1" >"$tmp/out" 2>&1
check "  and found in a checkpoint" grep -q 'checkpoint-1: transformer.wpe.weight: element [0-9]* of its .* is nan$' "$tmp/out"
HOME=$tmp/home train 1 "$tmp/log" --max_steps 1 --output_dir='~/there'
check "~ behind = is the home folder" test -f "$tmp/home/there/model.safetensors"
train 1 "$tmp/log" --max_steps 1 --adam_epsilon 0
check "no division of 0 by 0" [ $? -eq 2 ]

finish
