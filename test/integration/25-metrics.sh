#!/bin/bash
# Metrics of tasks with labels, the same on any ranks; which evaluation was the best, and what follows from it.
# shellcheck source=test/integration/tasks_lib.sh
. "$(dirname "$0")/tasks_lib.sh"

# evals FILE: the evaluations, without what tells where and when they were
evals() { grep '"event":"eval"' "$1" | sed -E 's/"ts":"[^"]*",//'; }
# scores NAME FILE: the values of a metric of evaluations, one a line
scores() { evals "$2" | sed -n "s/.*\"$1\":\([^,}]*\).*/\1/p"; }

# 1, 2 and 3 ranks of uneven ends: 61 rows in batches of 4
head -n 1 "$tmp/classes.jsonl" >>"$tmp/classes.jsonl"
sed -n 2p "$tmp/numbers.tsv" >>"$tmp/numbers.tsv"
for kind in "classify classes.jsonl accuracy f1_macro matthews_correlation" "regress numbers.tsv pearson spearmanr" \
    "tag tags.jsonl accuracy f1_macro matthews_correlation precision recall f1"; do
    # shellcheck disable=SC2086 # words
    set -- $kind
    out=$tmp/$1
    bert 2 "$tmp/train" "$1" "$2" --max_steps 30 --output_dir "$out"
    for ranks in 1 2 3; do
        "$bin/zlaunch" --num_gpus $ranks --log_format json "$bin/models/bert.so" --task "$1" --model_name_or_path "$out" \
            --eval_file "$tmp/$2" --per_device_eval_batch_size 4 --block_size 16 >"$tmp/eval$ranks" 2>&1
    done
    task=$1
    shift 2
    for name; do
        check "$task: $name is there, and the same on 1, 2 and 3 ranks" sh -c '[ -n "$1" ] && [ "$1" = "$2" ] && [ "$1" = "$3" ]' - \
            "$(scores $name "$tmp/eval1")" "$(scores $name "$tmp/eval2")" "$(scores $name "$tmp/eval3")"
    done
done
"$bin/zlaunch" --num_gpus 2 "$bin/models/bert.so" --task tag --model_name_or_path "$tmp/tag" --eval_file "$tmp/tags.jsonl" \
    --per_device_eval_batch_size 4 --block_size 16 --output_dir "$tmp/results" >"$tmp/out" 2>&1
check "an evaluation alone leaves eval_results.json, with the metrics and the step" grep -q \
    "\"step\": *0,.*\"eval_loss\": *$(scores loss "$tmp/eval2"),.*\"eval_f1\": *$(scores f1 "$tmp/eval2")" "$tmp/results/eval_results.json"
check "perplexity is of language alone" test -z "$(scores perplexity "$tmp/eval1")"
bert 1 "$tmp/out" tag tags.jsonl --do_eval --eval_file "$tmp/tags.jsonl" --eval_steps 3 --metric_for_best_model perplexity
check "  and tells no best weights of a tagger" test "$?" -eq 2 -a -n "$(grep 'evaluations of this run have loss, accuracy' "$tmp/out")"
"$bin/zlaunch" --num_gpus 1 --log_format json "$bin/models/bert.so" --model bert-tiny --task tag --eval_file "$tmp/tags.jsonl" >"$tmp/out" 2>&1
check "  and bits per byte are not of tags" test -n "$(scores f1 "$tmp/out")" -a -z "$(scores bits_per_byte "$tmp/out")"

# rows without words, and words without tokens: all else counts once
printf '%s\n' '{"tokens": [], "ner_tags": []}' '{"tokens": ["w1", "", "w2"], "ner_tags": ["B-X", "O", "O"]}' \
    '{"tokens": ["w3"], "ner_tags": ["B-X"]}' >"$tmp/odd.jsonl"
sed -n '2,3p;1p' "$tmp/odd.jsonl" >"$tmp/last.jsonl"
sed -n '2,3p' "$tmp/odd.jsonl" >"$tmp/without.jsonl"
for rows in odd last without; do
    "$bin/zlaunch" --num_gpus 2 --log_format json "$bin/models/bert.so" --task tag --model_name_or_path "$tmp/tag" --eval_file \
        "$tmp/$rows.jsonl" --per_device_eval_batch_size 4 --block_size 16 >"$tmp/$rows" 2>&1
done
check "a row without words changes no metric" test -n "$(scores f1_macro "$tmp/without")" -a "$(evals "$tmp/odd")" = "$(evals "$tmp/without")" \
    -a "$(evals "$tmp/last")" = "$(evals "$tmp/without")"
