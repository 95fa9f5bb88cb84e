#!/bin/bash
# The ssh starter against real sshd on four hosts of their own (test/rigs/sshd): every way in,
# every way it can go wrong, and that nothing stays behind. Each failure names its host and
# comes within 10 s.
# alone: it changes the networks of this machine
. "$(dirname "$0")/launch_lib.sh"
probe=build/${ZT_VARIANT:-release}/unit/launcher/ssh_probe
rigs=$(dirname "$0")/../rigs
[ -x /usr/sbin/sshd ] || { echo "skip - no /usr/sbin/sshd (apt install openssh-server)"; exit 77; }
[ -x "$probe" ] || { echo "skip - $probe is not built (make probes)"; exit 77; }

rig=$tmp/rig
trap '"$rigs/sshd" stop "$rig" >/dev/null 2>&1; rm -rf "$tmp"' EXIT
if ! "$rigs/sshd" start 4 "$rig" 2>"$tmp/why"; then
    echo "skip - no sshd can be started here: $(tail -n 1 "$tmp/why")"
    exit 77
fi
mode=$(cat "$rig/mode")
[ "$mode" = netns ] || echo "# no network namespaces here: hosts are ports of 127.0.0.1"
on() { "$rigs/sshd" run "$1" "$rig" "${@:2}"; }

# hosts as the probe takes them; the first and second one for single cases
mapfile -t host < <(sed 's/ 22$//; s/ /:/' "$rig/hosts")
name=${host[0]%%:*}
unset SSH_AUTH_SOCK
export HOME=$tmp/home # of this side
mkdir -p "$HOME/.ssh"
cp "$bin/zworker" "$tmp/zworker-test"
export ZLAUNCH_ZWORKER=$tmp/zworker-test

# go ARGS...: the probe, at most 10 s; $code, $tmp/out.
go() {
    timeout -s KILL 10 "$probe" "$@" >"$tmp/out" 2>"$tmp/err"
    code=$?
}
key="--identity $rig/user_ed25519"
known="--known_hosts $rig/known_hosts"
# shellcheck disable=SC2206
access=($key $known)
works() { check "$1" grep -qE '^all ' "$tmp/out" && check "$1: in order" code_is 0; }
# refuses NAME WORDS...: code 1, and a last line that names the host and says each of WORDS.
refuses() {
    local what=$1 word line
    shift
    line=$(grep '^down ' "$tmp/out" | tail -n 1)
    for word in "down $name " "$@"; do
        case $line in
        *"$word"*) ;;
        *)
            fail "$what: '$line' lacks '$word'"
            return
            ;;
        esac
    done
    check "$what" code_is 1
}
no_daemons() { ! pgrep -f "$tmp/zworker-test --daemon" >/dev/null; }

# ---------------------------------------------------------------- ways in
go "${access[@]}" "${host[@]}"
works "four hosts at once"
echo "# from start to the HELLO of all four: $(sed -n 's/^all //p' "$tmp/out") ms"
check "every daemon says hello with its version" test "$(grep -c '^hello .*"version"' "$tmp/out")" = 4
# libssh2 1.10 forgets two numbers of each ecdsa signature it makes; a sanitised probe sees it
echo "leak:libcrypto" >"$tmp/lsan"
LSAN_OPTIONS=suppressions=$tmp/lsan:print_suppressions=0 go --identity "$rig/user_ecdsa" $known "${host[0]}"
works "an ecdsa key"
go --identity "$rig/user_rsa" $known "${host[0]}"
works "an RSA key, through the ssh program"
check "which is said, and why" test "$(grep -c 'note .*falling back to the ssh program: .*RSA' "$tmp/out")" = 1
cp "$rig/user_ed25519" "$HOME/.ssh/id_ed25519"
go $known "${host[0]}"
works "the usual key file"
rm "$HOME/.ssh/id_ed25519"
eval "$(ssh-agent -a "$tmp/agent")" >/dev/null
ssh-add -q "$rig/other_ed25519" "$rig/user_ecdsa" 2>/dev/null
go $known "${host[0]}"
works "the second key of an agent"
ssh-add -q -D 2>/dev/null
ssh-add -q "$rig/user_rsa" 2>/dev/null
go $known "${host[0]}"
works "an agent with an RSA key only, through the ssh program"
kill -STOP "$SSH_AGENT_PID"
go --timeout 2 $known "${host[0]}"
refuses "an agent that does not answer" "authentication" "2 s"
kill -CONT "$SSH_AGENT_PID"
kill "$SSH_AGENT_PID"
unset SSH_AUTH_SOCK SSH_AGENT_PID
go "${access[@]}" --program ssh "${host[0]}"
works "the ssh program when asked for"
check "is no news" test "$(grep -c '^note' "$tmp/out")" = 0
go "${access[@]}" --user "$(id -un)" --jump "${host[1]}" "${host[0]}"
works "through a jump host"

