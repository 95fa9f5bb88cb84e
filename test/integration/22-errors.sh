#!/bin/bash
# What a user can get wrong is refused before any training, by name, with its exit code.
. "$(dirname "$0")/train_lib.sh"
corpus >/dev/null

# refused CODE TEXT ARGS...: zlaunch with ARGS exits with CODE and says TEXT on stderr
refused() {
    local code=$1 text=$2 got
    shift 2
    "$bin/zlaunch" --num_gpus 2 "$@" >"$tmp/o" 2>"$tmp/e"
    got=$?
    if [ "$got" -ne "$code" ] || ! grep -qF -- "$text" "$tmp/e"; then
        echo "# exit code $got, wanted $code and \"$text\"; said:"
        sed 's/^/# /' "$tmp/e"
        return 1
    fi
}
g=$bin/models/gpt2.so
case $bin in
bin) models=${ZT_TEST_MODELS:-build/release/test-models} ;;
*) models=${ZT_TEST_MODELS:-${bin%/bin}/test-models} ;;
esac
[ -f "$models/misread.so" ] || { echo "$models/misread.so is missing: make test builds it"; exit 1; }
t=(--n_layer 1 --n_head 1 --n_embd 16 --block_size 16 --do_train --max_steps 2 --train_file "$tmp/corpus.txt")

check "no such plugin" refused 66 nowhere.so ./nowhere.so "${t[@]}"
cp "$tmp/corpus.txt" "$tmp/fake.so"
check "a plugin that is no library" refused 70 fake.so "$tmp/fake.so" "${t[@]}"
: >"$tmp/plugin.so.1"
check "a plugin whose name ends in more than .so" refused 66 "the name of a plugin ends in .so" "$tmp/plugin.so.1" "${t[@]}"
cp "$bin/models/gpt2.so" "$tmp/plugin.bin"
check "  or in something else" refused 66 "the name of a plugin ends in .so" "$tmp/plugin.bin" "${t[@]}"
check "an option that lacks a word" refused 2 "did you mean --per_device_train_batch_size" "$g" "${t[@]}" --per_device_batch_size 2
check "a misspelt option has a suggestion" refused 2 learning_rate "$g" "${t[@]}" --learnin_rate 1
check "a misspelt plugin option has a suggestion" refused 2 n_layer "$g" "${t[@]}" --n_layr 3
for behind in "" --check_config; do
    # shellcheck disable=SC2086 # a word or none
    "$bin/zworker" "$g" "${t[@]}" --n_layr 3 --max_stps 3 $behind >"$tmp/o" 2>"$tmp/e"
    check "zworker $behind: every problem is an error" test "$(grep -c '^zworker: error: --' "$tmp/e")" = 2
done
check "a value that is no number" refused 2 max_steps "$g" "${t[@]}" --max_steps many
mkfifo "$tmp/pipe"
check "a pipe is no file for a timeline" refused 73 "is a device, a pipe or a socket; give a file" "$g" "${t[@]}" --trace "$tmp/pipe"
check "  and is there still" test -p "$tmp/pipe"
check "nor is the text" refused 2 "that is a file of data, which a timeline would replace" "$g" "${t[@]}" --trace "$tmp/corpus.txt"
check "  nor rows to continue" refused 2 "that is a file of data, which a timeline would replace" "$g" --n_layer 1 --n_head 1 --n_embd 16 --test_file "$tmp/corpus.txt" --output_dir "$tmp/none" --trace "$tmp/corpus.txt"
check "a length that a prompt has not" refused 2 "--max_new_tokens" "$g" --n_layer 1 --n_head 1 --n_embd 16 --prompt x --max_length 5
mkdir "$tmp/rows" && echo '{"prompt": "x", "completion": "y"}' >"$tmp/rows/predictions.jsonl"
check "rows that predictions would replace" refused 2 "$tmp/rows/predictions.jsonl is a file of data, which the predictions would replace" \
    "$g" --n_layer 1 --n_head 1 --n_embd 16 --test_file "$tmp/rows/../rows/predictions.jsonl" --output_dir "$tmp/rows"
check "  are there still" grep -q completion "$tmp/rows/predictions.jsonl"
mkdir "$tmp/adapters" && echo '{}' >"$tmp/adapters/adapter_config.json"
check "adapters in place of a model" refused 66 "holds adapters and no model: --adapter_name_or_path $tmp/adapters" "$g" --model_name_or_path "$tmp/adapters" --prompt x
printf 'text,label\nabc,yes\nmore,no\n' | iconv -t UTF-16 >"$tmp/u16.csv"
for task in classify tag regress; do
    check "UTF-16 for --task $task" refused 65 "u16.csv: looks like UTF-16 text: convert it" "$bin/models/bert.so" --task $task \
        --num_hidden_layers 1 --hidden_size 16 --num_attention_heads 2 --tokenizer_name bytes --train_file "$tmp/u16.csv" --max_steps 1
