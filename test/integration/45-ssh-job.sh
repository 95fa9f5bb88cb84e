#!/bin/bash
# Whole jobs over ssh: four hosts with networks of their own (test/rigs/sshd). They train to
# the bits of one host; whatever is wrong with one host ends the job at once with its name; and
# nothing of the job stays anywhere.
# alone: it changes the networks of this machine
. "$(dirname "$0")/launch_lib.sh"
# libraries that MPI loads leak; so does libssh2 when other hosts' handshakes are cut off
export ASAN_OPTIONS=detect_leaks=0
. "$(dirname "$0")/hosts_lib.sh"

# job ARGS...: over the four hosts, with a mark (and what $also has) that goes along; at most 10 s
job() {
    new_mark
    ZT_MARK=$mark timeout -s KILL 10 "$zlaunch" --hostfile "$tmp/hosts" --export "ZT_MARK${also:+,$also}" "$@" \
        >"$tmp/out" 2>"$tmp/err"
    code=$?
}
# ends NAME CODE WORDS...: that exit code, each of WORDS told, nothing left
ends() {
    local what=$1 want=$2 word
    shift 2
    check "$what: exit code $want" code_is "$want"
    for word in "$@"; do check "$what: says '$word'" err_has "$word"; done
    gone "$what"
}

# ---------------------------------------------------------------- jobs that work
echo "FROM_FILE=it's \$HOME" >"$tmp/env"
also='WORD=a b' DS_ENV_FILE=$tmp/env NCCL_DEBUG=WARN job "${access[@]}" -- \
    sh -c 'echo "$RANK/$WORLD_SIZE $(hostname) $PWD $NCCL_DEBUG <$FROM_FILE> <$WORD>"'
ends "a job on four hosts" 0
check "ranks on hosts in order" test "$(sed 's/.*\] //' "$tmp/out" | sort | cut -d' ' -f1,2 | tr '\n' ';')" = "0/4 h1;1/4 h2;2/4 h3;3/4 h4;"
check "in this folder, with what was forwarded" test "$(grep -cF "$PWD WARN <it's \$HOME> <a b>" "$tmp/out")" = 4
job --ssh_identity "$rig/user_rsa" --ssh_known_hosts "$rig/known_hosts" -- sh -c 'hostname'
ends "with an RSA key" 0 "falling back to the ssh program" "RSA"

cat /usr/share/common-licenses/GPL-3 >"$tmp/corpus.txt"
model=(--n_layer 2 --n_head 2 --n_embd 32 --block_size 32 --train_file "$tmp/corpus.txt"
    --do_train --logging_steps 1 --learning_rate 1e-3 --seed 7 --fingerprint_steps 2
    --per_device_train_batch_size 2 --max_steps 4)
bits() { grep -o '"loss":[^,]*\|"fingerprint":"[^"]*"' "$1"; }
same_bits() { [ "$(bits "$tmp/one" | wc -l)" -ge 6 ] && [ "$(bits "$tmp/one")" = "$(bits "$tmp/out")" ]; }
if [ -f "$bin/backends/mpi.so" ]; then
    launch --num_gpus 4 --log_format json "$bin/models/gpt2.so" "${model[@]}"
    cp "$tmp/out" "$tmp/one"
    job "${access[@]}" --log_format json "$bin/models/gpt2.so" "${model[@]}"
    ends "training over four hosts" 0
    check "gives the bits of four ranks here" same_bits

    # hosts that share no folder with this one
    cp "$bin/models/gpt2.so" "$tmp/gpt2.so"
    for i in 1 2 3 4; do on $i mount -t tmpfs none "$PWD"; done
    job "${access[@]}" -- true
    ends "hosts without zworker" 66 "no zworker in " "or use --push"
    job "${access[@]}" --push --log_format json "$bin/models/gpt2.so" "${model[@]}"
    ends "training with --push" 0
    check "gives the bits of four ranks here, too" same_bits
    for i in 1 2 3 4; do on $i umount "$PWD"; done