# ---------------------------------------------------------------- ssh_config
addr=${host[0]%:*} port=${host[0]##*:}
[ "$port" != "$addr" ] || port=22
cat >"$HOME/.ssh/config" <<C
Host worker-1
    HostName $addr
    Port $port
    IdentityFile $rig/user_ed25519
    UserKnownHostsFile $rig/known_hosts
Host worker-2
    ProxyJump worker-1
    HostName ${host[1]%:*}
    Port $([ "$port" = 22 ] && echo 22 || echo "${host[1]##*:}")
    IdentityFile $rig/user_ed25519
    UserKnownHostsFile $rig/known_hosts
Host worker-3
    ProxyCommand bash -c 'exec 3<>/dev/tcp/$addr/$port; cat <&3 & exec cat >&3'
    HostName $addr
    Port $port
    UserKnownHostsFile $rig/known_hosts
Host worker-4
    HostName $addr
    Port $port
    ProxyCommand bash -c 'exec 3<>/dev/tcp/$addr/$port; cat <&3 & exec cat >&3'
    UserKnownHostsFile $tmp/none
C
go worker-1
works "HostName, Port, IdentityFile, UserKnownHostsFile of ssh_config"
go worker-2
works "ProxyJump of ssh_config"
check "by the library" test "$(grep -c '^note' "$tmp/out")" = 0
go $key worker-3
works "ProxyCommand of ssh_config"
check "by the ssh program, with the line named" \
    grep -q 'note worker-3: falling back to the ssh program: .*config:13 sets ProxyCommand' "$tmp/out"
name=worker-4 go $key worker-4
name=worker-4 refuses "a host key that the ssh program refuses" "the ssh program (no connection): Host key verification failed"
rm "$HOME/.ssh/config"

# ---------------------------------------------------------------- host keys
entry=$(sed -n 1p "$rig/known_hosts")
where=${entry%% *}
fingerprint=$(ssh-keygen -lf "$rig/host1.pub" | cut -d' ' -f2)
go $key --known_hosts "$tmp/none" "${host[0]}"
refuses "an unknown host key" "$fingerprint" "is not known" "echo '$entry' >> '$tmp/none'"
eval "$(sed -n "s/.* add it: //p" "$tmp/out" | head -n 1)"
go $key --known_hosts "$tmp/none" "${host[0]}"
works "the command of that message cures it"
{ echo "# a comment"; echo "$where $(cut -d' ' -f1,2 "$rig/host2.pub")"; } >"$tmp/changed"
go $key --known_hosts "$tmp/changed" "${host[0]}"
refuses "a changed host key" "HAS CHANGED" "$fingerprint" "$tmp/changed:2 has another key" "ssh-keygen -f '$tmp/changed' -R '$where'"
go $key --no_check --known_hosts "$tmp/changed" "${host[0]}"
works "a changed host key, not checked"
{ cat "$rig/known_hosts"; echo "@revoked * $(cut -d' ' -f1,2 "$rig/host1.pub")"; } >"$tmp/revoked"
go $key --known_hosts "$tmp/revoked" "${host[0]}"
refuses "a revoked host key" "@revoked" "$tmp/revoked:5"
echo "$where $(cut -d' ' -f1,2 "$rig/host1_ecdsa.pub")" >"$tmp/ecdsa"
go $key --known_hosts "$tmp/ecdsa" "${host[0]}"
works "only the ecdsa key is known: no false alarm"
ssh-keygen -q -H -f "$tmp/ecdsa" 2>/dev/null >&2
go $key --known_hosts "$tmp/ecdsa" "${host[0]}"
works "a hashed entry"

# ---------------------------------------------------------------- what goes wrong
go --identity "$rig/other_ed25519" $known "${host[0]}"
refuses "a wrong key" "permission denied" "user $(id -un)"
go --identity "$tmp/no-such-key" $known "${host[0]}"
refuses "a key file that is not there" "$tmp/no-such-key does not exist"
go $known "${host[0]}"
refuses "no key at all" "no key to log in with"
go "${access[@]}" "$name:1"
refuses "a refused port" "port 1: Connection refused" "--ssh_port"
if [ "$mode" = netns ]; then
    name=$(cat "$rig/void") go --timeout 2 "${access[@]}" "$(cat "$rig/void")" &
    asked=$!
    while kill -0 $asked 2>/dev/null; do
        awk '$4 == "02" { print $2 }' /proc/net/tcp /proc/net/tcp6
    done | sort -u >"$tmp/asking"
    wait $asked
    code=1
    check "an address that does not answer is asked by more than one socket" test "$(wc -l <"$tmp/asking")" -ge 2
    name=$(cat "$rig/void") refuses "an address where nobody is" "no answer" "2 s (connecting)"
fi
kill -STOP "$(cat "$rig/sshd1.pid")"
go --timeout 2 "${access[@]}" "${host[0]}"
refuses "a server that does not answer" "2 s (the ssh handshake)"
kill -CONT "$(cat "$rig/sshd1.pid")"
name=host.invalid go "${access[@]}" host.invalid
name=host.invalid refuses "a name that does not resolve" "does not resolve"
ZLAUNCH_ZWORKER='' go "${access[@]}" --zworker /no/such/zworker "${host[0]}"
refuses "no zworker there" "no zworker in /no/such/zworker: install zlaunch there, give --zworker PATH, or use --push"
printf '\177ELF' >"$tmp/garbage"
chmod +x "$tmp/garbage"
go "${access[@]}" --zworker "$tmp/garbage" "${host[0]}"
refuses "a zworker of another machine" "ended early with exit code 126"
go "${access[@]}" "${host[1]}" "${host[2]}" "$name:1"
check "the others are reached when one is not" test "$(grep -c '^hello' "$tmp/out")" = 2
check "and the whole is a failure" code_is 1
check "no daemon stays" within 2 no_daemons

# a server that sheds connections which have not logged in yet
if [ "$mode" = netns ]; then
    sed -e 's/^Port .*/Port 2222/' -e 's/^MaxStartups .*/MaxStartups 1:100:1/' -e "/^PidFile/d" \
        "$rig/config1" >"$rig/shy"
    on 1 /usr/sbin/sshd -f "$rig/shy" -E "$rig/shy.log"
    echo "[$name]:2222 $(cut -d' ' -f1,2 "$rig/host1.pub")" >>"$rig/known_hosts"
    go "${access[@]}" "$name:2222" "$name:2222" "$name:2222"
    works "a server with MaxStartups 1 is asked again"
fi

# ---------------------------------------------------------------- bytes and variables
printf '#!/bin/sh\nexec cat\n' >"$tmp/zworker-cat"
printf '#!/bin/sh\npwd\nprintf "<%%s>" "$ODD" "$EMPTY"\necho\necho oops >&2\nexit 3\n' >"$tmp/zworker-env"
printf '#!/bin/sh\nexec sleep 20\n' >"$tmp/zworker-sleep"
chmod +x "$tmp/zworker-cat" "$tmp/zworker-env" "$tmp/zworker-sleep"
go "${access[@]}" --zworker "$tmp/zworker-cat" --echo 20000000 "${host[0]}" "${host[1]}"
works "20 MB there and back, on two hosts"
go "${access[@]}" --zworker "$tmp/zworker-cat" --echo 10000000 --jump "${host[1]}" "${host[0]}"
works "10 MB there and back through a jump host"
go "${access[@]}" --zworker "$tmp/zworker-cat" --echo 10000000 --program ssh "${host[0]}"
works "10 MB there and back through the ssh program"
for way in "" "--program ssh"; do
    # shellcheck disable=SC2086
    go "${access[@]}" $way --raw --flood --zworker "$tmp/zworker-sleep" "${host[0]}"
    refuses "a node that takes no bytes${way:+, through the ssh program}" "takes no bytes any more"
done
odd=$'it\'s "$HOME" `id` \\ \n * ~\t!\xff'
go "${access[@]}" --raw --zworker "$tmp/zworker-env" --cwd "$tmp" --env "ODD=$odd" --env EMPTY= "${host[0]}"
check "odd values arrive as they are" test "$(tr -d '\0' <"$tmp/out" | grep -c .)" -gt 3
check "every byte of them" grep -qzF "<$odd><>" "$tmp/out"
check "in the folder asked for" grep -qxF "$tmp" "$tmp/out"
refuses "the exit code and the last words of the other side" "exit code 3" "oops"
check "its stderr comes as notes" grep -qxF "note $name: oops" "$tmp/out"

# ---------------------------------------------------------------- shells that talk
if [ "$mode" = netns ]; then
    rc=$rig/home1/.bashrc
    echo 'echo welcome; printf "zlaunch-0123456789abcdef up"; echo tuned >&2' >"$rc"
    go "${access[@]}" "${host[0]}"
    works "start-up files that print"
    echo 'exit 4' >"$rc"
    go "${access[@]}" "${host[0]}"
    refuses "start-up files that exit" "ended with code 4 before zworker was started"
    echo 'sleep 30' >"$rc"
    go --timeout 1 "${access[@]}" "${host[0]}"
    refuses "start-up files that hang" "1 s" "start-up files"
    echo 'yes' >"$rc"
    go "${access[@]}" "${host[0]}"
    refuses "start-up files that never stop printing" "print without end"
    rm "$rc"
fi

# ---------------------------------------------------------------- --push
cp "$tmp/zworker-test" "$tmp/zworker"
files=(--push "$tmp/zworker" --push "$bin/./models/gpt2.so")
place=push
[ "$mode" = netns ] || place=$tmp/push
ZLAUNCH_ZWORKER='' go "${access[@]}" "${files[@]}" --push_dir "$place" "${host[0]}"
works "--push"
there=$place
[ "$mode" = netns ] && there=$rig/home1/push
check "the pushed files are whole and executable" sh -c "cmp '$tmp/zworker' '$there'/*/zworker && cmp '$bin/models/gpt2.so' '$there'/*/models/gpt2.so && test -x '$there'/*/zworker"
before=$(stat -c %i:%Y "$there"/*/zworker)
go "${access[@]}" "${files[@]}" --push_dir "$place" "${host[0]}"
works "--push of what is there"
check "copies nothing" test "$before" = "$(stat -c %i:%Y "$there"/*/zworker)"
echo x >"$tmp/config.json"
go "${access[@]}" "${files[@]}" --push "$tmp/config.json" --push_dir "$place" "${host[0]}"
check "other contents go to another folder" test "$(ls "$there" | wc -l)" = 2
go "${access[@]}" --push "$tmp/no-such-file" "${host[0]}"
refuses "--push of a file that is not there" "$tmp/no-such-file: No such file"
if [ "$mode" = netns ]; then
    mkdir "$rig/home1/small"
    small=$(getent passwd "$(id -un)" | cut -d: -f6)/small
    on 1 mount -t tmpfs -o size=200k none "$small"
    go "${access[@]}" "${files[@]}" --push_dir small "${host[0]}"
    refuses "--push to a full disk" "small/" "no space left on the device" "--push_dir"
    check "which leaves no part of a file" test -z "$(on 1 find "$small" -type f)"
fi
rm -rf "$there"
ZLAUNCH_ZWORKER='' go "${access[@]}" "${files[@]}" --program ssh --push_dir "$place" "${host[0]}"
works "--push through the ssh program"
check "the files are whole and executable" sh -c "cmp '$tmp/zworker' '$there'/*/zworker && cmp '$bin/models/gpt2.so' '$there'/*/models/gpt2.so && test -x '$there'/*/zworker"
if [ "$mode" = netns ]; then
    go "${access[@]}" "${files[@]}" --program ssh --push_dir small "${host[0]}"
    refuses "to a full disk" "--push: small/" "No space left on device" "--push_dir"
    check "which leaves no part of a file" test -z "$(on 1 find "$small" -type f)"
fi
go "${access[@]}" --push "$tmp/config.json" --push_dir /proc/nothing "${host[0]}"
refuses "--push where nothing can be made" "/proc/nothing/"

# ---------------------------------------------------------------- the end
said_hello() { grep -q '^all ' "$tmp/out"; } # comes behind the whole line of the hello
is_down() { grep -q ^down "$tmp/out"; }
parent_of() { awk '/^PPid/ { print $2 }' "/proc/$1/status"; }
for way in "" "--program ssh"; do
    : >"$tmp/out" # what the last one said is no sign of this one
    "$probe" "${access[@]}" $way --hold "${host[0]}" >"$tmp/out" 2>"$tmp/err" &
    job=$!
    check "a session is held${way:+ by the ssh program}" within 5 said_hello
    daemon=$(sed -n 's/^hello.*"pid":\([0-9]*\).*/\1/p' "$tmp/out")
    guard=$(parent_of "$daemon") # between the daemon and sshd
    kill -9 "$(parent_of "$guard")"
    if within 2 is_down; then
        ok "its sshd is killed: known at once"
    else
        fail "its sshd is killed: not known after 2 s"
        kill -9 $job
    fi
    wait $job
    code=$?
    refuses "and told" "connection"
    check "the daemon is gone" within 2 no_daemons

    # shellcheck disable=SC2086
    : >"$tmp/out" # what the last one said is no sign of this one
    "$probe" "${access[@]}" $way --hold "${host[@]}" >"$tmp/out" 2>"$tmp/err" &
    job=$!
    all_there() { grep -q ^all "$tmp/out"; }
    check "four sessions are held${way:+ by the ssh program}" within 5 all_there
    kill -9 $job
    wait $job 2>/dev/null
    check "this side is killed: every daemon sees the end and goes" within 2 no_daemons
done
finish