done
check "a resumption of what is no training" refused 2 "--resume_from_checkpoint goes on with a training" "$g" --n_layer 1 --n_head 1 --n_embd 16 --eval_file "$tmp/corpus.txt" --resume_from_checkpoint "$tmp/none"
check "no token for a file" refused 2 "--max_new_tokens 0: no token is added to a prompt" "$g" --n_layer 1 --n_head 1 --n_embd 16 --test_file "$tmp/corpus.txt" --output_dir "$tmp/none" --max_new_tokens 0
check "no token behind a training" refused 2 "--max_new_tokens 0: no token is added to a prompt" "$g" "${t[@]}" --prompt x --max_new_tokens 0
check "no token to add" refused 2 "nothing to do: --max_new_tokens adds no token to a prompt" "$g" --n_layer 1 --n_head 1 --n_embd 16 --prompt x --max_new_tokens 0
check "adapters without a model do not pass the check either" refused 2 "--lora_r needs --model_name_or_path" "$g" "${t[@]}" --lora_r 8 --check_config
check "a folder of another family" refused 65 '"model_type" is "llama": another plugin may be for it; this one takes ["gpt2"]' \
    "$g" --model_name_or_path test/golden/llama3/model --prompt x
mkdir -p "$tmp/v3" && echo '{"model_type": "deberta-v2", "type_vocab_size": 0}' >"$tmp/v3/config.json" && printf '\2\0\0\0\0\0\0\0{}' >"$tmp/v3/model.safetensors"
check "  before its settings are looked at" refused 65 '"model_type" is "deberta-v2": another plugin may be for it' "$bin/models/bert.so" \
    --model_name_or_path "$tmp/v3" --tokenizer_name bytes --task classify --train_file test/golden/bert/classify/rows.jsonl --dry_run
check "a device without values" refused 2 "--device meta: it has shapes alone and no values" "$g" "${t[@]}" --device meta
check "a number past the largest is told the largest" refused 2 "--max_steps: 99999999999999999999 is too large: at most 9e+18" "$g" "${t[@]}" --max_steps 99999999999999999999
check "  in a config, too" refused 65 '"steps_per_print": 1e99 is too large: at most 9223372036854775807' "$g" "${t[@]}" --deepspeed '{"steps_per_print": 1e99}'
printf 'a slots=1\nb slots=1\n' >"$tmp/hosts"
"$bin/zlaunch" --hostfile "$tmp/hosts" "$g" "${t[@]}" --launcher local >"$tmp/o" 2>&1
check "what says where ranks run stands before the target" test $? -eq 2 -a -n "$(grep -F 'error: --launcher is an option of zlaunch: write it before' "$tmp/o")"
check "a config whose name is empty" refused 2 "--deepspeed: it is empty, as a variable that is not set is" "$g" "${t[@]}" --deepspeed ""
check "the folder of a model is no target" refused 66 "the target is the plugin of its model_type, as of gpt2: zlaunch gpt2.so" test/golden/llama3/model
for i in 1 2 3; do echo '{"prompt": "longer than the rows of 16 tokens", "completion": "yes"}'; done >"$tmp/unanswered.jsonl"
for i in 1 2 3; do echo '{"prompt": "x", "completion": "short"}'; done >"$tmp/answered.jsonl"
pairs=("$g" "${t[@]/"$tmp/corpus.txt"/"$tmp/answered.jsonl"}" --packing none --do_eval)
for more in "" --dry_run "--eval_steps 1" "--max_eval_samples 2"; do
    # shellcheck disable=SC2086 # words
    check "an evaluation without a target $more" refused 65 "unanswered.jsonl: the evaluation data hold nothing to compare with" "${pairs[@]}" --eval_file "$tmp/unanswered.jsonl" $more
    check "  is known before the first step" test "$(cat "$tmp/o" "$tmp/e" | grep -c 'step 1')" = 0
done
for more in "--packing none" "--packing bfd" "--packing none --dry_run" "--packing none --do_eval --eval_file $tmp/answered.jsonl" "--max_train_samples 1"; do
    # shellcheck disable=SC2086 # words
    check "a training without a target $more" refused 65 "unanswered.jsonl: the training data hold nothing to learn from" "$g" "${t[@]/corpus.txt/unanswered.jsonl}" $more
    check "  is known before the first step" test "$(cat "$tmp/o" "$tmp/e" | grep -c 'step 1')" = 0
