#!/bin/bash
# zckpt and zero_to_fp32 on weights that a training has left: forms, comparisons, refusals, and that they
# need none of what training needs. Checkpoints of DeepSpeed are in test/unit/tools and test/peers.
. "$(dirname "$0")/train_lib.sh"
corpus >"$tmp/path"
train 1 "$tmp/log" --max_steps 1 --block_size 16 --n_embd 32 --per_device_train_batch_size 2 --output_dir "$tmp/hf"
check "a model is trained" test -f "$tmp/hf/model.safetensors"

has() { grep -q -- "$2" "$1"; }
run() { # run NAME WANTED_CODE COMMAND...
    local name=$1 want=$2
    shift 2
    "$@" >"$tmp/out" 2>"$tmp/err"
    local code=$?
    [ "$code" = "$want" ] || sed 's/^/# /' "$tmp/out" "$tmp/err"
    check "$name" test "$code" = "$want"
}
zckpt=$bin/zckpt

run "ls lists tensors" 0 "$zckpt" ls "$tmp/hf"
check "  with shapes" has "$tmp/out" 'h.1.mlp.c_fc.weight.*\[32, 128\]'
run "weights become pytorch_model.bin" 0 "$zckpt" convert "$tmp/hf" "$tmp/bin" --to pickle --max_shard_size 40KB
for to in pickle safetensors; do
    run "a folder of $to is made with its parents" 0 "$zckpt" convert "$tmp/hf" "$tmp/new/deep/$to" --to "$to"
done
check "  in shards" test -f "$tmp/bin/pytorch_model.bin.index.json"
check "  with their config.json" cmp -s "$tmp/hf/config.json" "$tmp/bin/config.json"
run "zero_to_fp32 reads them back into one file" 0 "$bin/zero_to_fp32" "$tmp/bin" "$tmp/one.safetensors"
run "nothing is lost on the way" 0 "$zckpt" diff "$tmp/hf" "$tmp/one.safetensors"
run "  into one of torch.save's form too" 0 "$bin/zero_to_fp32" "$tmp/bin" "$tmp/one.bin"
for end in pt pth PT; do
    run "  by whatever ending that has: .$end" 0 "$bin/zero_to_fp32" "$tmp/bin" "$tmp/one.$end"
    check "  which is a file" cmp "$tmp/one.bin" "$tmp/one.$end"
    run "  and by zckpt" 0 "$zckpt" convert "$tmp/hf" "$tmp/two.$end"
    check "  as well" cmp "$tmp/one.bin" "$tmp/two.$end"
    run "  that is not cut" 2 "$zckpt" convert "$tmp/hf" "$tmp/none.$end" --max_shard_size 40KB
    run "  nor of another form" 2 "$zckpt" convert "$tmp/hf" "$tmp/none.$end" --to safetensors
done
no_file() { # NAME WORDS COMMAND...: refused, and nothing is made
    local name=$1 words=$2
    shift 2
    ! "$@" "$tmp/none.$name" >"$tmp/out" 2>"$tmp/err" && grep -qF "$tmp/none.$name: $words" "$tmp/err" && test ! -e "$tmp/none.$name"
}
for end in onnx h5 npz tar.gz; do
    check "files of .$end are not written" no_file $end "files of this form (.${end##*.}) are not written; those that end in .safetensors, .bin" \
        "$zckpt" convert "$tmp/hf"
    check "  nor by zero_to_fp32" no_file $end "files of this form" "$bin/zero_to_fp32" "$tmp/hf"
done
check "  nor GGUF" no_file gguf "zckpt convert writes .gguf files" "$bin/zero_to_fp32" "$tmp/hf"
run "  a folder may have any name" 0 "$zckpt" convert "$tmp/hf" "$tmp/any.onnx/"
check "  as it is one by its slash" test -s "$tmp/any.onnx/model.safetensors"
train 1 "$tmp/log" --max_steps 1 --block_size 16 --per_device_train_batch_size 2 --model_name_or_path "$tmp/bin" --output_dir "$tmp/next"
check "training starts from pytorch_model.bin" test -f "$tmp/next/model.safetensors"
run "one step makes a difference" 1 "$zckpt" diff "$tmp/hf" "$tmp/next"
check "  which is counted" has "$tmp/out" 'elements differ, by up to'
run "but none of 1" 0 "$zckpt" diff "$tmp/hf" "$tmp/next" --tolerance 1
# types that are not read as floats: nothing is said of their numbers that is not known
# stored TYPE BYTES FILL: a file with `x` of two elements, as $tmp/TYPE.FILL.safetensors
stored() {
    local head="{\"x\":{\"dtype\":\"$1\",\"shape\":[2],\"data_offsets\":[0,$2]}}"
    printf '%b%s%s' "\\x$(printf %x ${#head})\\0\\0\\0\\0\\0\\0\\0" "$head" "$(printf "%$2s" | tr ' ' "$3")" >"$tmp/$1.$3.safetensors"
}
for type in "F64 16" "F8_E4M3 2" "I64 16"; do
    read -r type size <<<"$type"
    stored "$type" "$size" A && stored "$type" "$size" B
    run "$type of the same bytes" 0 "$zckpt" diff "$tmp/$type.A.safetensors" "$tmp/$type.A.safetensors"
    check "  is alike" has "$tmp/out" '^1 tensors alike, 0 differ'
    run "  of others" 1 "$zckpt" diff "$tmp/$type.A.safetensors" "$tmp/$type.B.safetensors"
    check "  is not" has "$tmp/out" "^x: stored as $type and $type, with other bytes"
