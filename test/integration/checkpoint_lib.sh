# Shared by the tests of checkpoints; sourced after train_lib.sh. Gives: config(), job(), numbers(),
# resumes(), moves(), goes_on(), stored(), places.
# shellcheck shell=bash
rows=${rows:-8} # of a step, at any world size

# config NAME STAGE DTYPE OPTIMIZER_IN PARAM_IN [OPTIMIZER]: $tmp/NAME.json; in none, cpu or nvme, the optimizer's
# state also in part: 0.4 of it on the host, and weights in both: of two ranks two of four blocks on the host, the others in
# files; adamw or adam
config() {
    local on= part= most=0
    [ "${5:-none}" != both ] || { most=33000 && set -- "${@:1:4}" nvme "${@:6}"; }
    [ "${4:-none}" != part ] || { part=', "ratio": 0.4' && set -- "${@:1:3}" cpu "${@:5}"; }
    [ "$3" = fp32 ] || on="\"$3\": {\"enabled\": true},"
    [ "${6:-adamw}" = adamw ] || on+=" \"optimizer\": {\"type\": \"Adam\", \"params\": {\"adam_w_mode\": false}},"
    echo "{$on \"train_batch_size\": $rows, \"zero_optimization\": {\"stage\": $2,
        \"offload_optimizer\": {\"device\": \"${4:-none}\", \"nvme_path\": \"$tmp\"$part},
        \"offload_param\": {\"device\": \"${5:-none}\", \"nvme_path\": \"$tmp\", \"max_in_cpu\": $most},
        \"stage3_param_persistence_threshold\": 0}}" >"$tmp/$1.json"
}

# job RANKS CONFIG OUT DIR ARGS...: 10 steps with dropout, in the middle of an epoch
job() {
    local ranks=$1 config=$tmp/$2.json out=$3 dir=$4
    shift 4
    train "$ranks" "$out" --deepspeed "$config" --dropout 0.1 --max_steps 10 \
        --per_device_train_batch_size 1 --fingerprint_steps 1 --output_dir "$dir" "$@"
}
numbers() {
    paste <(field step "$1") <(field loss "$1") <(field grad_norm "$1") <(field fingerprint "$1")
}
# ends_alike WHOLE RESUMED: the last 6 steps of both
ends_alike() {
    [ "$(numbers "$1" | tail -n 6)" = "$(numbers "$2")" ] && [ "$(numbers "$2" | wc -l)" -eq 6 ] && return
    diff <(numbers "$1" | tail -n 6) <(numbers "$2") | head -n 4 | sed 's/^/# /'
    tail -n 3 "$2.err" | sed 's/^/# /'
    return 1
}
# whole RANKS CONFIG ARGS...: 10 steps, saved after 4, once; its name in $whole
whole() {
    local ranks=$1 config=$2
    shift 2
    whole=$tmp/whole.$ranks.$config.${*//[^a-z_]/}
    [ -d "$whole.dir" ] || job "$ranks" "$config" "$whole" "$whole.dir" --save_steps 4 "$@"
}

# resumes RANKS CONFIG ARGS...: as one that was not stopped
resumes() {
    local ranks=$1 config=$2 half=$tmp/half whole
    shift 2
    whole "$ranks" "$config" "$@" || return 1
    rm -rf "$half.dir" && mkdir "$half.dir" && cp -r "$whole.dir/checkpoint-4" "$half.dir"
    job "$ranks" "$config" "$half" "$half.dir" --resume_from_checkpoint auto "$@" && ends_alike "$whole" "$half"
}

# stored DIR: all tensors of a checkpoint by name and kind, as bytes
stored() {
    python3 - "$1" <<'PY'
import glob, json, struct, sys
parts = {}
for f in sorted(glob.glob(sys.argv[1] + "/global_step*/*.safetensors")):
    raw = open(f, "rb").read()
    n = struct.unpack("<Q", raw[:8])[0]
    for name, t in json.loads(raw[8:8 + n]).items():
        if name != "__metadata__":
            tensor, _, first = name.partition("@")
            a, b = t["data_offsets"]
            parts.setdefault(tensor, []).append((int(first or 0), raw[8 + n + a:8 + n + b]))
for tensor in sorted(parts):
    print(tensor, b"".join(data for _, data in sorted(parts[tensor])).hex())
PY
}

# moves FROM_RANKS FROM_CONFIG TO_RANKS TO_CONFIG ARGS...: saved, opened, saved again: the same bits.
# ARGS are those of the job that opens it
moves() {
    local ranks=$3 config=$4 there=$tmp/there whole
    whole "$1" "$2" || return 1
    shift 4
    rm -rf "$there.dir"
    job "$ranks" "$config" "$there" "$there.dir" --resume_from_checkpoint "$whole.dir/checkpoint-4" \
        --save_steps 4 --max_steps 4 "$@" || return 1
    [ "$(stored "$whole.dir/checkpoint-4")" = "$(stored "$there.dir/checkpoint-4")" ] &&
        [ -n "$(stored "$there.dir/checkpoint-4")" ]
}

# goes_on RANKS FROM_CONFIG TO_CONFIG ARGS...: saved by one, resumed by as many ranks with another: as if never stopped.
# ARGS are those of both
goes_on() {
    local ranks=$1 config=$3 half=$tmp/half whole
    whole "$1" "$2" "${@:4}" || return 1
    rm -rf "$half.dir"
    job "$ranks" "$config" "$half" "$half.dir" --resume_from_checkpoint "$whole.dir/checkpoint-4" "${@:4}" &&
        ends_alike "$whole" "$half"
}

# Wherever state may be kept: STAGE.OPTIMIZER_IN.PARAM_IN, as config() takes them.
places=(0.none.none {1,2}.{none,cpu,part,nvme}.none 3.{none,cpu,part,nvme}.{none,cpu,nvme,both})

# continues FROM_RANKS FROM_CONFIG TO_RANKS TO_CONFIG ARGS...: the losses of the other ranks' own
# steps, but for the order of fp32 sums
continues() {
    local ranks=$3 config=$4 there=$tmp/there whole
    whole "$1" "$2" || return 1
    shift 4
    rm -rf "$there.dir" && mkdir "$there.dir"
    job "$ranks" "$config" "$there" "$there.dir" --resume_from_checkpoint "$whole.dir/checkpoint-4" "$@" || return 1
    paste <(field loss "$whole" | tail -n 6) <(field loss "$there") | awk '
        { d = $1 - $2; if (d < 0) d = -d; if (d > 1e-5 * $1) { print "# step " NR + 4 ": " $1 " " $2; bad = 1 } }
        END { exit bad || NR != 6 || NF != 2 }'
}