done
cat "$tmp/unanswered.jsonl" "$tmp/answered.jsonl" >"$tmp/some.jsonl"
"$bin/zlaunch" --num_gpus 2 "$g" "${t[@]/corpus.txt/some.jsonl}" --packing none >"$tmp/o" 2>"$tmp/e"
check "  one that has some behind rows without trains" test $? -eq 0
"$bin/zlaunch" --num_gpus 2 "${pairs[@]}" --eval_file "$tmp/some.jsonl" --per_device_eval_batch_size 1 >"$tmp/o" 2>"$tmp/e"
check "  one that has some behind rows without is none of them" test $? -eq 0
check "  but with batches of the others alone" refused 65 "nothing to compare with" "${pairs[@]}" --eval_file "$tmp/some.jsonl" --per_device_eval_batch_size 1 --eval_batches 1
printf 'a\0' >"$tmp/single.bin"
printf 'a\0%.0s' {1..99} >"$tmp/tokens.bin"
check "  nor has a single token one" refused 65 "the evaluation data have 1 tokens; two are the least" "$g" "${t[@]/corpus.txt/tokens.bin}" --do_eval --eval_file "$tmp/single.bin" --dry_run
(cd "$tmp" && "$OLDPWD/scripts/quickstart" 3 nowhere) >"$tmp/o" 2>"$tmp/e"
check "quickstart looks for its folder where it was called" test $? -eq 66 -a -n "$(grep -F "$tmp/nowhere: no folder of a model" "$tmp/e")"
check "help is suggested" refused 2 "--hlep: unknown option; did you mean --help?" "$g" --hlep
check "a switch that is no object" refused 65 'must be an object, as in {"enabled": true}, not true' "$g" "${t[@]}" --deepspeed '{"bf16": true}'
check "a number in quotes" refused 65 'not "1e-4": write it without quotes' "$g" "${t[@]}" --deepspeed '{"optimizer": {"type": "Adam", "params": {"lr": "1e-4"}}}'
mkdir "$tmp/weights" && echo '{}' >"$tmp/weights/config.json"
check "weights that are no checkpoint" refused 66 "--model_name_or_path begins a new training" "$g" "${t[@]}" --resume_from_checkpoint "$tmp/weights" --output_dir "$tmp/none"
"$bin/zlaunch" "$g" --n_layer 1 --n_head 1 --n_embd 16 --block_size 16 --eval_file "$tmp/corpus.txt" >/dev/null 2>"$tmp/o"
check "an evaluation of what nothing has trained is told" grep -q "warn  model: nothing has trained the weights of this run" "$tmp/o"
check "parameters of a schedule: where there are some" refused 2 "WarmupCosineLR: cos_min_ratio" "$g" "${t[@]}" --lr_scheduler_type cosine --lr_scheduler_kwargs '{"num_cycles": 1}'
printf 'version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n' >"$tmp/pointer.txt"
check "a pointer of Git LFS is no text" refused 65 "pointer.txt: looks like a pointer of Git LFS" "$g" "${t[@]}" --train_file "$tmp/pointer.txt"
for from in 0.001 0; do
    "$bin/zlaunch" "$g" "${t[@]}" --deepspeed '{"scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": '$from', "warmup_max_lr": 0.001}}}' >/dev/null 2>"$tmp/o"
    check "a warm-up from $from to 0.001 does not end in 2 steps: $([ $from = 0 ] || echo not) told" \
        test "$(grep -c "the learning rate does not get to where it is meant to be" "$tmp/o")" = $([ $from = 0 ] && echo 1 || echo 0)
done
for total in 2 3 4; do # of three steps
    "$bin/zlaunch" "$g" --n_layer 1 --n_head 1 --n_embd 16 --block_size 16 --train_file "$tmp/corpus.txt" --max_train_samples 24 --num_train_epochs 1 \
        --deepspeed '{"scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": '$total', "warmup_num_steps": 2}}}' >/dev/null 2>"$tmp/o"
    check "a schedule of $total steps for a run of 3: $([ $total = 3 ] && echo not) told" \
        test "$(sed -n 's/.*is . and the run has 3 steps: the learning rate \(.*\);.*/\1/p' "$tmp/o")" = \
        "$([ $total = 2 ] && echo stays where that schedule ends || { [ $total = 3 ] || echo does not get to where that schedule ends; })"
done
check "no epochs at all" refused 2 "--num_train_epochs: 0 epochs are no training" "$g" --n_layer 1 --n_head 1 --n_embd 16 --block_size 16 \
    --train_file "$tmp/corpus.txt" --num_train_epochs 0
check "a model of the hub that is not there" refused 66 "hf download NAME" "$g" "${t[@]}" --model_name_or_path gpt2-nowhere
check "no such data file" refused 66 nothere.txt "$g" "${t[@]}" --train_file "$tmp/nothere.txt"
: >"$tmp/empty.txt"
check "... is no matter of one rank" sh -c "! grep -q 'from rank' '$tmp/e'"
cp "$tmp/corpus.txt" "$tmp/d[1].txt" && : >"$tmp/d1.txt" # which the pattern would mean
"$bin/zlaunch" --num_gpus 1 "$g" --n_layer 1 --n_head 1 --n_embd 16 --block_size 16 --max_steps 1 --train_file "$tmp/d[1].txt" --eval_file "$tmp/d[1].txt" \
    "$tmp/d[1-9].txt" >"$tmp/o" 2>"$tmp/e"
check "a name with brackets that is there is no pattern, and one that is not is one" test "$?" -eq 65
check "  which takes what it matches alone" grep -q "d1.txt: .*empty" "$tmp/e"
rm "$tmp/d1.txt"
"$bin/zlaunch" --num_gpus 1 "$g" --n_layer 1 --n_head 1 --n_embd 16 --block_size 16 --max_steps 1 --train_file "$tmp/d[1].txt" --eval_file "$tmp/d[1].txt" >"$tmp/o" 2>"$tmp/e"
check "  and it is read" test "$?" -eq 0
check "an empty data file" refused 65 empty.txt "$g" "${t[@]}" --train_file "$tmp/empty.txt"
printf '{"text": "a"}\n{"text": 3}\n' >"$tmp/rows.jsonl"
check "a row without text, by its line" refused 65 'rows.jsonl:2: "text" is a number, and text is wanted; correct it, or name another column' "$g" "${t[@]}" --train_file "$tmp/rows.jsonl"
printf 'a,b\nx,y\n' >"$tmp/rows.csv"
check "a table in which it is not clear what text is" refused 2 "of a, b it is not clear which one is meant: say --text_column NAME, or --source_column NAME and --target_column NAME of a text and its answer" "$g" "${t[@]}" --train_file "$tmp/rows.csv"
echo '{"id": 1, "of": [2.5]}' >"$tmp/numbers.jsonl"
check "  or nowhere" refused 65 'numbers.jsonl:1: no column holds text; the row has id, of' "$g" "${t[@]}" --train_file "$tmp/numbers.jsonl"
check "  or not there" refused 2 'there is no column "c"; the row has a, b: name one of these' "$g" "${t[@]}" --train_file "$tmp/rows.csv" --text_column c
# what tokens are: said, and not taken for what another tokenizer made
says() { # says TEXT ARGS...: the run ends well, and TEXT is in what it prints
    local text=$1
    shift
    "$bin/zlaunch" --num_gpus 2 "$g" "${t[@]:0:8}" --max_steps 1 "$@" >"$tmp/o" 2>&1 && grep -qF -- "$text" "$tmp/o"
}
check "a run says that its tokens are bytes" says "tokens are bytes, and 256 for end-of-text" --train_file "$tmp/corpus.txt"
check "bytes for a model of other tokens" refused 2 \
    "the model has 50257 token ids: those of a tokenizer; name its folder by --tokenizer_name" "$g" "${t[@]}" --vocab_size 50257