done
run "of numbers that are not read nobody says that they are finite" 78 "$zckpt" verify "$tmp/F64.A.safetensors"
check "  and what they are is said" has "$tmp/err" 'x is stored as F64, which is not read'
run "  by ls too" 0 "$zckpt" ls "$tmp/F64.A.safetensors"
check "  " has "$tmp/out" 'x .* F64 .*(not read)'
run "  nor are they left out" 65 "$zckpt" convert "$tmp/F64.A.safetensors" "$tmp/F32.B.safetensors"
check "    which is said" has "$tmp/err" 'x is stored as F64, which is not read; save it as float32'
check "    and nothing is written" test ! -e "$tmp/F32.B.safetensors"
stored F32 8 z
run "  nor the second of a mean" 65 "$zckpt" average "$tmp/F32.B.safetensors" "$tmp/F32.z.safetensors" "$tmp/F64.A.safetensors"
check "    which is said" has "$tmp/err" 'x is stored as F64, which is not read; save it as float32'
run "integers are whole" 0 "$zckpt" verify "$tmp/I64.A.safetensors"
run "  of which there is a mean where they are the same" 0 "$zckpt" average "$tmp/I64.mean.safetensors" "$tmp/I64.A.safetensors" "$tmp/I64.A.safetensors"
stored I64 16 x && sed 's/"x"/"y"/' "$tmp/I64.x.safetensors" >"$tmp/named.safetensors"
run "  where one model has not" 0 "$zckpt" average "$tmp/I64.one.safetensors" "$tmp/I64.A.safetensors" "$tmp/named.safetensors"
check "    what the first has" has "$tmp/err" 'named.safetensors: has no x, of whole numbers, as .*A.safetensors has; it is kept'
check "    or another" has "$tmp/err" 'A.safetensors: has no y, of whole numbers, as .*named.safetensors has; it is left out'
stored F32 8 A
for pair in "F32 I64" "I64 F32"; do
    read -r one other <<<"$pair"
    run "  of $one beside $other" 65 "$zckpt" average "$tmp/none.safetensors" "$tmp/$one.A.safetensors" "$tmp/$other.A.safetensors"
done
run "  and none of others" 65 "$zckpt" average "$tmp/I64.none.safetensors" "$tmp/I64.A.safetensors" "$tmp/I64.B.safetensors"
check "    which is said" has "$tmp/err" 'B.safetensors: x holds other whole numbers than in .*A.safetensors; of these there is no mean'
stored F32 8 z # 3.25e35
for to in f16.safetensors f16.bin f32.safetensors bf16.safetensors; do
    run "a number that ${to%.*} has not, or has" 0 "$zckpt" convert "$tmp/F32.z.safetensors" "$tmp/z.$to" --dtype "${to%.*}"
    case $to in
    f16*) check "  is told" has "$tmp/err" "z.$to: x has numbers that are too large for f16: they are infinite there" ;;
    *) check "  is no news" test ! -s "$tmp/err" ;;
    esac
done
f32() { # f32 NAME BYTES: two of F32, as octal bytes
    local head='{"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'
    printf '%b%s%b' "\\x$(printf %x ${#head})\\0\\0\\0\\0\\0\\0\\0" "$head" "$2" >"$tmp/$1.safetensors"
}
f32 lost '\0000\0000\0300\0177\0000\0000\0200\0077' # NaN, 1
f32 zeros '\0000\0000\0000\0000\0000\0000\0000\0000'
run "what is no number is the largest difference" 1 "$zckpt" diff "$tmp/lost.safetensors" "$tmp/zeros.safetensors"
check "  whatever comes behind it" has "$tmp/out" '^x: 2 of 2 elements differ, by up to nan$'
run "the mean of what is no number" 0 "$zckpt" average "$tmp/lost.mean" "$tmp/lost.safetensors" "$tmp/zeros.safetensors"
check "  is told" has "$tmp/err" 'lost.mean: x has numbers that are not finite'
run "the mean of two" 0 "$zckpt" average "$tmp/mean" "$tmp/hf" "$tmp/hf"
run "  of the same is that" 0 "$zckpt" diff "$tmp/hf" "$tmp/mean"
run "  nothing is replaced unasked" 73 "$zckpt" average "$tmp/mean" "$tmp/hf" "$tmp/hf"
run "  nor by a conversion" 73 "$zckpt" convert "$tmp/hf" "$tmp/mean"
run "  but when it is asked for" 0 "$zckpt" average "$tmp/mean" "$tmp/hf" "$tmp/hf" --overwrite
mkdir "$tmp/large" && cp "$tmp/hf"/* "$tmp/large"
(cat test/golden/tokenizer/tokenizer.json && head -c 3000000 /dev/zero | tr '\0' ' ') >"$tmp/large/tokenizer.json"
one_fails() { (trap '' XFSZ && ulimit -f 2000 && ! "$zckpt" convert "$tmp/large" "$tmp/again" >"$tmp/out" 2>"$tmp/err"); }
check "  nor where the first attempt failed" one_fails
run "  which the same command makes good" 0 "$zckpt" convert "$tmp/large" "$tmp/again"
check "  all of it" cmp "$tmp/large/tokenizer.json" "$tmp/again/tokenizer.json"
run "  and never what is read" 2 "$zckpt" average "$tmp/mean" "$tmp/hf" "$tmp/mean" --overwrite
run "  by whatever name" 2 "$zckpt" average "$tmp/mean" "$tmp/hf" "$tmp/mean/model.safetensors" --overwrite
check "  which is said" has "$tmp/err" "is to be written, and $tmp/mean/model.safetensors is read"
# transformers opens weights in the type that config.json says
cp -r "$tmp/hf" "$tmp/typed" && sed -i '1a "torch_dtype": "bfloat16",  "dtype" : "float16", "x": {"dtype": "auto"},' "$tmp/typed/config.json"
type_is() { [ "$(grep -o '"\(float32\|float16\|bfloat16\)"' "$1/config.json" | tr '\n' ' ')" = "\"$2\" \"$2\" " ]; }
for to in f32.float32 bf16.bfloat16 f16.float16; do
    run "weights in ${to%.*}" 0 "$zckpt" convert "$tmp/typed" "$tmp/typed.${to%.*}" --dtype "${to%.*}"
    check "  are said to be" type_is "$tmp/typed.${to%.*}" "${to#*.}"
done
run "and so are those of a mean" 0 "$zckpt" average "$tmp/typed.mean" "$tmp/typed" "$tmp/typed.f16"
check "  " type_is "$tmp/typed.mean" float32
check "  in a config.json that has nothing else" cmp -s <(sed 2d "$tmp/typed.mean/config.json") "$tmp/hf/config.json"
# whichever comes first, all have the same tensors
train 1 "$tmp/log" --max_steps 1 --block_size 16 --n_embd 32 --per_device_train_batch_size 2 --n_layer 3 --output_dir "$tmp/deep"
run "no mean with one that has more layers" 65 "$zckpt" average "$tmp/none" "$tmp/hf" "$tmp/deep"
check "  which is named" has "$tmp/err" "$tmp/hf: has no tensor .* of the shape that it has in $tmp/deep"
run "  nor the other way round" 65 "$zckpt" average "$tmp/none" "$tmp/deep" "$tmp/hf"
run "tied weights have two names in torch.save's form" 0 "$bin/zero_to_fp32" "$tmp/hf" "$tmp/tied"
for pair in "$tmp/hf $tmp/tied" "$tmp/tied $tmp/hf"; do
    # shellcheck disable=SC2086 # words
    run "  and are averaged with one" 0 "$zckpt" average "$tmp/none" $pair --overwrite
    run "  to what they are" 0 "$zckpt" diff "$tmp/none" "$tmp/hf"
done
train 1 "$tmp/log" --max_steps 1 --block_size 16 --n_embd 32 --per_device_train_batch_size 2 --n_head 4 --output_dir "$tmp/heads"
run "a mean over other heads" 0 "$zckpt" average "$tmp/none" "$tmp/hf" "$tmp/heads" --overwrite
check "  is said to be one" has "$tmp/err" "$tmp/heads: config.json has another n_head than that of $tmp/hf, which is taken"
cp -r "$tmp/hf" "$tmp/null" && cp -r "$tmp/hf" "$tmp/rope"
sed -i '1a "rope_scaling": null,' "$tmp/null/config.json" && sed -i '1a "rope_scaling": {"factor": 2},' "$tmp/rope/config.json"
run "  and over one stretched" 0 "$zckpt" average "$tmp/none" "$tmp/null" "$tmp/rope" --overwrite
check "  as well" has "$tmp/err" "$tmp/rope: config.json has another rope_scaling than that of $tmp/null, which is taken"
sed -i 's/"n_inner": [0-9]*/"n_inner": null/; s/"attn_pdrop": 0.0/"attn_pdrop": 0/' "$tmp/null/config.json"
run "  and null, which is what it has, is not" 0 "$zckpt" average "$tmp/none" "$tmp/hf" "$tmp/null" --overwrite
check "  " sh -c 'grep -q "n_inner.*null" "$1" && test ! -s "$2"' - "$tmp/null/config.json" "$tmp/err"
run "  and one of the same is not" 0 "$zckpt" average "$tmp/none" "$tmp/hf" "$tmp/hf" --overwrite
check "  " test ! -s "$tmp/err"
# one form over the other: what is read afterwards is what was written
only() { [ "$(cd "$1" && echo *model*)" = "$2" ]; }
for to in safetensors pickle; do
    run "$to over the other form" 0 "$zckpt" convert "$tmp/next" "$tmp/over" --to "$to" --overwrite
    run "  is what is there" 0 "$zckpt" diff "$tmp/next" "$tmp/over"
    run "  and refused as that" 73 "$zckpt" convert "$tmp/hf" "$tmp/over" --to pickle
    run "  in shards, too" 0 "$zckpt" convert "$tmp/hf" "$tmp/over" --to "$to" --overwrite --max_shard_size 40KB
    run "  is what is there then" 0 "$zckpt" diff "$tmp/hf" "$tmp/over"