fi

# ---------------------------------------------------------------- one host is wrong
job --ssh_identity "$rig/other_ed25519" --ssh_known_hosts "$rig/known_hosts" -- true
ends "a wrong key" 69 "permission denied"
sed '3d' "$rig/known_hosts" >"$tmp/three"
job --ssh_identity "$rig/user_ed25519" --ssh_known_hosts "$tmp/three" -- sleep 60
ends "one unknown host key" 69 "${host[2]}: the host key ssh-ed25519 SHA256:"
{ cat "$tmp/three"; echo "${host[2]} $(cut -d' ' -f1,2 "$rig/host1.pub")"; } >"$tmp/wrong"
job --ssh_identity "$rig/user_ed25519" --ssh_known_hosts "$tmp/wrong" -- sleep 60
ends "one changed host key" 69 "${host[2]}: THE HOST KEY HAS CHANGED" "$tmp/wrong:4"
cp "$tmp/hosts" "$tmp/good"
echo "$(cat "$rig/void") slots=1" >>"$tmp/hosts"
job "${access[@]}" --connect_timeout 2 -- sleep 60
ends "one unreachable host" 69 "$(cat "$rig/void"): no answer"
cp "$tmp/good" "$tmp/hosts"
job "${access[@]}" --ssh_port 1 -- sleep 60
ends "a refused port" 69 "port 1: Connection refused"
job "${access[@]}" --zworker /no/zworker -- sleep 60
ends "a missing binary" 66 "no zworker in /no/zworker"
printf '#!/bin/sh\nprintf "\\0\\0\\0\\056\\020{\\"protocol\\":9,\\"version\\":\\"9.9.9\\",\\"pid\\": 12345}"; cat >/dev/null\n' >"$rig/home2/zworker"
cp "$bin/zworker" "$tmp/zworker"
on 2 mount --bind "$rig/home2/zworker" "$tmp/zworker"
chmod +x "$rig/home2/zworker"
job "${access[@]}" --zworker "$tmp/zworker" -- sleep 60
check "a wrong version: not 0" test "$code" -ne 0
ends "a wrong version" "$code" "${host[1]}: " "9.9.9" "same version"
on 2 umount "$tmp/zworker"
home=$(getent passwd "$(id -un)" | cut -d: -f6)
mkdir "$rig/home4/small"
on 4 mount -t tmpfs -o size=100k none "$home/small"
job "${access[@]}" --push --push_dir "$home/small" -- sleep 60
ends "a full disk" 73 "${host[3]}: --push: $home/small/" "no space left"
check "a full disk: no part of a file stays" test -z "$(on 4 find "$home/small" -type f)"

# ---------------------------------------------------------------- the way breaks
all_ready() { [ "$(grep -c ready "$tmp/out")" = 4 ]; }
begin() {
    launch_bg --hostfile "$tmp/hosts" --export ZT_MARK "${access[@]}" -- sh -c 'echo ready; exec sleep 60'
    check "$1: four ranks run" within 5 all_ready
}
end() {
    wait "$job"
    code=$?
}
# session I: the sshd that serves the job on host I, which OpenSSH calls sshd-session from 9.8 on
session() {
    for pid in $(on "$1" pgrep -f 'sshd(-session)?: .*@notty'); do
        [ "$(readlink "/proc/$pid/ns/net")" = "$(readlink "/proc/$(cat "$rig/sshd$1.pid")/ns/net")" ] && echo "$pid"
    done
}
begin "an sshd session is killed"
session 3 | xargs -r kill -9
end
ends "an sshd session is killed" 69 "${host[2]}" "connection was lost"
begin "zlaunch is killed"
kill -9 "$job"
wait "$job" 2>/dev/null
gone "zlaunch is killed"
begin "zlaunch is interrupted"
kill -INT "$job"
end
ends "zlaunch is interrupted" 130
finish