check "... which can be asked for" says "end-of-text; the model has 300" --train_file "$tmp/corpus.txt" --vocab_size 300 \
    --tokenizer_name bytes
check "a text as the prompt of a model of ids is told of the tokenizer" refused 2 "--tokenizer_name bytes if it was trained on bytes" "$g" \
    --n_layer 1 --n_head 1 --n_embd 16 --block_size 16 --vocab_size 300 --prompt abc --generate_tokens 3
check "... and makes a prompt bytes" env ZLAUNCH_LOG_FORMAT=json sh -c '"$@" | grep -q "\"text\":\"abc"' - "$bin/zworker" "$g" --n_layer 1 --n_head 1 \
    --n_embd 16 --block_size 16 --vocab_size 300 --tokenizer_name bytes --prompt abc --generate_tokens 3
check "an id that no vocabulary has is not cut to one" refused 2 "token 1 (from 0) is outside the vocabulary of 300" "$g" --n_layer 1 \
    --n_head 1 --n_embd 16 --block_size 16 --vocab_size 300 --prompt "1 4294967297" --generate_tokens 3
head -c 2000 /dev/zero >"$tmp/ids.bin"
check "a run says that its tokens are ids" says "tokens are ids from files (nanogpt), which need 1; the model has 300" \
    --vocab_size 300 --train_file "$tmp/ids.bin"
check "ids are not bytes" refused 2 "holds token ids (nanogpt)" "$g" "${t[@]:0:8}" --train_file "$tmp/ids.bin" --tokenizer_name bytes
check "a tokenizer that is not there" refused 66 "--tokenizer_name: gpt2: there is no such folder; the tokenizer of a model on the Hugging Face hub" "$g" "${t[@]}" \
    --tokenizer_name gpt2
check "... or is named by its file" refused 66 "corpus.txt: that is a file; name the folder that it is in" "$g" "${t[@]}" \
    --tokenizer_name "$tmp/corpus.txt"
check "a decay of 1 is refused as in a config" refused 2 "--adam_beta2: 1.0 is not in [0,1)" "$g" "${t[@]}" --adam_beta2 1.0
check "... by its environment, too" env ZLAUNCH_ADAM_BETA1=1 sh -c '! "$@" >"$0" 2>&1 && grep -qF "ZLAUNCH_ADAM_BETA1: 1 is not in [0,1)" "$0"' \
    "$tmp/o" "$bin/zlaunch" --num_gpus 1 "$g" "${t[@]}"
check "a switch with another word" refused 2 '--bf16: "maybe" is neither true nor false' "$g" "${t[@]}" --bf16 maybe
check "a folder whose name is empty" refused 2 "--output_dir: it is empty, as a variable that is not set is" "$g" "${t[@]}" --output_dir ""
check "mpirun's letter is named as it was written" refused 2 "-n 2: that is --num_gpus N" -n 2 "$g" "${t[@]}"
check "torchrun's word for all GPUs" refused 2 "--nproc_per_node gpu: without --num_gpus N a job has a rank for each GPU" --nproc_per_node gpu "$g" "${t[@]}"
"$bin/zlaunch" --num_gpus 1 "$g" "${t[@]}" --check_config --dry_run >"$tmp/o" 2>"$tmp/e"
check "the config and the plan, where both are asked for" test "$(grep -cE '"ddp_timeout": 600,|^memory of one rank' "$tmp/o")" = 2
"$bin/zlaunch" --num_gpus 1 "$g" "${t[@]}" --warmup_steps 10 >"$tmp/o" 2>"$tmp/e"
check "a warm-up that is longer than the run is said" grep -qF "the warm-up has 10 steps and the run 2:" "$tmp/e"
check "training that is switched off" refused 2 "nothing to do: --do_train is false; leave it out to train on $tmp/corpus.txt" "$g" "${t[@]}" \
    --do_train False