done
run "the mean of two over pytorch_model.bin" 0 "$zckpt" average "$tmp/over" "$tmp/next" "$tmp/next" --overwrite
check "  is all that is there" only "$tmp/over" model.safetensors
run "zero_to_fp32 over safetensors" 0 "$bin/zero_to_fp32" "$tmp/hf" "$tmp/over"
check "  as well" only "$tmp/over" pytorch_model.bin
run "  in shards" 0 "$bin/zero_to_fp32" "$tmp/next" "$tmp/over" --safe_serialization --max_shard_size 40KB
run "  and back" 0 "$bin/zero_to_fp32" "$tmp/hf" "$tmp/over"
check "  no shard is left" only "$tmp/over" pytorch_model.bin
run "zero_to_fp32 replaces nothing that it reads" 2 "$bin/zero_to_fp32" "$tmp/over" "$tmp/over/"
for to in "$tmp/over" "$tmp/over/pytorch_model.bin"; do
    run "  nor does zckpt convert" 2 "$zckpt" convert "$tmp/over" "$to" --to pickle --overwrite
done
check "  which is said" has "$tmp/err" 'over/*pytorch_model.bin would be replaced, and belongs to what is read'
mapfile -t many < <(yes "$tmp/hf" | head -n 256)
run "of more than it takes none is passed over" 2 "$zckpt" average "$tmp/many" "${many[@]}"
check "  and how many that is is said" has "$tmp/err" "257 names; at most 256 are taken at once"
for type in f32 f16 bf16 q8_0; do
    run "GGUF in $type" 0 "$zckpt" convert "$tmp/hf" "$tmp/$type.gguf" --dtype "$type"
    check "  is one" test "$(head -c 4 "$tmp/$type.gguf")" = GGUF
    run "  which is not read" 65 "$zckpt" verify "$tmp/$type.gguf"
    check "  and is not called damaged" has "$tmp/err" "$type.gguf: is a GGUF file, a form that is written and not read"
done
cp -r "$tmp/hf" "$tmp/nan" && printf '\377\377\377\377' |
    dd of="$tmp/nan/model.safetensors" bs=1 seek=$((8 + $(od -An -tu8 -N8 "$tmp/nan/model.safetensors"))) conv=notrunc status=none
run "q8_0 of a number that it has not" 65 "$zckpt" convert "$tmp/nan" "$tmp/nan.gguf" --to gguf --dtype q8_0
check "  is none" has "$tmp/err" 'zckpt.*/nan: .* has the number nan, which q8_0 has not: write it with --dtype f32'
check "  of which nothing is written" test ! -e "$tmp/nan.gguf"
run "  but the other types have it" 0 "$zckpt" convert "$tmp/nan" "$tmp/nan.gguf" --to gguf --dtype f16
# what such a file cannot say
for of in mistral qwen2 qwen3; do
    run "GGUF of $of" 0 "$zckpt" convert test/golden/$of/model "$tmp/$of.gguf"
done
check "  without a window that is not there" test ! -s "$tmp/err"
for of in mistral qwen2; do
    "$zckpt" convert test/golden/$of/model "$tmp/$of.gguf" --overwrite >"$tmp/out" 2>"$tmp/err"
    check "  and the window of $of is told" has "$tmp/err" "its layers see the last 9 tokens (sliding_window), and those of a GGUF file of type .* see all"
