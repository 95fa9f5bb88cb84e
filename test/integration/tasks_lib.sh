# tasks_lib.sh -- what the tests of --task share: small data of each kind in $tmp, a tokenizer of
# BERT's kind, and bert(). Source it in the place of train_lib.sh.
# shellcheck shell=bash
. "$(dirname "$0")/train_lib.sh"
tok=$tmp/tok
mkdir -p "$tok"
{
    printf '%s\n' '[PAD]' '[UNK]' '[CLS]' '[SEP]' '[MASK]'
    seq 0 59 | sed s/^/w/
    printf '##%s\n' a b c
} >"$tok/vocab.txt"
echo '{"tokenizer_class": "BertTokenizer", "mask_token": "[MASK]"}' >"$tok/tokenizer_config.json"

# 60 rows: classes by the first word, pairs with a number, words with tags, lines of text
awk -v dir="$tmp" 'BEGIN {
    srand(3)
    split("red green blue", color, " ")
    print "sentence1\tsentence2\tscore" >(dir "/numbers.tsv")
    for (i = 0; i < 60; i++) {
        k = i % 3; text = words = tags = ""
        for (n = 2 + int(rand() * 9); n > 0; n--) {
            w = k + 3 * int(rand() * 20)
            text = text (text ? " " : "") "w" w
            words = words (words ? ", " : "") "\"w" w (rand() < 0.3 ? "ab" : "") "\""
            tags = tags (tags ? ", " : "") "\"" (w % 2 ? "B-X" : "O") "\""
        }
        printf "{\"text\": \"%s\", \"label\": \"%s\"}\n", text, color[k + 1] >(dir "/classes.jsonl")
        printf "%s\tw%d w%d\t%g\n", text, k, i, k / 2 - 0.25 >(dir "/numbers.tsv")
        printf "{\"tokens\": [%s], \"ner_tags\": [%s]}\n", words, tags >(dir "/tags.jsonl")
        print text >(dir "/lines.txt")
    }
}'

# bert RANKS OUT TASK FILE ARGS...: a tiny BERT, 6 steps of 8 rows, JSON events to OUT
bert() {
    local ranks=$1 out=$2 task=$3 file=$4
    shift 4
    "$bin/zlaunch" --num_gpus "$ranks" --log_format json "$bin/models/bert.so" --task "$task" \
        --train_file "$tmp/$file" --tokenizer_name "$tok" --hidden_size 32 --num_hidden_layers 2 \
        --num_attention_heads 2 --intermediate_size 64 --max_position_embeddings 32 --block_size 16 \
        --do_train --max_steps 6 --logging_steps 1 --fingerprint_steps 1 --seed 7 --learning_rate 3e-3 \
        --max_grad_norm 0 --per_device_train_batch_size $((8 / ranks)) "$@" >"$out" 2>"$out.err"
}