"$bin/zworker" --num_gpus 2 "$g" "${t[@]}" >"$tmp/o" 2>"$tmp/e"
check "an option of zlaunch in place of a plugin: 2" test $? -eq 2
check "... says whose it is" grep -qF "options of zlaunch, as --num_gpus, are given to zlaunch" "$tmp/e"
"$bin/zlaunch" --num_gpus 8 "$g" "${t[@]}" --n_embd 2048 --n_head 16 --per_device_train_batch_size 100000 >"$tmp/o" 2>"$tmp/e"
check "too little memory is told once, not by each rank: 78" test $? -eq 78
check "..." test "$(grep -c ' reported' "$tmp/e") $(grep -c 'this run needs' "$tmp/e")" = "0 1"
check "heads that do not divide the width" refused 65 "n_embd 16" "$g" "${t[@]}" --n_head 3
for where in build forward; do
    export ZT_MISREAD=$where ZT_MISREAD_HOW=name
    check "a plugin that asks for an option it has not, in $where" refused 70 \
        'plugin misread: it asks for the option "n_layr", which is not in its table; there are model, n_layer,' \
        "$models/misread.so" "${t[@]}"
    ZT_MISREAD_HOW=kind
    check "... or for another kind" refused 70 \
        'plugin misread: it reads the option "n_layer" with zt_args_string(), but its table says that it is a whole number' \
        "$models/misread.so" "${t[@]}"
done
unset ZT_MISREAD ZT_MISREAD_HOW
check "another word for a device is told ours" refused 2 'did you mean cuda?' "$g" "${t[@]}" --device gpu
check "... before the target as well" refused 2 'did you mean cuda?' --device gpu "$g" "${t[@]}"
check "a folder as the hostfile" refused 66 "hostfile $tmp: that is a folder; name a file with a line HOST slots=N for each host" --hostfile "$tmp" "$g" "${t[@]}"
check "--help has the keys that are options" grep -q -- '--zero_stage .*zero_optimization.stage' <("$bin/zlaunch" "$g" --help)
check "no such config" refused 66 nods.json "$g" "${t[@]}" --deepspeed "$tmp/nods.json"
printf '{\n  "train_batch_sise": 4\n}\n' >"$tmp/ds.json"
check "an unknown key: line and suggestion" refused 65 "ds.json:2:" "$g" "${t[@]}" --deepspeed "$tmp/ds.json"
check "... names the nearest key" refused 65 train_batch_size "$g" "${t[@]}" --deepspeed "$tmp/ds.json"
printf '{"fp16": {"enabled": true}, "bf16": {"enabled": true}}' >"$tmp/ds.json"
check "a batch beyond all memory is a plan that is refused" refused 78 "per_device_train_batch_size" "$g" "${t[@]}" --per_device_train_batch_size 100000000
check "... and one beyond any" refused 78 "per_device_train_batch_size" "$g" "${t[@]}" --per_device_train_batch_size 1000000000 --n_embd 1024
check "limits are told as people write them" refused 2 "from 1 to 1000" "$g" "${t[@]}" --n_layer 100000
check "fp16 with bf16" refused 65 bf16 "$g" "${t[@]}" --deepspeed "$tmp/ds.json"
printf '{"optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}}' >"$tmp/ds.json"
check "config and option that contradict each other" refused 65 learning_rate "$g" "${t[@]}" \
    --deepspeed "$tmp/ds.json" --learning_rate 2e-3
check "a run that cannot fit" refused 78 MiB "$g" --model gpt2-xl --train_file "$tmp/corpus.txt" \
    --do_train --max_steps 1 --per_device_train_batch_size 64
# the plan of what would be done: with data that is a training, without saying so
plans() { # plans TEXT ARGS...: the dry run of gpt2 says TEXT
    local text=$1
    shift
    "$bin/zlaunch" --num_gpus 2 --dry_run "$g" --n_layer 1 --n_head 1 --n_embd 16 --block_size 16 "$@" >"$tmp/o" 2>&1 &&
        grep -qF -- "$text" "$tmp/o"
}
check "a dry run with data plans the training" plans "optimizer state" --train_file "$tmp/corpus.txt"
check "... and of an evaluation its rows" plans "2 ranks, 4 rows of an evaluation)" --do_eval --eval_file "$tmp/corpus.txt" --per_device_eval_batch_size 4
check "... and shows no devices to ranks of a processor" sh -c "! '$bin/zlaunch' --num_gpus 2 --device cpu --dry_run '$g' | grep CUDA_VISIBLE"
check "... and without says that it counts the weights alone" plans "with a --train_file" --vocab_size 256
planned() { # the plan and the memory, one object a line and nothing else
    "$bin/zlaunch" --num_gpus 2 --log_format json --dry_run "$g" "${t[@]}" >"$tmp/o" 2>/dev/null &&
        grep -q '^{"ts":"[^"]*Z","event":"plan","world":2,.*"ranks":\[{"rank":0,"slot":0,.*"command":\[.*\]}$' "$tmp/o" &&
        grep -qE '^\{"ts":"[^"]*Z","event":"memory_plan","training":true,"parameters":[0-9]+,.*"total_bytes":[0-9]+,"available_bytes":[0-9]+,"rates":\{"products":[^}]*\},"alternatives":\[\{"fits":true,.*\}\]\}$' "$tmp/o" &&
        ! grep -qv '^{.*}$' "$tmp/o"
}
check "a dry run in JSON is JSON" planned
check "... with the time of each alternative" test "$(grep -oF '"seconds":' "$tmp/o" | wc -l)" = "$(grep -oF '"fits":' "$tmp/o" | wc -l)"
rates() { sed -n 's/.*"rates":\({[^}]*}\).*/\1/p' "$tmp/o"; }
rates >"$tmp/measured.json"
check "... by rates that are measured once" eval 'planned && test "$(rates)" = "$(cat "$tmp/measured.json")"'
events() { # every line is an event, with its time, and there is nothing on stderr
    "$bin/zlaunch" --log_format json "$@" >"$tmp/o" 2>"$tmp/e" && test ! -s "$tmp/e" -a -s "$tmp/o" &&
        ! grep -qvE '^\{"ts":"[0-9T:.-]*Z","event":"[a-z_]+",.*\}$' "$tmp/o"
}
check "... with its remarks" events --num_gpus 2 --dry_run "$g" "${t[@]}"
check "a config that is checked is an event in JSON" events --check_config "$g" "${t[@]}" --deepspeed '{"zero_optimization": {"stage": 2}}'
check "... with where its values come from" grep -q '"event":"config".*"stage":2.*"zero_optimization.stage":"--deepspeed:1:33"' "$tmp/o"
check "an estimate as well" events --estimate 2783M:65M
hosts() { ! "$bin/zlaunch" --estimate 7B:1B "$@" >"$tmp/o" 2>&1 && grep -q -- "^zlaunch: error: $1 .*--estimate wants numbers" "$tmp/o"; }
check "... of numbers of nodes and GPUs, not of others without a word" eval \
    'echo "a slots=4" >"$tmp/hosts" && hosts --hostfile "$tmp/hosts" && hosts --include localhost:0,1'
