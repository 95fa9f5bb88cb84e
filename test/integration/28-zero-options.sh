#!/bin/bash
# The options of ZeRO, end to end: what each does to the numbers, the saved weights, the
# timeline, and to ranks that were not given the same.
. "$(dirname "$0")/train_lib.sh"
corpus >/dev/null
[ "${ZT_VARIANT:-}" != tsan ] || export UCX_MEM_EVENTS=n # its hooks run in threads that TSan has left

# zero OUT RANKS STAGE KEYS ARGS...: 6 steps; KEYS go into zero_optimization
zero() {
    local out=$1 ranks=$2 stage=$3 keys=$4
    shift 4
    config "{\"zero_optimization\": {\"stage\": $stage${keys:+, $keys}}}"
    small "$ranks" "$out" "$@"
}
# with OUT RANKS STAGE TOP ARGS...: as above; TOP goes beside zero_optimization
with() {
    local out=$1 ranks=$2 stage=$3 top=$4
    shift 4
    config "{\"zero_optimization\": {\"stage\": $stage}, $top}"
    small "$ranks" "$out" "$@"
}
config() { echo "$1" >"$tmp/ds.json"; }
small() {
    local ranks=$1 out=$2
    shift 2
    train "$ranks" "$out" --deepspeed "$tmp/ds.json" --max_steps 6 --fingerprint_steps 3 \
        --max_grad_norm 0.5 --per_device_train_batch_size 2 "$@"
}
whole='"stage3_param_persistence_threshold": 0' # nothing stays whole
differs() { [ -n "$(field loss "$1")" ] && [ "$(field loss "$1")" != "$(field loss "$2")" ]; }

# same_at_all_stages NAME TOP TOLERANCE ARGS...: the same bits; near what it is without TOP
same_at_all_stages() {
    local name=$1 top=$2 tolerance=$3 s
    shift 3
    with "$tmp/plain" 3 0 '"steps_per_print": 1' "$@"
    for s in 0 1 2 3; do
        with "$tmp/s$s" 3 $s "$top" "$@"
        check "$name: stage $s runs" test $? -eq 0
        check "$name: stage $s gives the bits of stage 0" same_bits "$tmp/s0" "$tmp/s$s"
    done
    check "$name: near what it is without" same_curve "$tmp/plain" "$tmp/s0" "$tolerance"
}
twice=(--gradient_accumulation_steps 2 --reduce_every_micro_batch)
same_at_all_stages "bf16 on the way" '"communication_data_type": "bf16"' 1e-3
check "bf16 on the way: not the bits of fp32" differs "$tmp/plain" "$tmp/s0"
same_at_all_stages "fp16 on the way" '"communication_data_type": "fp16"' 1e-3
check "fp16 on the way: not the bits of fp32" differs "$tmp/plain" "$tmp/s0"
same_at_all_stages "bf16 accumulators" '"data_types": {"grad_accum_dtype": "bf16"}' 1e-2 "${twice[@]}"
check "bf16 accumulators: not the bits of fp32" differs "$tmp/plain" "$tmp/s0"
same_at_all_stages "bf16 accumulators, one micro-batch" '"data_types": {"grad_accum_dtype": "bf16"}' 1e-2
# a block of 1.6 million parameters: its 16-bit accumulators are read in more than one piece
for kind in fp32 bf16; do
    with "$tmp/wide.$kind" 1 0 "\"data_types\": {\"grad_accum_dtype\": \"$kind\"}" --n_embd 368 --max_steps 2
done
near() { paste <(field grad_norm "$1") <(field grad_norm "$2") | awk '{ d = $1 / $2 - 1; n++; if (d * d > 1e-4) exit 1 } END { exit n != 2 }'; }
check "bf16 accumulators: the norm is that of all pieces" near "$tmp/wide.fp32" "$tmp/wide.bf16"
same_at_all_stages "scaled before the sum" '"prescale_gradients": true' 1e-5