check "each word counts, also one without tokens" test "$(scores tokens "$tmp/without")" = 4
"$bin/zlaunch" --num_gpus 1 "$bin/models/bert.so" --task tag --model_name_or_path "$tmp/tag" --test_file "$tmp/odd.jsonl" --block_size 16 \
    --output_dir "$tmp/odd.dir" >"$tmp/out" 2>&1
check "  and has a tag" test "$(grep -o '"[BO][^"]*"' "$tmp/odd.dir/predictions.jsonl" | wc -l)" = 4

# 8 evaluations; the best is known by its metric, and is what the run ends with
best() {
    local out=$1
    shift
    bert 2 "$out" classify classes.jsonl --do_eval --eval_file "$tmp/classes.jsonl" --max_steps 40 --eval_steps 5 \
        --learning_rate 1e-2 --lr_scheduler_type constant --output_dir "$out.dir" "$@"
}
check "a run ends with its best weights" best "$tmp/best" --metric_for_best_model eval_accuracy --load_best_model_at_end
most=$(scores accuracy "$tmp/best" | sort -g | tail -n 1)
"$bin/zlaunch" --num_gpus 1 --log_format json "$bin/models/bert.so" --task classify --model_name_or_path "$tmp/best.dir" \
    --eval_file "$tmp/classes.jsonl" --block_size 16 >"$tmp/again" 2>&1
check "  whose accuracy is the largest of all" test "$(scores accuracy "$tmp/again")" = "$most"
# result NAME FOLDER: of eval_results.json
result() { sed -n "s/.*\"$1\": *\([^,}]*\).*/\1/p" "$2/eval_results.json"; }
check "  and is in eval_results.json" test "$(result eval_accuracy "$tmp/best.dir")" = "$most"
best "$tmp/steps" --metric_for_best_model accuracy --load_best_model_at_end --save_steps 5
check "  also where every evaluation is saved" cmp -s "$tmp/best.dir/model.safetensors" "$tmp/steps.dir/model.safetensors"
best "$tmp/second" --metric_for_best_model loss --greater_is_better --load_best_model_at_end --save_steps 10
most=$(evals "$tmp/second" | grep '"step":[0-9]*0,' | sed -n 's/.*"loss":\([^,}]*\).*/\1/p' | sort -g | tail -n 1)
check "  where every other evaluation is saved, the best of those" test "$(result eval_loss "$tmp/second.dir")" = "$most"
step=$(result step "$tmp/second.dir")
for steps in 42 40; do # on from step 40: a worse end, and nothing to do
    rm -f "$tmp/second.dir/eval_results.json"
    check "  it stays the best of a run that goes on for $((steps - 40)) steps" best "$tmp/second" --metric_for_best_model loss \
        --greater_is_better --load_best_model_at_end --save_steps 10 --max_steps $steps --resume_from_checkpoint "$tmp/second.dir/checkpoint-40"
    check "  whose results are of those weights" test "$(result step "$tmp/second.dir") $(result eval_loss "$tmp/second.dir")" = "$step $most"
done

# what of an earlier run counts in one that goes on from step 40; there step 10, or 20, ..., had the largest loss
onward() { # onward NAME ARGS...: for 10 steps, in a copy of that run's folder
    local out=$tmp/$1
    shift
    rm -rf "$out.dir" && cp -r "$tmp/second.dir" "$out.dir" && rm -rf "$out.dir/model.safetensors" "$out.dir"/checkpoint-4[!0]
    best "$out" --metric_for_best_model loss --greater_is_better --load_best_model_at_end --save_steps 10 --max_steps 50 \
        --resume_from_checkpoint auto "$@"
}
says() { tr -d '\\' <"$tmp/$1" | grep -qF -- "$2"; } # says NAME WORDS
first="evaluations up to step 40 do not count for"
check "on other evaluation data no earlier evaluation counts" onward others --max_eval_samples 20
check "  which is said" says others "$first which is the best: they were of other evaluation data"
check "  and the best is one of those that count" test "$(result step "$tmp/others.dir")" = 50
onward fewer --eval_batches 2
check "  nor on other rows of them" says fewer "$first which is the best: they were of other evaluation data"
onward smooth --label_smoothing_factor 0.5
check "  nor of a loss that is smoothed otherwise" says smooth "$first which is the best: --label_smoothing_factor was 0 for them, and is 0.5 now"
onward metric --metric_for_best_model accuracy
check "of another metric none counts" says metric "$first which is the best: the best of them is known by loss, not by accuracy"
onward way --greater_is_better false
check "  nor the other way up" says way "$first which is the best: the best of them is the one with the greatest loss, now it is the smallest"
onward metric --metric_for_best_model accuracy --learning_rate 0.5 --max_steps 60
check "  the best is called that of those behind it" says metric "whose accuracy was the best after step 40: "
bert 2 "$tmp/metric" classify classes.jsonl --do_eval --eval_file "$tmp/classes.jsonl" --max_steps 65 --eval_steps 5 --output_dir "$tmp/metric.dir" \
    --learning_rate 0.5 --lr_scheduler_type constant --metric_for_best_model accuracy --load_best_model_at_end --resume_from_checkpoint auto --save_steps 5
check "  by the next run as well" sh -c '! grep -q "do not count" "$1" && grep -q "the best after step 40: " "$1"' - "$tmp/metric"
check "under eval_ it is the same metric" onward same --metric_for_best_model eval_loss
check "  on the same data: all count" sh -c '! grep -q "do not count" "$1" && grep -q "of step $2, whose loss was the best: " "$1"' - "$tmp/same" "$step"

# which tokens are masked is part of the data
masked() { bert 1 "$tmp/masked" masked_lm lines.txt --do_eval --eval_file "$tmp/lines.txt" --eval_steps 5 --save_steps 5 --load_best_model_at_end \
    --output_dir "$tmp/masked.dir" "$@"; }
masked --max_steps 5
rm "$tmp/masked.dir/model.safetensors"
masked --max_steps 10 --resume_from_checkpoint auto
check "masked as before evaluations count" sh -c '! grep -q "do not count" "$1"' - "$tmp/masked"
rm "$tmp/masked.dir/model.safetensors"
masked --max_steps 15 --resume_from_checkpoint auto --mlm_probability 0.5
check "  with other masks they do not" grep -q "up to step 10 do not count for which is the best: they were of other evaluation data" "$tmp/masked"

# into another folder: its best is found beside the checkpoint, and by the run after that too
rm -rf "$tmp/moved.dir"
goes_on() { # goes_on NAME STEPS FROM ARGS...
    local out=$tmp/$1 steps=$2 from=$3
    shift 3
    best "$out" --metric_for_best_model loss --greater_is_better --load_best_model_at_end --save_steps 10 --max_steps "$steps" \
        --resume_from_checkpoint "$from" "$@"
}
check "the best of an earlier run in another folder" goes_on moved 50 "$tmp/second.dir/checkpoint-40"
check "  is what it ends with" cmp "$tmp/moved.dir/model.safetensors" "$tmp/second.dir/model.safetensors"
rm "$tmp/moved.dir/model.safetensors"
check "  and what a run after that ends with" goes_on moved 60 auto
check "  which is the same" cmp "$tmp/moved.dir/model.safetensors" "$tmp/second.dir/model.safetensors"
rm -rf "$tmp/part.dir" "$tmp/lone.dir" && mkdir "$tmp/part.dir" && cp -r "$tmp/second.dir/checkpoint-40" "$tmp/part.dir"
check "a best that is nowhere is no reason to fail" goes_on lone 50 "$tmp/part.dir/checkpoint-40"
check "  it is missed at the start" says lone "$first --load_best_model_at_end: the best of them, of step $step, has no checkpoint to load ($tmp/part.dir/checkpoint-$step: "
check "  and not the best" test "$(result step "$tmp/lone.dir")" = 50 -a -f "$tmp/lone.dir/model.safetensors"
onward damaged --max_steps 40 # nothing to do: it comes to the end at once
rm "$tmp/damaged.dir/model.safetensors"
for shard in "$tmp/damaged.dir/checkpoint-$step"/global_step*/zero_rank_*.safetensors; do
    printf 'damaged' | dd of="$shard" bs=1 seek=$(($(wc -c <"$shard") / 4)) conv=notrunc 2>/dev/null
done
check "a best that turns out to be damaged" goes_on damaged 50 auto
check "  leaves the last weights, and that is said" says damaged "the weights are those of step 50, the last, and not of step $step, whose loss was the best: "
check "  by the file and the tensor" sh -c 'grep "the last, and not of step" "$1" | grep -q "zero_rank_0000[01].safetensors: damaged: weights of .* does not match"' - "$tmp/damaged"
check "  and its results are of them" test "$(result step "$tmp/damaged.dir")" = 50 -a -f "$tmp/damaged.dir/model.safetensors"
bert 2 "$tmp/last" classify classes.jsonl --max_steps 50 --learning_rate 1e-2 --lr_scheduler_type constant --output_dir "$tmp/last.dir"
check "  none of them is of the damaged one" cmp "$tmp/damaged.dir/model.safetensors" "$tmp/last.dir/model.safetensors"

check "patience ends a run" best "$tmp/early" --metric_for_best_model loss --greater_is_better --early_stopping_patience 2 --save_strategy best
check "  after two evaluations that are no better" test "$(scores loss "$tmp/early" | wc -l)" -eq \
    "$(scores loss "$tmp/early" | awk '{ if (NR == 1 || $1 > most) { most = $1; since = 0 } else since++ } since == 2 { print NR; exit }')"
rare() { best "$1" --metric_for_best_model loss --greater_is_better --early_stopping_patience 2 --load_best_model_at_end --save_steps 10 "${@:2}"; }
check "patience compares with evaluations that are not saved, too" rare "$tmp/rare"
check "  and ends at the same step" test "$(scores loss "$tmp/rare")" = "$(scores loss "$tmp/early")"
cut=$((5 * ($(scores loss "$tmp/early" | wc -l) - 1)))
check "  after a resumption as well" rare "$tmp/cut" --max_steps $cut
rm "$tmp/cut.dir/model.safetensors"
rare "$tmp/cut" --resume_from_checkpoint auto
check "  with one evaluation more" grep -q "step $((cut + 5)) is the last: 2 evaluations in a row were no better than that of step 5 " "$tmp/cut"
check "  and the last step has been evaluated" grep -q 'is the last: 2 evaluations in a row' "$tmp/early" "$tmp/early.err"
check "and one that saves" best "$tmp/early.saved" --metric_for_best_model loss --greater_is_better --early_stopping_patience 1 --save_steps 5
check "  says how many steps it was asked for" test "$(cat "$tmp/early.saved.dir"/checkpoint-*/trainer_state.json | grep max_steps | sort -u | tr -d ' ,')" = '"max_steps":40'
check "  and the batch of a rank, as Trainer does" grep -q '"train_batch_size": 4' "$tmp/early.saved.dir"/checkpoint-5/trainer_state.json

# at the end of each epoch, as Trainer's scripts ask for it
check "evaluated and saved at the end of each epoch" bert 2 "$tmp/epochs" classify classes.jsonl --eval_file "$tmp/classes.jsonl" \
    --max_steps 20 --eval_strategy epoch --save_strategy epoch --load_best_model_at_end --output_dir "$tmp/epochs.dir"
sed -n 's/.*"event":"eval".*"step":\([0-9]*\).*/\1/p' "$tmp/epochs" >"$tmp/evaluated"
find "$tmp/epochs.dir" -name 'checkpoint-*' | sed 's/.*-//' | sort -n >"$tmp/saved"
check "  two epochs and the end, at the same steps" sh -c '[ "$(wc -l <"$1")" -eq 3 ] && cmp "$1" "$2"' - "$tmp/evaluated" "$tmp/saved"

# of labels that are all alike nothing correlates: no evaluation is the best
awk -F'\t' -v OFS='\t' 'NR > 1 { $3 = 1 } 1' "$tmp/numbers.tsv" >"$tmp/alike.tsv"
check "a metric that is no number" bert 2 "$tmp/alike" regress numbers.tsv --do_eval --eval_file "$tmp/alike.tsv" --eval_steps 2 --save_steps 2 \
    --metric_for_best_model pearson --greater_is_better --load_best_model_at_end --output_dir "$tmp/alike.dir"
check "  chooses no weights" says alike "the weights are those of step 6, the last: no evaluation had a finite pearson"
check "  the results are of the last step" test "$(result step "$tmp/alike.dir")" = 6
check "  ends early" bert 1 "$tmp/alike.early" regress numbers.tsv --do_eval --eval_file "$tmp/alike.tsv" --eval_steps 2 --metric_for_best_model pearson \
    --early_stopping_patience 1
check "    and says why" says alike.early "step 4 is the last: no evaluation up to it had a finite pearson (--early_stopping_patience)"

refused() { # refused WORDS ARGS...
    local words=$1
    shift
    rm -rf "$tmp/refused.dir"
    best "$tmp/refused" "$@"
    [ $? -eq 2 ] && tr -d '\\' <"$tmp/refused" | grep -qF -- "$words" && return
    cut -c1-300 "$tmp/refused" | sed "s/^/# /"
    return 1
}
check "a metric that evaluations do not have is refused" refused 'have loss, accuracy, f1_macro, matthews_correlation' --metric_for_best_model bleu
check "what is not saved cannot be loaded" refused '--save_steps a multiple or a divisor of --eval_steps' --load_best_model_at_end --save_steps 12
check "steps of evaluations that nothing asks for" refused 'nothing is evaluated on the way: add --do_eval' --early_stopping_patience 1 --do_eval false
check "without evaluations nothing is the best" refused 'nothing is evaluated on the way' --early_stopping_patience 1 --eval_steps 0
finish