timed() { "$bin/zlaunch" --num_gpus 2 --dry_run "$g" "${t[@]}" "$@" >"$tmp/o" 2>&1; }
seconds() { sed -n 's/^[* ] \( *[0-3]  .*\)/\1/p' "$tmp/o" | awk '{ print $8 }'; }
given() { # given RATE: a dry run at this rate of everything; the time of the first
    sed -E "s/:[^,}]*/: $1/g" "$tmp/measured.json" >"$tmp/given.json"
    timed --rates "$tmp/given.json" && seconds | head -n 1
}
check "... or given, and ten times the rates are a tenth of the time" \
    awk -v a="$(given 1e8)" -v b="$(given 1e9)" 'BEGIN { exit !(b > 0 && a > 9.9 * b && a < 10.1 * b) }'
check "the fastest that fits comes first" eval 'test "$(seconds | sort -g)" = "$(seconds)" && test "$(seconds | wc -l)" -gt 4'
refused_rate() { ! timed --rates "$tmp/wrong.json" && grep -q 'there is no rate "nonsense"' "$tmp/o"; }
echo '{"nonsense": 1}' >"$tmp/wrong.json"
check "a rate that there is none of is refused" refused_rate
two_nodes() { "$bin/zlaunch" --num_gpus 2 --num_nodes 2 --dry_run "$g" "${t[@]}" "$@" >"$tmp/o" 2>&1; }
check "a network that nobody measured is said to be missing" eval \
    'two_nodes && grep -q "need the rate \"network\"" "$tmp/o" && test "$(seconds | sort -u)" = -'
echo '{"products": 1e9}' >"$tmp/some.json"
absent() { "$bin/zlaunch" --num_gpus 2 --num_nodes 2 --dry_run "$g" "${t[@]}" --device cuda --rates "$tmp/some.json" >"$tmp/o" 2>&1; }
check "... and each of several is named" eval 'absent && grep "need the rates " "$tmp/o" | grep "\"streams\"" | grep "\"transfers\"" | grep -q "\"network\""'
swaps() { # swaps FOLDER: what is measured of files in its swap
    mkdir -p "$1/swap" && (cd "$1" && "$zl" --log_format json --dry_run "$gp" "${t[@]}" --deepspeed '{"zero_optimization": {"stage": 2,
        "offload_optimizer": {"device": "nvme", "nvme_path": "swap"}}}' 2>/dev/null) | grep -oE '"(read|write)":[0-9.e+]+'
}
zl=$(realpath "$bin/zlaunch") gp=$(realpath "$g")
check "a relative folder is another one elsewhere" test "$(swaps "$tmp/here")" != "$(swaps "$tmp/there")"
check "... and the same there" test "$(swaps "$tmp/here")" = "$(swaps "$tmp/here")"
echo '{"network": 1e9}' >"$tmp/net.json"
check "... until it is given" eval 'two_nodes --rates "$tmp/net.json" && ! grep -q "need the rate" "$tmp/o"'
# a run too large for its device: the first of its alternatives, run by the config that is shown, is what was
# said of it, and each line is marked or not as the limit says
narrow() { "$bin/zlaunch" --num_gpus 2 --dry_run "$g" "${t[@]}" --block_size 64 --device_memory 2MiB "$@" >"$tmp/o" 2>&1; }
narrow --per_device_train_batch_size 64
check "what is too large is refused" test $? -eq 78
first=$(awk '/^[* ] +[0-3]  /' "$tmp/o" | head -n 1)
device=$(awk '{ print $(NF - 2) }' <<<"$first")
sed -n '/^{$/,/^}$/p' "$tmp/o" >"$tmp/first.json"
check "every line says whether it fits" awk '/^[* ] +[0-3]  / { n++; device = /too large/ ? $(NF - 4) : $(NF - 2)
    if ((device > 2) != /too large/) exit 1 } END { exit n < 6 }' "$tmp/o"