# what changes no bit, against stage 0 of as many ranks
for ranks in 2 4; do
    zero "$tmp/base$ranks" $ranks 0 ""
    zero "$tmp/base16.$ranks" $ranks 0 "" --bf16
done
like() { # like NAME RANKS STAGE KEYS ARGS...
    local name=$1
    shift
    zero "$tmp/like" "$@"
    check "$name: runs" test $? -eq 0
    check "$name: changes no bit" same_bits "$tmp/base$1" "$tmp/like"
    zero "$tmp/like" "$@" --bf16
    check "$name: nor in bf16" same_bits "$tmp/base16.$1" "$tmp/like"
}
like "second shards of 2 in 4 ranks" 4 3 "$whole, \"zero_hpz_partition_size\": 2"
like "second shards of 4 in 4 ranks" 4 3 "$whole, \"zero_hpz_partition_size\": 4"
like "one copy for the node, stage 1" 2 1 "" --share_node_weights
like "one copy for the node, stage 2" 4 2 "" --share_node_weights
for s in 1 2 3; do
    like "broadcasts, stage $s" 2 $s '"allgather_partitions": false'
    like "no reduce-scatter, stage $s" 2 $s '"reduce_scatter": false'
    like "small pieces, stage $s" 2 $s '"sub_group_size": 1000, "allgather_bucket_size": 1000'
done
like "prescaling by a power of two" 2 2 '"reduce_bucket_size": 1000' --gradient_checkpointing

# ---- the timeline ----
zero "$tmp/traced" 2 3 "$whole" --trace "$tmp/trace.json"
check "a traced run" test $? -eq 0
check "it is said where the timeline is" grep -q "\"event\":\"timeline\".*$tmp/trace.json" "$tmp/traced"
check "a timeline changes no bit" same_bits "$tmp/base2" "$tmp/traced"
valid_json() {
    if command -v python3 >/dev/null; then
        python3 -m json.tool "$1" >/dev/null
    else
        head -c 1 "$1" | grep -q '{' && tail -n 1 "$1" | grep -q '}$'
    fi
}
check "the timeline is JSON" valid_json "$tmp/trace.json"
# spans RANK NAME: how many
spans() { grep '"ph":"X"' "$tmp/trace.json" | grep -c "\"pid\":$1,.*\"name\":\"$2\""; }
for rank in 0 1; do
    for name in gather reduce all_gather reduce_scatter forward backward optimizer; do
        check "rank $rank: at least one $name a step" test "$(spans $rank $name)" -ge 6
    done
done
no_parts() { ! ls "$tmp"/trace.json.* >/dev/null 2>&1; }
check "and its parts are gone" no_parts

# ---- weights ----
# evaluation, sample FILE: what a run evaluated and wrote, without times
evaluation() { grep '"event":"eval"' "$1" | grep -o '"loss":[^,]*,"perplexity":[^,]*'; }
sample() { grep '"event":"sample"' "$1" | sed 's/.*"text"://'; }
same_words() { # same_words COMMAND A B
    [ -n "$("$1" "$2")" ] && [ "$("$1" "$2")" = "$("$1" "$3")" ]
}
speak=(--do_eval --eval_batches 4 --eval_steps 3 --prompt "The license of" --generate_tokens 60)
for type in "" --bf16; do
    for s in 0 3; do
        # shellcheck disable=SC2086 # an option or nothing
        zero "$tmp/full$s" 2 $s "$whole" $type "${speak[@]}" --output_dir "$tmp/saved$s$type"
        check "stage $s $type: trains, evaluates, speaks and saves" test $? -eq 0
    done
    check "stage 3 $type evaluates as stage 0" same_words evaluation "$tmp/full0" "$tmp/full3"
    check "stage 3 $type speaks as stage 0" same_words sample "$tmp/full0" "$tmp/full3"
    check "stage 3 $type saves the bytes of stage 0" \
        cmp "$tmp/saved0$type/model.safetensors" "$tmp/saved3$type/model.safetensors"
    check "stage 3 $type saves the config of stage 0" \
        cmp "$tmp/saved0$type/config.json" "$tmp/saved3$type/config.json"
