#!/bin/bash
# On the device, too, neither the ZeRO stage nor recomputation changes a bit: for 1, 2 and 4 ranks,
# bf16 and fp32, 1 micro-batch and 2 that are reduced one by one, a few clipped steps have the
# same losses and final weights in stages 0 to 3, recomputed or not. Ranks share the GPU,
# where a collective takes ten milliseconds. ZT_RANKS: which numbers of ranks ("2 1 4").
. "$(dirname "$0")/gpu_lib.sh"
steps=4 jobs=4 types="bf16 fp32" micros="2 1" worlds="2 1 4"
[ "$toy" != 1 ] || steps=2 jobs=2 types=bf16 micros=2 worlds="2 1"
tokens 4000 "$tmp/data.bin"
for s in 0 1 2 3; do
    echo "{\"zero_optimization\": {\"stage\": $s, \"stage3_param_persistence_threshold\": 0}}" >"$tmp/$s.json"
done

# one NAME STAGE ARGS...
one() {
    local out=$tmp/$1 config=$tmp/$2.json
    shift 2
    run "$out" gpt2 --deepspeed "$config" --n_layer 3 --n_head 2 --n_embd 64 --n_positions 64 --vocab_size 257 \
        --train_file "$tmp/data.bin" --block_size 32 --per_device_train_batch_size 2 --max_steps $steps \
        --learning_rate 1e-3 --max_grad_norm 0.5 --fingerprint_steps $steps --threads 1 "$@" ||
        why "$out"
}

# block TYPE MICRO: stages 0 to 3, recomputed or not, with $ranks
block() {
    local type=$1 micro=$2 s r wrong=0 name at=$jobs args=()
    [ "$type" = fp32 ] || args+=("--$type")
    [ "$micro" -eq 1 ] || args+=(--gradient_accumulation_steps "$micro" --reduce_every_micro_batch)
    [ "$ranks" -eq 1 ] || { at=2 && args+=(--share_gpu); }
    for s in 0 1 2 3; do
        for r in "" --gradient_checkpointing; do
            while [ "$(jobs -rp | wc -l)" -ge $at ]; do wait -n; done
            # shellcheck disable=SC2086 # $r is an option or nothing
            one "$s$r" $s "${args[@]}" $r &
        done
    done
    wait
    for s in 0 1 2 3; do
        for name in $s $s--gradient_checkpointing; do
            runs=$((runs + 1))
            same_bits "$tmp/0" "$tmp/$name" && continue
            echo "# stage $name: $(field fingerprint "$tmp/$name"), not $(field fingerprint "$tmp/0")"
            wrong=$((wrong + 1))
        done
    done
    check "$ranks rank(s), $type, $micro micro-batch(es): the same bits in all 8 ways" test $wrong -eq 0
    blocks=$((blocks + 1))
    all+=" $(field fingerprint "$tmp/0")"
    record check identity ranks "$ranks" dtype "$type" micro_batches "$micro" runs 8 different $wrong
    rm -f "$tmp"/[0-3] "$tmp"/[0-3]-* "$tmp"/*.err
}

runs=0 blocks=0 all=""
for type in $types; do
    for ranks in ${ZT_RANKS:-$worlds}; do
        for micro in $micros; do
            if late; then
                echo "# out of time: not run: $ranks ranks, $type, $micro micro-batches"
                continue
            fi
            block $type $micro
        done
    done
done
# what is compared does depend on what is trained
distinct() { [ "$(tr ' ' '\n' <<<"$all" | sed '/^$/d' | sort -u | wc -l)" -eq $blocks ]; }
check "other types, ranks and micro-batches give other bits" distinct
echo "# $runs runs"
check "there was time for one kind at least" test $blocks -gt 0
finish