done
cp -r test/golden/mistral/model "$tmp/unsaid" &&
    sed -i '/"sliding_window"/d; s/"max_position_embeddings": [0-9]*/"max_position_embeddings": 8192/' "$tmp/unsaid/config.json"
run "GGUF of a Mistral that does not say its window" 0 "$zckpt" convert "$tmp/unsaid" "$tmp/unsaid.gguf"
check "  has that which transformers takes" has "$tmp/err" "its layers see the last 4096 tokens (sliding_window)"
variant() { # FOLDER WORDS: the Mistral with other words in its config.json
    cp -r test/golden/mistral/model "$tmp/$1" && tr -d '\n' <test/golden/mistral/model/config.json |
        sed "s/\"rope_parameters\": {[^}]*}, */$2/" >"$tmp/$1/config.json"
}
linear='"rope_type": "linear", "factor": 2.0'
variant older "\"rope_theta\": 500.0, \"rope_scaling\": {$linear}, "
for of in within beside; do
    variant $of "\"rope_parameters\": null, \"rope_scaling\": {$linear, \"rope_theta\": 500.0}, "
done
variant newer "\"rope_parameters\": {$linear, \"rope_theta\": 500.0}, "
for of in older within newer; do
    run "GGUF of how heads are turned, the $of way" 0 "$zckpt" convert "$tmp/$of" "$tmp/$of.gguf"
    check "  is the same" cmp "$tmp/older.gguf" "$tmp/$of.gguf"
done
check "  and is linear" grep -qa rope.scaling.factor "$tmp/older.gguf"
sed -i 's/"rope_parameters": null/"rope_parameters": {"rope_type": "default"}/' "$tmp/beside/config.json"
run "  but one of two is none" 65 "$zckpt" convert "$tmp/beside" "$tmp/beside.gguf"
check "  which is said" has "$tmp/err" 'config.json has rope_parameters and rope_scaling, of which transformers reads the latter alone'
variant part "\"rope_scaling\": {\"rope_type\": \"default\", \"partial_rotary_factor\": 0.5}, "
run "no GGUF of heads that turn in part" 78 "$zckpt" convert "$tmp/part" "$tmp/part.gguf"
check "  which is said" has "$tmp/err" 'config.json has rope_scaling.partial_rotary_factor 0.5, which GGUF files of type llama cannot say'
rm -r "$tmp/part"
run "GGUF of rows that are no blocks" 0 "$zckpt" convert test/golden/mistral/model "$tmp/odd.gguf" --dtype q8_0
check "  which is said" has "$tmp/out" '21 tensors in q8_0 ([0-9]* in f16: their rows are no multiple of 32), of type llama'
variant onehead "" && sed -i 's/"tie_word_embeddings": false/"tie_word_embeddings": true/' "$tmp/onehead/config.json"
run "no GGUF without a head that is not the embedding" 65 "$zckpt" convert "$tmp/onehead" "$tmp/onehead.gguf"
check "  which is said" has "$tmp/err" 'lm_head.weight is not the same as model.embed_tokens.weight, as its config.json says'
cp -r test/golden/qwen3/model "$tmp/narrow" && sed -i '/"head_dim"/d' "$tmp/narrow/config.json"
run "no GGUF of heads of another width" 65 "$zckpt" convert "$tmp/narrow" "$tmp/narrow.gguf"
check "  which is said" has "$tmp/err" '[qk]_proj.weight has [0-9]* rows where config.json says'
cp -r "$tmp/hf" "$tmp/exact"
sed -i 's/"activation_function": "[a-z_]*"/"activation_function": "gelu"/' "$tmp/exact/config.json"
run "no GGUF of another function" 78 "$zckpt" convert "$tmp/exact" "$tmp/exact.gguf"
check "  which is named" has "$tmp/err" "config.json has activation_function gelu, which GGUF files of type gpt2 cannot say"
check "  and nothing is written" test ! -e "$tmp/exact.gguf"
run "weights in shards" 0 "$zckpt" convert "$tmp/hf" "$tmp/shards" --max_shard_size 40KB
shard=$(ls "$tmp/shards"/model-00001-of-*) && cp -r "$tmp/shards" "$tmp/shards.before"
run "  are not replaced by one of them" 2 "$zckpt" convert "$shard" "$tmp/shards" --overwrite
check "  which is said" has "$tmp/err" 'model-00001-of-.* would be replaced, and belongs to what is read: name another place'
run "  nor by zero_to_fp32" 2 "$bin/zero_to_fp32" "$shard" "$tmp/shards"
run "  nor is one by all of them" 2 "$bin/zero_to_fp32" "$tmp/shards" "$shard"
check "  all of them are there" diff -r "$tmp/shards.before" "$tmp/shards"
run "no GGUF of one of them" 65 "$zckpt" convert "$tmp/shards"/model-00001-of-*.safetensors "$tmp/part.gguf"
check "  which lacks some" has "$tmp/err" 'has [01] tensors .*, and a model of its config.json has [12]: it is not whole'
cp -r "$tmp/hf" "$tmp/more" && sed -i 's/"n_layer": 2/"n_layer": 3/' "$tmp/more/config.json"
run "  nor of a layer less than config.json says" 65 "$zckpt" convert "$tmp/more" "$tmp/part.gguf"
check "  and nothing is written" test ! -e "$tmp/part.gguf"
run "  but of all of them" 0 "$zckpt" convert "$tmp/shards" "$tmp/shards.gguf"
check "  and smaller" test "$(stat -c %s "$tmp/q8_0.gguf")" -lt "$(stat -c %s "$tmp/f16.gguf")"
run "weights are verified" 0 "$zckpt" verify "$tmp/bin"