narrow --deepspeed "$tmp/first.json"
check "its config fits" test $? -eq 0
check "and takes what was said" grep -q "on the device  *$device MiB" "$tmp/o"
check "as the one that was given" grep -q "^\* .* $device " "$tmp/o"
# rows that no power of two divides are divided, too; the run that was given fits and is shown
threes() { "$bin/zlaunch" --dry_run "$g" "${t[@]}" --per_device_train_batch_size 1 --gradient_accumulation_steps 9 "$@" >"$tmp/o" 2>&1; }
threes --device_memory 1GiB
device=$(awk '/ no  *9 x 1 / { print $(NF - 2) }' "$tmp/o")
threes --device_memory "$(awk -v d="$device" 'BEGIN { print d - 0.05 }')MiB"
check "nine rows that do not fit are three times three" grep -q " no  *3 x 3  .*[0-9]$" "$tmp/o"
# keys of the first take the place of the run's own, and say so where state is not offloaded any more
echo '{"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "ratio": 0.5}, "offload_param": {"device": "cpu"}},
    "activation_checkpointing": {"cpu_checkpointing": true, "partition_activations": true}}' >"$tmp/offloaded.json"
"$bin/zlaunch" --num_gpus 2 --dry_run "$g" "${t[@]}" --deepspeed "$tmp/offloaded.json" --rates "$tmp/given.json" >"$tmp/o" 2>&1
none='{"device":"none"' first=$(sed -n '/^{$/,/^}$/p' "$tmp/o" | tr -d ' \n')
for key in "\"offload_optimizer\":$none" "\"offload_param\":$none" '"cpu_checkpointing":false' '"partition_activations":false'; do
    check "  $key" grep -qF "$key" <<<"$first"
done
"$bin/zlaunch" --dry_run "$g" "${t[@]}" --gradient_checkpointing --rates "$tmp/given.json" >"$tmp/o" 2>&1
check "what is typed and would win over them is said" grep -q "for the config, without --gradient_checkpointing:$" "$tmp/o"
typed=(--zero_stage 3 --offload_optimizer_device cpu --offload_param_device cpu)
all_typed() { "$bin/zlaunch" --num_gpus 2 --dry_run "$g" "${t[@]}" --per_device_train_batch_size 4 --rates "$tmp/given.json" "$@" >"$tmp/o" 2>&1; }
all_typed "${typed[@]}"
sed -n '/^{$/,/^}$/p' "$tmp/o" >"$tmp/first.json"
without=$(sed -n 's/^the first of them, for the config, without \(.*\):$/\1/p' "$tmp/o")
check "  and what would be refused beside them" test "$without" = "--zero_stage, --offload_optimizer_device, --offload_param_device"
all_typed "${typed[@]}" --deepspeed "$tmp/first.json"
check "    as they are" test "$?" -eq 65
all_typed --deepspeed "$tmp/first.json"
check "    and without which they are as they are shown" grep -q "^\* " "$tmp/o"
echo '{"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "nvme", "nvme_path": "'"$tmp"'"}}}' >"$tmp/nvme.json"
"$bin/zlaunch" --num_gpus 2 --log_format json --dry_run "$g" "${t[@]}" --deepspeed "$tmp/nvme.json" >"$tmp/o" 2>&1
in_files() { grep -oF "\"device\":\"nvme\"${1:-}" "$tmp/o" | wc -l; }
check "state in files comes with its folder" test "$(in_files)" -gt 0 -a "$(in_files)" = "$(in_files ",\"nvme_path\":\"$tmp\"")"
echo '{"zero_optimization": {"stage": 3, "offload_param": {"device": "nvme", "nvme_path": "'"$tmp"'", "max_in_cpu": 5}}}' >"$tmp/nvme.json"
"$bin/zlaunch" --num_gpus 2 --log_format json --dry_run "$g" "${t[@]}" --deepspeed "$tmp/nvme.json" >"$tmp/o" 2>&1
check "and weights in files with what stays in host memory" test "$(in_files)" -gt 0 -a "$(in_files)" = "$(in_files ",\"nvme_path\":\"$tmp\",\"max_in_cpu\":5")"
check "a run with data trains" "$bin/zlaunch" "$g" "${t[@]:0:8}" --max_steps 1 --train_file "$tmp/corpus.txt"
check "the first rows alone" grep -q "^step 2/2 " <("$bin/zlaunch" --num_gpus 2 "$g" "${t[@]:0:8}" --train_file "$tmp/corpus.txt" \
    --num_train_epochs 1 --max_train_samples 32 --max_eval_samples 8 --do_train --do_eval 2>&1)