done

header() { tail -c +9 "$1/model.safetensors" | head -c "$(od -An -tu8 -N8 "$1/model.safetensors" | tr -d ' ')"; }
of_type() { header "$1" | grep -q "\"dtype\":\"$2\"" && ! header "$1" | grep -q "\"dtype\":\"$3\""; }
zero "$tmp/narrow" 2 3 "$whole, \"stage3_gather_16bit_weights_on_model_save\": true" --bf16 \
    "${speak[@]}" --output_dir "$tmp/narrow.saved"
check "weights saved in 16 bit" test $? -eq 0
check "... are of that type" of_type "$tmp/narrow.saved" BF16 F32
check "... and in fp32 unless asked for" of_type "$tmp/saved3--bf16" F32 BF16
half() {
    local n w
    n=$(wc -c <"$tmp/narrow.saved/model.safetensors") w=$(wc -c <"$tmp/saved3/model.safetensors")
    [ "$n" -lt $((w * 6 / 10)) ]
}
check "... and take half the room" half
zero "$tmp/narrow1" 2 1 "$whole, \"stage3_gather_16bit_weights_on_model_save\": true" --bf16 \
    "${speak[@]}" --output_dir "$tmp/narrow1.saved"
check "... at another stage as well: the same bytes" cmp "$tmp/narrow.saved/model.safetensors" "$tmp/narrow1.saved/model.safetensors"
# the fp32 values rounded are the 16-bit values: both evaluate the same in bf16
# evaluate OUT RANKS STAGE FROM ARGS...
evaluate() {
    local out=$1 ranks=$2 stage=$3 from=$4
    shift 4
    config "{\"zero_optimization\": {\"stage\": $stage, $whole}}"
    "$bin/zlaunch" --num_gpus "$ranks" --log_format json "$bin/models/gpt2.so" --deepspeed "$tmp/ds.json" \
        --model_name_or_path "$from" --eval_file "$tmp/corpus.txt" --do_eval --eval_batches 4 \
        --per_device_eval_batch_size $((8 / ranks)) --block_size 32 "$@" >"$out" 2>"$out.err"
}
evaluate "$tmp/e.wide" 2 0 "$tmp/saved3--bf16" --bf16
check "fp32 weights are read for bf16" test $? -eq 0
evaluate "$tmp/e.narrow" 2 3 "$tmp/narrow.saved" --bf16
check "16-bit weights are read, stage 3" test $? -eq 0
check "... and evaluate as the fp32 ones do" same_words evaluation "$tmp/e.wide" "$tmp/e.narrow"
evaluate "$tmp/e.narrow0" 2 0 "$tmp/narrow.saved" --bf16
check "... and as stage 0 does" same_words evaluation "$tmp/e.narrow" "$tmp/e.narrow0"
for s in 0 1 2 3; do
    evaluate "$tmp/e$s" 2 $s "$tmp/saved3"
    check "saved weights are read at stage $s" test $? -eq 0
    check "... and evaluate the same" same_words evaluation "$tmp/e0" "$tmp/e$s"
done