train 1 "$tmp/log" --max_steps 4 --block_size 16 --per_device_train_batch_size 2 --save_steps 2 --output_dir "$tmp/run"
a=$tmp/run/checkpoint-2
run "zero_to_fp32 lies in a checkpoint" 0 "$a/zero_to_fp32" "$a" "$tmp/two.bin"
cp "$tmp/out" "$tmp/out.fp32"
run "  and writes what is in it" 0 "$zckpt" diff "$a" "$tmp/two.bin"
# the output head is the embedding: a name more, where a form of files can say that
run "a tied weight has both names in a checkpoint" 0 "$zckpt" ls "$a"
check "  one is the other" has "$tmp/out" '^ *lm_head\.weight .* = transformer\.wte\.weight'
run "  pytorch_model.bin has both, as DeepSpeed's script writes it" 0 "$zckpt" ls "$tmp/two.bin"
check "  of the same shape" test "$(grep -cE '(lm_head|wte)\.weight .*\[257, 32\]' "$tmp/out")" = 2
check "  once on the disk" test "$(stat -c %s "$tmp/two.bin")" -lt "$(($(stat -c %s "$a"/global_step2/zero_rank_00000.safetensors) / 3 + 20000))"
check "  which is said" has "$tmp/out.fp32" '29 tensors in fp32, 1 of them a second name of tied weights (lm_head.weight is transformer.wte.weight)'
run "a folder" 0 "$a/zero_to_fp32" "$a" "$tmp/whole"
check "  has the config.json of the checkpoint" cmp "$a/config.json" "$tmp/whole/config.json"
run "safetensors" 0 "$a/zero_to_fp32" "$a" "$tmp/two.safetensors"
run "  are the same" 0 "$zckpt" diff "$a" "$tmp/two.safetensors"
run "a checkpoint is no folder of some" 2 "$zckpt" prune "$a" --keep 1
check "  which is said" has "$tmp/err" 'that is one checkpoint; name the folder that it is in'
run "  with the owner's name alone, as Hugging Face's" 0 "$zckpt" ls "$tmp/two.safetensors"
check "  which is that" sh -c "grep -q wte.weight '$tmp/out' && ! grep -q lm_head '$tmp/out'"
for pair in "$tmp/two.bin $tmp/two.safetensors" "$tmp/two.safetensors $tmp/two.bin" "$tmp/two.bin $tmp/whole" "$a $tmp/two.safetensors"; do
    # shellcheck disable=SC2086 # two words
    run "  a second name is no difference" 0 "$zckpt" diff $pair
    check "  of ${pair##*/}" has "$tmp/out" '2[89] tensors alike, 0 differ'
done
# what one side has not got is no likeness
train 1 "$tmp/log" --max_steps 1 --block_size 16 --per_device_train_batch_size 2 --save_steps 1 --lora_r 2 --model_name_or_path "$tmp/hf" --output_dir "$tmp/lora"
cp -r "$tmp/lora" "$tmp/scaled" && sed -i 's/"lora_alpha": [0-9]*/"lora_alpha": 99/' "$tmp/scaled/adapter_config.json"
run "a mean of adapters" 0 "$zckpt" average "$tmp/lora.safetensors" "$tmp/lora" "$tmp/lora/checkpoint-1"
check "  of one scale" sh -c '! grep adapter_config "$1"' - "$tmp/err"
run "  or not" 0 "$zckpt" average "$tmp/lora.safetensors" "$tmp/lora" "$tmp/scaled" --overwrite
check "  is said to be one" has "$tmp/err" "$tmp/scaled: adapter_config.json has another lora_alpha than that of $tmp/lora: their mean is of numbers that do not count alike"
for kind in value exp_avg; do
    for pair in "$a $tmp/lora/checkpoint-1" "$tmp/lora/checkpoint-1 $a"; do
        # shellcheck disable=SC2086 # two words
        run "the $kind of a model, and of adapters beside it" 1 "$zckpt" diff $pair --kind "$kind"
        check "  has nothing in common" has "$tmp/out" '^0 tensors alike, 4[45] differ'
        check "  " has "$tmp/out" "^only in $a: transformer.wte.weight"
    done
