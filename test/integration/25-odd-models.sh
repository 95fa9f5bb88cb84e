#!/bin/bash
# Models that are awkward to cut into blocks learn the same on one rank and on two: one with
# two halves, one with weights that are shared, frozen, used twice or not at all. And the
# same in each ZeRO stage.
. "$(dirname "$0")/train_lib.sh"
corpus >/dev/null
case $bin in
bin) models=${ZT_TEST_MODELS:-build/release/test-models} ;;
*) models=${ZT_TEST_MODELS:-${bin%/bin}/test-models} ;;
esac
for m in encdec shared; do
    [ -f "$models/$m.so" ] || { echo "$models/$m.so is missing: make test builds it"; exit 1; }
done

# odd MODEL RANKS OUT ARGS...: 5 steps of 8 rows, JSON events to OUT
odd() {
    local model=$1 ranks=$2 out=$3
    shift 3
    "$bin/zlaunch" --num_gpus "$ranks" --log_format json "$models/$model.so" --block_size 32 \
        --train_file "$tmp/corpus.txt" --do_train --max_steps 5 --logging_steps 1 --seed 7 \
        --learning_rate 3e-3 --per_device_train_batch_size $((8 / ranks)) \
        --fingerprint_steps 1 "$@" >"$out" 2>"$out.err"
}
falls() {
    field loss "$1" | awk 'NR == 1 { first = $1 } END { exit !(NR == 5 && first > 5.4 && $1 < first - 0.2) }'
}
# tensor FOLDER NAME: a checksum of a saved tensor's bytes
tensor() {
    local file=$1/model.safetensors head range
    head=$(od -An -tu8 -N8 "$file" | tr -d ' ')
    range=$(tail -c +9 "$file" | head -c "$head" | grep -o "\"$2\":{[^}]*}" |
        sed 's/.*"data_offsets":\[\([0-9]*\),\([0-9]*\)\].*/\1 \2/')
    [ -n "$range" ] || { echo "no tensor $2"; return 1; }
    tail -c +$((9 + head + ${range% *})) "$file" | head -c $((${range#* } - ${range% *})) | cksum
}
# learns NAME [not]: whether the tensor differs between the runs of 1 and of 5 steps
learns() {
    local a b
    a=$(tensor "$tmp/one" "$1") && b=$(tensor "$tmp/five" "$1") || return 1
    if [ "${2:-}" = not ]; then [ "$a" = "$b" ]; else [ "$a" != "$b" ]; fi
}

for m in encdec shared; do
    odd $m 1 "$tmp/$m.1"
    check "$m: one rank" test $? -eq 0
    check "$m: the loss falls" falls "$tmp/$m.1"
    odd $m 2 "$tmp/$m.2"
    check "$m: two ranks" test $? -eq 0
    check "$m: same curve on two ranks" same_curve "$tmp/$m.1" "$tmp/$m.2" 1e-5
    odd $m 2 "$tmp/$m.again"
    check "$m: twice the same is the same bits" same_bits "$tmp/$m.2" "$tmp/$m.again"
    odd $m 2 "$tmp/$m.re" --gradient_checkpointing
    check "$m: recomputation is the same bits" same_bits "$tmp/$m.2" "$tmp/$m.re"
    odd $m 1 "$tmp/$m.d1" --dropout 0.1
    odd $m 2 "$tmp/$m.d2" --dropout 0.1 --per_device_train_batch_size 2 \
        --gradient_accumulation_steps 2
    check "$m: dropout and micro-batches: same curve" same_curve "$tmp/$m.d1" "$tmp/$m.d2" 1e-5
    odd $m 2 "$tmp/$m.bf16" --bf16
    check "$m: bf16 is near" same_curve "$tmp/$m.1" "$tmp/$m.bf16" 1e-2
done

odd shared 2 "$tmp/log.1" --max_steps 1 --lr_scheduler_type constant --output_dir "$tmp/one"
odd shared 2 "$tmp/log.5" --lr_scheduler_type constant --output_dir "$tmp/five"
for name in embed.wte a.up a.bias b.bias c.down twice.w head.ln; do
    check "shared: $name learns" learns "$name"
done
for name in embed.wpe frozen.ln frozen.w b.unused unused.w; do
    check "shared: $name stays" learns "$name" not
done
for unused in none parameter block; do
    odd shared 2 "$tmp/u.$unused" --unused $unused
    check "shared: what is unused does not matter ($unused)" same_curve "$tmp/shared.2" "$tmp/u.$unused" 1e-6
done

# every way to cut the state over ranks gives the bits of the way that does not
for stage in 1 2 3; do
    echo "{\"zero_optimization\": {\"stage\": $stage}}" >"$tmp/stage$stage.json"
done
for m in encdec shared; do
    for ranks in 2 4; do
        for how in "" --bf16 --gradient_checkpointing; do
            odd $m $ranks "$tmp/$m.0" $how
            for stage in 1 2 3; do
                odd $m $ranks "$tmp/$m.s$stage" $how --deepspeed "$tmp/stage$stage.json"
                check "$m: stage $stage is the bits of stage 0 ($ranks ranks, ${how:-fp32})" \
                    same_bits "$tmp/$m.0" "$tmp/$m.s$stage"
            done
        done
    done
done
[ "$failures" -eq 0 ] || cat "$tmp"/*.err
finish