# ---- ranks that were not given the same ----
cp "$tmp/corpus.txt" "$tmp/other.txt"
printf 'X' | dd of="$tmp/other.txt" bs=1 seek=1000 conv=notrunc status=none
cat >"$tmp/rank.sh" <<'SH'
#!/bin/sh
# rank.sh WORKER MODEL HOW ARGS...: a rank that differs from the others in one thing
worker=$1 model=$2 how=$3
shift 3
case $RANK$how in
1rate) set -- "$@" --learning_rate 2e-3 ;;
1data) set -- "$@" --train_file "$OTHER" ;;
1width) set -- "$@" --n_embd 64 ;;
1bucket) set -- "$@" --deepspeed "$OTHER_CONFIG" ;;
esac
exec "$worker" "$model" "$@"
SH
chmod +x "$tmp/rank.sh"
echo '{"zero_optimization": {"stage": 3, "reduce_bucket_size": 1001}}' >"$tmp/ds.json"
echo '{"zero_optimization": {"stage": 3, "reduce_bucket_size": 1002}}' >"$tmp/other.json"
differing() { # differing HOW: 2 steps of 2 ranks
    OTHER=$tmp/other.txt OTHER_CONFIG=$tmp/other.json "$bin/zlaunch" --num_gpus 2 -- "$tmp/rank.sh" \
        "$bin/zworker" "$bin/models/gpt2.so" "$1" --n_layer 1 --n_head 1 --n_embd 32 --block_size 16 \
        --do_train --max_steps 2 --learning_rate 1e-3 --train_file "$tmp/corpus.txt" \
        --deepspeed "$tmp/ds.json" >"$tmp/o" 2>"$tmp/e"
}
refused() { # refused HOW TEXT...: ends with an error that has all of these
    local how=$1 text
    shift
    differing "$how" && return 1
    for text in "$@"; do
        grep -qF -- "$text" "$tmp/e" && continue
        echo "# no \"$text\" in:"
        sed 's/^/# /' "$tmp/e"
        return 1
    done
}
check "ranks that were given the same run" differing nothing
check "another learning rate is named" refused rate "rank 1" "lr: 0.002" "lr: 0.001"
check "another bucket size is named" refused bucket "rank 1" "reduce_bucket_size: 1002" \
    "reduce_bucket_size: 1001"
check "another width of the model is named" refused width "rank 1" 64 32
check "another text of the same length is named" refused data "rank 1" "data"