done
run "the mean of two checkpoints" 0 "$zckpt" average "$tmp/mean.bin" "$a" "$tmp/two.safetensors"
run "  has it, too" 0 "$zckpt" diff "$tmp/two.bin" "$tmp/mean.bin"
run "a tag that is not there" 66 "$zckpt" ls -t global_step9 "$a"
check "  and which one is" has "$tmp/err" 'checkpoint-2: has a checkpoint of zlaunch with the tag global_step2, and none with the tag global_step9'
run "  of a folder that is a tag" 66 "$zckpt" ls -t global_step9 "$a/global_step2"
check "  which is said" has "$tmp/err" 'is the folder of a tag itself'
run "  of an output folder" 66 "$zckpt" ls -t global_step3 "$tmp/run"
check "  whose newest is named" has "$tmp/err" 'name it, as .*/run/checkpoint-4'
run "a checkpoint of the folder by its name" 0 "$zckpt" ls "$tmp/run" -t checkpoint-2
check "  is that one" has "$tmp/out" '^tag global_step2, step 2'
run "  by the tag in it" 0 "$zckpt" ls "$tmp/run" -t global_step2
check "  is that one" has "$tmp/out" '^tag global_step2, step 2'
run "  of weights" 66 "$zckpt" ls -t global_step2 "$tmp/hf"
check "  which have none" has "$tmp/err" 'hf: no checkpoint here under the tag global_step2'
cp -r "$a" "$tmp/nameless" && rm "$tmp/nameless/latest"
run "a checkpoint that has lost its name is not taken for a folder of weights" 66 "$zckpt" verify "$tmp/nameless"
check "  and is named" has "$tmp/err" 'name the folder .*/nameless/global_step2'
printf global_step2 >"$tmp/nameless/latest" && rm "$tmp/nameless/global_step2/manifest.json"
run "  nor is one without a manifest" 65 "$zckpt" verify "$tmp/nameless"
check "  which is said" has "$tmp/err" 'global_step2/manifest.json is missing'
mkdir "$tmp/outputs" && cp -r "$a" "$tmp/outputs/checkpoint-2"
run "a folder that has checkpoints alone is none" 66 "$zckpt" verify "$tmp/outputs"
check "  and the newest is named" has "$tmp/err" 'name it, as .*/outputs/checkpoint-2'
# what may not be read is not called missing
chmod 755 "$tmp"
if [ "$(id -u)" -eq 0 ] && setpriv --reuid 65534 --regid 65534 --clear-groups "$zckpt" ls "$tmp/hf" >/dev/null 2>&1; then
    cp -r "$a" "$tmp/locked"
    for what in . global_step2 latest global_step2/manifest.json; do
        chmod 755 "$tmp/locked" "$tmp/locked/global_step2" && chmod 644 "$tmp/locked/latest" "$tmp/locked/global_step2/manifest.json"
        chmod go= "$tmp/locked/$what"
        setpriv --reuid 65534 --regid 65534 --clear-groups "$zckpt" verify "$tmp/locked" >"$tmp/out" 2>"$tmp/err"
        check "$what of a checkpoint that may not be read: Permission denied" has "$tmp/err" 'Permission denied'
    done
    mkdir -m 777 "$tmp/open" && cp -r "$tmp/hf" "$tmp/closed" && : >"$tmp/closed/vocab.json"
    for what in config.json vocab.json; do
        chmod 644 "$tmp/closed"/*.json && chmod 0 "$tmp/closed/$what"
        run "$what that may not be read is not left out" 66 setpriv --reuid 65534 --regid 65534 --clear-groups "$zckpt" convert "$tmp/closed" "$tmp/open/model"
        check "  and is named" has "$tmp/err" "closed/$what: Permission denied"
        check "  before anything is written" test ! -e "$tmp/open/model"
    done
else
    echo "skip - no other user can read what is tested here"
fi
# a checkpoint keeps its config.json: another would make it useless
keeps() { # keeps NAME COMMAND...: which would write $tmp/wide, another model, into a checkpoint
    rm -rf "$tmp/kept" && cp -r "$a" "$tmp/kept"
    run "$1 into a checkpoint of another model" 73 "${@:2}"
    check "  which is said" has "$tmp/err" 'kept: is a checkpoint, and its config.json is not that of these weights.*: name another folder'
    run "  it is whole" 0 "$zckpt" verify "$tmp/kept"
    check "  and nothing came into it" diff -r "$a" "$tmp/kept"
}
train 1 "$tmp/log" --max_steps 1 --block_size 16 --n_embd 64 --per_device_train_batch_size 2 --save_strategy steps --save_steps 1 --output_dir "$tmp/wide"
for to in safetensors pickle; do
    keeps "$to" "$zckpt" convert "$tmp/wide" "$tmp/kept" --to "$to"
    keeps "$to with --overwrite" "$zckpt" convert "$tmp/wide" "$tmp/kept" --to "$to" --overwrite
done
mkdir "$tmp/bare" && cp "$tmp/wide/model.safetensors" "$tmp/bare/"
keeps "weights without config.json" "$zckpt" convert "$tmp/bare/model.safetensors" "$tmp/kept"
keeps "a mean" "$zckpt" average "$tmp/kept" "$tmp/wide" "$tmp/wide" --overwrite
keeps "zero_to_fp32" "$bin/zero_to_fp32" "$tmp/wide/checkpoint-1" "$tmp/kept"
keeps "a training" "$bin/zworker" "$bin/models/gpt2.so" --n_layer 1 --n_head 1 --n_embd 16 --block_size 16 --train_file "$(corpus)" \
    --do_train --max_steps 1 --output_dir "$tmp/kept"
keeps "  which may overwrite" "$bin/zworker" "$bin/models/gpt2.so" --n_layer 1 --n_head 1 --n_embd 16 --block_size 16 \
    --train_file "$(corpus)" --do_train --max_steps 1 --output_dir "$tmp/kept" --overwrite_output_dir
# nor does it take other weights of its model, which nobody would read of it
step=$tmp/kept/checkpoint-2
rm -rf "$tmp/kept" && mkdir "$tmp/kept" && cp -r "$a" "$step"
run "a mean into a checkpoint" 73 "$zckpt" average "$step" "$a" "$a" --overwrite
check "  which is said" has "$tmp/err" 'checkpoint-2: is a checkpoint, of which its own weights are read, and not others that lie there: name another folder'
run "another one's weights" 73 "$zckpt" convert "$a" "$step" --overwrite
run "  by zero_to_fp32" 73 "$bin/zero_to_fp32" "$a" "$step"
run "  as a file" 73 "$zckpt" convert "$a" "$step/model.safetensors"
check "  which is said" has "$tmp/err" 'checkpoint-2/: is a checkpoint, of which its own weights are read'
run "  of torch.save" 73 "$bin/zero_to_fp32" "$a" "$step/pytorch_model.bin"
train 1 "$tmp/log" --max_steps 1 --block_size 16 --per_device_train_batch_size 2 --model_name_or_path "$step" --overwrite_output_dir --output_dir "$step"
check "a training of it into its own folder: 73" test $? -eq 73
check "  nothing came into it" diff -r "$a" "$step"
cp -r "$step" "$tmp/renamed"
run "under another name they are what is read" 0 "$bin/zero_to_fp32" "$tmp/renamed" "$tmp/renamed" --safe_serialization
run "  and both are verified" 0 "$zckpt" verify "$tmp/renamed"
check "  which is said" test "$(grep -c 'renamed: weights: whole\|renamed: zlaunch checkpoint: whole' "$tmp/out")" -eq 2
sed -i 's/"step":2/"step":3/' "$tmp/renamed"/global_step2/manifest.json
run "  so what is damaged of the checkpoint is found" 65 "$zckpt" verify "$tmp/renamed"
check "  by its file" has "$tmp/err" 'renamed/global_step2/manifest.json: '
run "but not where its tensors are" 2 "$zckpt" convert "$step" "$step/global_step2/zero_rank_00000.safetensors" --overwrite
check "  which is said" has "$tmp/err" 'zero_rank_00000.safetensors would be replaced, and belongs to what is read'
run "its own are a file there" 0 sh -c 'cd "$1" && ./zero_to_fp32 . pytorch_model.bin && rm pytorch_model.bin' - "$step"
run "its own weights go there" 0 "$bin/zero_to_fp32" "$step" "$step"
run "  and are not what is read" 0 "$zckpt" diff "$step" "$a"
rm -rf "$tmp/kept" && cp -r "$a" "$tmp/kept"
run "but its own weights go there" 0 "$bin/zero_to_fp32" "$tmp/kept" "$tmp/kept"
run "  in the other form" 0 "$zckpt" convert "$tmp/kept/global_step2" "$tmp/kept" --overwrite
run "  beside a checkpoint that is whole" 0 "$zckpt" verify "$tmp/kept"
run "a checkpoint goes to DeepSpeed's universal form" 0 "$zckpt" convert "$a" "$tmp/uni" --to universal
check "  which is the latest there" test "$(cat "$tmp/uni/latest_universal")" = global_step2_universal
run "  which is found by it" 0 "$zckpt" ls "$tmp/uni"
run "  and back" 0 "$zckpt" convert "$tmp/uni/global_step2_universal" "$tmp/back"
for kind in value exp_avg exp_avg_sq; do
    run "  with the same $kind" 0 "$zckpt" diff "$a" "$tmp/back/checkpoint-2" --kind "$kind"
done
group() { # with what the next step of a checkpoint is taken: a line for each number
    grep -o '"param_groups":\[{[^}]*' "$1/global_step2/manifest.json" | grep -oE '"(lr|eps)":[^,]*|"betas":[^]]*' | sort
}
check "  which says the rate of the next step" test "$(group "$a" | grep -c -e '"lr":[0-9.e-]*[1-9]' -e betas -e eps)" -eq 3
check "  and has it in both" test "$(group "$a")" = "$(group "$tmp/back/checkpoint-2")"
run "what is there is not replaced unasked" 73 "$zckpt" convert "$a" "$tmp/uni" --to universal
run "  but by --overwrite" 0 "$zckpt" convert "$a" "$tmp/uni" --to universal --overwrite
run "  neither of zlaunch's" 73 "$zckpt" convert "$tmp/uni/global_step2_universal" "$tmp/back"
run "  but by --overwrite" 0 "$zckpt" convert "$tmp/uni/global_step2_universal" "$tmp/back" --overwrite
cp -r "$tmp/uni/global_step2_universal" "$tmp/checkpoint-2"
run "  but not what is read" 2 "$zckpt" convert "$tmp/checkpoint-2" "$tmp" --overwrite
check "  which is said" has "$tmp/err" "checkpoint-2 would be replaced, and is what is read: name another place"
run "  in the other form" 2 "$zckpt" convert "$tmp/uni" "$tmp/uni" --to universal --overwrite
run "  and which is whole" 0 "$zckpt" verify "$tmp/checkpoint-2"
run "  and both names" 0 "$zckpt" ls "$tmp/back/checkpoint-2"
check "  of the tied weight" has "$tmp/out" '^ *lm_head\.weight .* = transformer\.wte\.weight'
train 1 "$tmp/log" --max_steps 4 --block_size 16 --per_device_train_batch_size 2 --resume_from_checkpoint "$tmp/back/checkpoint-2" --output_dir "$tmp/on"
check "training goes on from it" has "$tmp/log" '"event":"step","rank":0,"step":3,'
check "  at step 3" test "$(grep -c '"event":"step"' "$tmp/log")" = 2
shard=$(find "$tmp/run/checkpoint-4" -name 'zero_rank_*.safetensors' | head -n 1)
cp "$shard" "$tmp/shard" && printf x | dd of="$shard" bs=1 seek=$(($(stat -c %s "$shard") - 100)) conv=notrunc status=none
run "no old one is removed for a damaged one" 65 "$zckpt" prune "$tmp/run" --keep 1
check "  which is said" has "$tmp/err" 'nothing is removed, for the newest is not whole, or may not be read: .*checkpoint-4.*checksum'
check "  both are there" test -d "$tmp/run/checkpoint-4" -a -d "$a"
cp "$tmp/shard" "$shard"
run "several are verified" 0 "$zckpt" verify "$tmp/run"/checkpoint-* "$tmp/hf"
check "  each" test "$(grep -c ': whole, ' "$tmp/out")" = 3
run "  the last as well where the first is not whole" 66 "$zckpt" verify "$tmp/none.bin" "$tmp/junk.safetensors" "$tmp/hf"
check "  which is said" has "$tmp/out" 'hf: weights: whole'
check "  of each that is not" has "$tmp/err" 'none.bin: no such file'
check "  and of all" has "$tmp/err" '2 of 3 are not whole, or could not be read'
run "which old ones would be pruned is said" 0 "$zckpt" prune "$tmp/run" --keep 1 --dry_run
check "  by name and bytes" has "$tmp/out" "would remove $a, [0-9.]* [KM]iB"
check "  and in all" has "$tmp/out" 'run: 1 of 2 checkpoints would be removed, [0-9.]* [KM]iB'
check "  and both are there" test -d "$tmp/run/checkpoint-4" -a -d "$a"
run "old ones are pruned" 0 "$zckpt" prune "$tmp/run" --keep 1
check "  and the newest stays" test -d "$tmp/run/checkpoint-4" -a ! -e "$a"
mkdir -p "$tmp/left/checkpoint-9" && cp -r "$tmp/run/checkpoint-4" "$tmp/left"
run "beside a folder that is no checkpoint" 0 "$zckpt" prune "$tmp/left" --keep 1 --no_verify
check "  the newest that is one stays" test -d "$tmp/left/checkpoint-4"
rm -r "$tmp/left/checkpoint-9" && mkdir "$tmp/left/checkpoint-11" && echo '{}' >"$tmp/left/checkpoint-11/trainer_state.json"
run "nor is one of another program the newest" 0 "$zckpt" prune "$tmp/left" --keep 1
check "  which stays" test -d "$tmp/left/checkpoint-11" -a -d "$tmp/left/checkpoint-4"
rm -r "$tmp/left/checkpoint-4"
run "where all are of others" 66 "$zckpt" prune "$tmp/left" --keep 1 --no_verify
check "  that is said" has "$tmp/err" "checkpoint-11 is none of zlaunch; it is one of transformers' Trainer"
run "of a folder that is not there none is" 66 "$zckpt" prune "$tmp/runn" --keep 1
check "  which is said as by the others" has "$tmp/err" 'runn: no such file or folder'
run "nor of a file" 66 "$zckpt" prune "$tmp/two.bin" --keep 1
check "  which is said" has "$tmp/err" 'two.bin: that is a file; name the folder of the checkpoints'
mkdir "$tmp/none_yet"
for dry in "" --dry_run; do
    run "a folder that has none yet is fine" 0 "$zckpt" prune "$tmp/none_yet" --keep 1 $dry
    check "  and that is said" has "$tmp/out" 'none_yet: has no checkpoints: nothing to remove'
done

a=$tmp/run/checkpoint-4
run "a checkpoint of ours is one already" 2 "$zckpt" convert "$a" "$tmp/x" --to zlaunch
check "  which is said" has "$tmp/err" 'checkpoint-4: is a checkpoint of zlaunch already; --resume_from_checkpoint takes it'
for form in universal zlaunch; do
    run "--dtype with --to $form is not passed over" 2 "$zckpt" convert "$a" "$tmp/x" --to "$form" --dtype f16
    check "  which is said" has "$tmp/err" '--dtype is of weights'
done
for to in x.gguf x.bin x.safetensors; do
    run "nor is --max_shard_size with $to" 2 "$zckpt" convert "$a" "$tmp/$to" --max_shard_size 10KB
    check "  which is said" has "$tmp/err" 'max_shard_size'
done
check "  and nothing is written" test ! -e "$tmp/x" -a ! -e "$tmp/x.gguf" -a ! -e "$tmp/x.bin" -a ! -e "$tmp/x.safetensors"
run "weights have no moments for DeepSpeed" 2 "$zckpt" convert "$tmp/hf" "$tmp/x" --to universal
run "weights are nothing to resume from" 2 "$zckpt" convert "$tmp/hf" "$tmp/x" --to zlaunch
check "  which is said" has "$tmp/err" 'no moments to resume from'
run "a folder with nothing in it" 66 "$zckpt" ls "$tmp"
run "a file that is not there" 66 "$zckpt" ls "$tmp/none.bin"
run "a command that there is not" 2 "$zckpt" lss "$tmp/hf"
check "is named" has "$tmp/err" "lss is none of these commands"
printf 'PK\3\4junk' >"$tmp/junk.bin"
run "a damaged archive" 65 "$zckpt" ls "$tmp/junk.bin"
check "  is named" has "$tmp/err" 'junk.bin'
for how in "x.bin --max_shard_size 1KB" "x.safetensors --max_shard_size 1KB" "x.bin --safe_serialization"; do
    read -ra how <<<"$how"
    run "${how[1]} is not passed over beside ${how[0]}" 2 "$bin/zero_to_fp32" "$tmp/hf" "$tmp/${how[0]}" "${how[@]:1}"
    check "  which is said" has "$tmp/err" "^zero_to_fp32: ${how[1]} "
done
run "  but where it is so" 0 "$bin/zero_to_fp32" "$tmp/hf" "$tmp/y.safetensors" --safe_serialization
run "a size that is none" 2 "$bin/zero_to_fp32" "$tmp/hf" "$tmp/y" --max_shard_size big
run "an unknown option" 2 "$bin/zero_to_fp32" "$tmp/hf" "$tmp/y" --safe_serialisation
check "  has a suggestion" has "$tmp/err" 'safe_serialization'
run "too few words" 2 "$zckpt" diff "$tmp/hf"
"$zckpt" convert "$tmp/hf" "$tmp/loud.bin" --to pickle >"$tmp/out" 2>"$tmp/err"
"$zckpt" convert "$tmp/hf" "$tmp/quiet.bin" --to pickle >&- 2>"$tmp/err"
check "with standard output closed a file is what it should be" cmp -s "$tmp/quiet.bin" "$tmp/loud.bin"
run "output to a full device is an error" 73 bash -c "$zckpt ls $tmp/hf >/dev/full"
run "closed output is an error, too" 73 bash -c "$zckpt ls $tmp/hf >&-"
run "a manual page" 0 "$zckpt" --print_man
check "  with all commands" has "$tmp/out" '.SH "zckpt average"'
run "a completion" 0 "$bin/zero_to_fp32" --print_completion bash
check "  with its options" has "$tmp/out" 'exclude_frozen_parameters'
# ---- what is replaced stays whole where writing the new ends midway
for seed in 1 2; do
    train 1 "$tmp/log" --max_steps 1 --save_steps 1 --block_size 16 --n_layer 1 --n_embd 128 --per_device_train_batch_size 2 \
        --seed $seed --output_dir "$tmp/wide$seed"
done
limited() { # limited COMMAND...: no file may have more than 200 KiB, which a later one would
    (ulimit -f 200 && "$@")
}
for form in universal pickle; do
    to=(--to $form)
    [ $form = universal ] || to+=(--max_shard_size 140KB)
    run "a checkpoint becomes $form" 0 "$zckpt" convert "$tmp/wide1/checkpoint-1" "$tmp/mix-$form" "${to[@]}"
    run "  one that cannot be written to its end does not replace it" 73 limited "$zckpt" convert "$tmp/wide2/checkpoint-1" \
        "$tmp/mix-$form" "${to[@]}" --overwrite
    run "  nor any part of it" 0 "$zckpt" diff "$tmp/mix-$form" "$tmp/wide1/checkpoint-1"
    check "  and leaves nothing" test -z "$(find "$tmp/mix-$form" -name '.*.tmp')"
    run "  and a whole one does" 0 "$zckpt" convert "$tmp/wide2/checkpoint-1" "$tmp/mix-$form" "${to[@]}" --overwrite
    run "  in all of it" 0 "$zckpt" diff "$tmp/mix-$form" "$tmp/wide2/checkpoint-1"
done
run "a first one that fails is not there" 73 limited "$zckpt" convert "$tmp/wide1/checkpoint-1" "$tmp/first" --to universal
check "  nor its folder" test ! -e "$tmp/first"
run "  so the same command works" 0 "$zckpt" convert "$tmp/wide1/checkpoint-1" "$tmp/first" --to universal
# ---- a damaged checkpoint leaves nothing
cp -r "$tmp/wide1/checkpoint-1" "$tmp/damaged"
printf '{}' >"$tmp/damaged/tokenizer.json"
shard=$tmp/damaged/global_step1/zero_rank_00000.safetensors
printf '\377\177' | dd of="$shard" bs=1 seek=$(($(stat -c %s "$shard") / 6)) conv=notrunc status=none
for form in safetensors pickle universal; do
    run "a damaged checkpoint does not become $form" 65 "$zckpt" convert "$tmp/damaged" "$tmp/nothing/in/$form" --to $form
    check "  and leaves nothing" test ! -e "$tmp/nothing"
    mkdir -p "$tmp/empty"
    run "  in a folder that is empty" 65 "$zckpt" convert "$tmp/damaged" "$tmp/empty" --to $form
    check "  which stays" test -d "$tmp/empty"
    check "    as it was" test -z "$(ls -A "$tmp/empty")"
done

finish