order() { # order WORDS...: the losses of two steps
    "$bin/zlaunch" --log_format json "$g" "${t[@]}" --logging_steps 1 --learning_rate 0 "$@" 2>&1 |
        sed -n 's/.*"loss":\([^,]*\),.*/\1/p'
}
a=$(order --data_seed 42) b=$(order --data_seed 43)
check "--data_seed is the order of rows" test -n "$a" -a "$a" = "$(order)" -a "$a" != "$b"
if command -v cc >/dev/null && [ -z "${ZT_VARIANT:-}" ]; then # a disk with 8 KiB, or DISK_FREE bytes, as the kernel would tell
    cat >"$tmp/disk.c" <<'C'
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <stdlib.h>
int statvfs(const char *path, struct statvfs *fs)
{
    (void)path;
    memset(fs, 0, sizeof(*fs));
    fs->f_frsize = 1;
    fs->f_blocks = 1UL << 40;
    fs->f_bavail = getenv("DISK_FREE") ? strtoul(getenv("DISK_FREE"), NULL, 10) : 8192;
    return 0;
}
int fallocate(int fd, int mode, long off, long len)
{
    (void)fd, (void)mode, (void)off;
    fprintf(stderr, "the disk is asked for %ld\n", len);
    errno = ENOSPC;
    return -1;
}
C
    cc -shared -fPIC -o "$tmp/disk.so" "$tmp/disk.c"
    small_disk() { # small_disk TEXT ARGS...: refused before the first step
        local text=$1
        shift
        LD_PRELOAD=$tmp/disk.so "$@" "$bin/zworker" "$g" "${t[@]}" --output_dir "$tmp/small" >"$tmp/o" 2>&1
        [ $? -eq 73 ] && grep -qF -- "$text" "$tmp/o" && ! grep -q '^step 1' "$tmp/o"
    }
    check "a disk that is too small is found at the start" small_disk "KiB, and 8.0 KiB are free there: make room" env
    check "... or when room is reserved, where others have a share of it" small_disk "KiB of the weights cannot be reserved there (No space left on device)" env DISK_FREE=1000000000
    need=$(sed -n 's/^the disk is asked for //p' "$tmp/o")
    check "... and by bytes where little is missing" small_disk "the weights need $need bytes, and $((need - 1)) bytes are free there" env DISK_FREE=$((need - 1))
fi
check "... or is a file" refused 73 "--output_dir $tmp/corpus.txt: that is a file" "$g" "${t[@]}" --output_dir "$tmp/corpus.txt"
check "... said once, and no matter of one rank" test "$(grep -c . "$tmp/e") $(grep -c 'rank 1\|from rank' "$tmp/e")" = "2 0"
mkdir "$tmp/old" && : >"$tmp/old/model.safetensors"
check "... or has weights" refused 73 "model.safetensors is there already; --overwrite_output_dir" "$g" "${t[@]}" --output_dir "$tmp/old"
check "... which is no matter of one rank" sh -c "! grep -q 'from rank\|was stopped' '$tmp/e'"
mkfifo "$tmp/pipe"
check "a config that can be read once is refused, for all ranks read it" refused 2 "is no regular file, and every rank reads it" "$g" "${t[@]}" --deepspeed "$tmp/pipe"
check "a loss that runs away is said once" test 1 = "$("$bin/zlaunch" "$g" "${t[@]}" --max_steps 4 --logging_steps 1 \
    --learning_rate 1e6 --max_grad_norm 0 2>&1 | grep -c 'it runs away')"
check "... and one of fp16 that ends without a number" test 1 = "$("$bin/zlaunch" "$g" "${t[@]}" --max_steps 4 --fp16 \
    --learning_rate 100 2>&1 | grep -c 'the loss is nan .*it runs away')"
core=$(awk '/^Cpus_allowed_list/ { split($2, a, /[,-]/); print a[1] }' /proc/self/status)
"$bin/zlaunch" --bind_core_list "$core" --num_gpus 2 "$g" "${t[@]}" >"$tmp/o" 2>&1
check "more ranks than cores get a warning" grep -q "2 ranks share 1 core of this host" "$tmp/o"
check "... and compute with one thread each" grep -q "cpu: 1 thread," "$tmp/o"
# plugins by their name: beside the programs, and in ZLAUNCH_PLUGIN_PATH
here=$(realpath "$bin")
cp "$g" "$tmp/mine.so"
mkdir "$tmp/empty"
named() { (cd "$tmp/empty" && "$here/zlaunch" --dry_run "$@" "${t[@]}" 2>&1); }
check "a plugin by its name" grep -q "optimizer state" <(named gpt2.so)
check "... of a folder of one's own" grep -q "optimizer state" <(ZLAUNCH_PLUGIN_PATH=/nowhere:$tmp named mine.so)
check "... and where it was looked for" grep -q "plugin mine.so: it is neither here nor in any of /nowhere:$here/models:" \
    <(ZLAUNCH_PLUGIN_PATH=/nowhere named mine.so)
if command -v cc >/dev/null; then # what is said to do with source does it
    cp models/settings.h "$tmp" && cp models/gpt2.c "$tmp/mine.c" && rm "$tmp/mine.so"
    check "C source for a target" refused 66 "is C source: build the plugin, cc " "$tmp/mine.c" "${t[@]}"
    (eval "$(sed -n 's/.*plugin, \(cc .*\) (docs.*/\1/p' "$tmp/e")") && check "... builds as it is told" test -s "$tmp/mine.so"
    flags=$(sed -n 's/.*plugin, \(cc .*\) -o .*/\1/p' "$tmp/e")
    check "text for a plugin: how one is built" refused 70 "build it with $flags -o NAME.so NAME.c" "$tmp/fake.so" "${t[@]}"
fi
check "an output folder that cannot be made" refused 73 /proc/nowhere "$g" "${t[@]}" \
    --output_dir /proc/nowhere
finish