# ---- state in files ----
files() { # files DIR: the key for state in files there
    echo "\"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": \"$1\", \"pipeline_read\": true}"
}
says() { grep -qF -- "$1" "$tmp/o" "$tmp/o.err" || { tail -n 3 "$tmp/o.err" | sed 's/^/# /' && false; }; }
mkdir "$tmp/swap"
"$bin/zio" --size 1 --rounds 1 "$tmp/swap" >"$tmp/o" 2>"$tmp/o.err"
check "zio measures a folder" test $? -eq 0
aio=$(grep '^"aio": {' "$tmp/o")
check "and prints a section" test -n "$aio"
zero "$tmp/o" 1 2 "$(files "$tmp/swap"), $aio"
check "that a config takes" test $? -eq 0
"$bin/zio" --size 1 --rounds 1 --block_size 4096 --queue_depth 1 --threads 1 --engine psync "$tmp/swap" >"$tmp/o" 2>"$tmp/o.err"
check "an engine that is not the usual one is said with its section" says "with --aio_engine psync"
many=$(printf ', "%s"' "$tmp/swap"{,}{,}{,}{,})
zero "$tmp/o" 2 2 "\"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": [${many#, }]}"
check "there may be more folders than there are blocks of a file" test $? -eq 0
zero "$tmp/o" 2 2 "$(files "$tmp/swap")" --trace "$tmp/files.json"
check "a timeline of state in files" test $? -eq 0
lane() { grep -q "\"ph\":\"X\".*\"cat\":\"files\".*\"name\":\"$1\"" "$tmp/files.json"; }
check "has a lane of what is read" lane read
check "and written" lane write
share() { grep '"event":"step"' "$tmp/o" | tail -n 1 | sed -n "s/.*\"$1_wait_share\":\([0-9.e-]*\).*/\1/p" | awk '{ ok = $1 > 0 && $1 < 1 } END { exit !ok }'; }
check "a step says what share of it waited for files" share file
check "and for the other rank" share rank
for plan in --dry_run --check_config; do
    zero "$tmp/o" 1 2 "$(files "$tmp/nowhere")" $plan
    check "$plan says that a folder is not there" says "zero_optimization.offload_optimizer.nvme_path $tmp/nowhere: No such file or directory: a run on this host would end there"
done
"$bin/zio" --size 1 "$tmp/nowhere" >"$tmp/o" 2>"$tmp/o.err"
check "a folder that is not there is named by zio" says "nvme_path $tmp/nowhere: no file can be made there"
check "  before a table is begun" eval '! grep -q block_size "$tmp/o"'
"$bin/zio" --size 1048576 --rounds 1 "$tmp/swap" >"$tmp/o" 2>"$tmp/o.err"
check "a file that no disk here has room for: 73" test $? -eq 73
check "  is told of its option" says "are free there: make room, or give a smaller --size"
zero "$tmp/o" 1 2 "$(files "$tmp/nowhere")"
code=$?
check "a folder that is not there ends with 73" test $code -eq 73
check "and is named" says "nvme_path $tmp/nowhere: no file can be made there: No such file or directory"
zero "$tmp/o" 1 3 "\"offload_param\": {\"device\": \"nvme\", \"nvme_path\": \"$tmp/nowhere\"}"
check "so does one of weights, though all of them stay on the device" test $? -eq 73
check "and is named" says "nvme_path $tmp/nowhere: no file can be made there: No such file or directory"
zero "$tmp/o" 1 2 "$(files "$tmp/swap")" --max_steps 100000 &
job=$!
for _ in $(seq 300); do
    rank=$(pgrep -f "zworker $bin/models/gpt2.so .*--deepspeed $tmp/ds.json .*--max_steps 100000" | head -n 1)
    [ -n "$rank" ] && grep -q '"event":"step"' "$tmp/o" 2>/dev/null && break
    sleep 0.1
done
open_files() { find "/proc/$rank/fd" -lname "$tmp/swap/*" | wc -l; }
check "a rank has files there" test "$(open_files)" -eq 3
kill -9 "$rank"
wait $job
check "a rank that is killed leaves none of them" test -z "$(ls -A "$tmp/swap")"

# ---- weights in host memory and in files ----
some_rates >"$tmp/rates.json"
planned() { # planned NAME: bytes; none are not said
    sed -n "s/^[^[]*\"event\":\"memory_plan\"[^[]*\"$1\":\([0-9]*\).*/\1/p" "$tmp/plan" | grep . || echo 0
}
for ranks in 1 2; do
    less=0
    for most in 1000000000 $((66000 / ranks)) 0; do # all four blocks on the host, two, none
        keys="$whole, \"offload_param\": {\"device\": \"nvme\", \"nvme_path\": \"$tmp/swap\", \"buffer_count\": 1,
            \"buffer_size\": 4096, \"max_in_cpu\": $most}"
        zero "$tmp/o" $ranks 3 "$keys"
        check "$ranks ranks train with max_in_cpu $most" test $? -eq 0
        check "  and say where weights are" grep -qF "ZeRO stage 3, weights on $([ $most -eq 0 ] || echo "cpu and ")nvme; " "$tmp/o" "$tmp/o.err"
        files=$(field file_bytes "$tmp/o" | tail -n 1) host=$(field peak_host_bytes "$tmp/o" | tail -n 1)
        zero "$tmp/plan" $ranks 3 "$keys" --dry_run --rates "$tmp/rates.json"
        echo "# ${files:-0} bytes in files, ${host:-0} on the host"
        check "  files are as large as planned" test "${files:-0}" = "$(planned file_bytes)"
        check "  and what is on the host" test "${host:-0}" = $(($(planned host_bytes) - $(planned process_bytes)))
        check "  more in files than with more on the host" test $most -eq 1000000000 -o "${files:-0}" -gt $less
        less=${files:-0}
    done
done

[ "$failures" -eq 0 ] || tail -n 3 "$tmp"/*.err
finish
