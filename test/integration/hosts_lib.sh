# Four hosts with networks of their own, each with an sshd (test/rigs/sshd), for tests of jobs over ssh; sourced
# after launch_lib.sh. Where there can be none, the test is skipped.
#
#   $rig             what test/rigs/sshd tells of them;  $tmp/hosts  their hostfile, a slot each
#   host[I]          the address of host I, from 0;      networks[I] its network namespace
#   access[@]        options with which zlaunch is let in

rigs=$(dirname "${BASH_SOURCE[0]}")/../rigs
rig=$tmp/rig
[ -x /usr/sbin/sshd ] || { echo "skip - no /usr/sbin/sshd (apt install openssh-server)"; exit 77; }
trap '"$rigs/sshd" stop "$rig" >/dev/null 2>&1; rm -rf "$tmp"' EXIT
if ! "$rigs/sshd" start 4 "$rig" 2>"$tmp/why" || [ "$(cat "$rig/mode")" != netns ]; then
    echo "skip - hosts of their own need root and network namespaces $(tail -n 1 "$tmp/why")"
    exit 77
fi
unset SSH_AUTH_SOCK ZLAUNCH_ZWORKER
export HOME=$tmp/home # of this side
mkdir -p "$HOME"
mapfile -t host < <(cut -d' ' -f1 "$rig/hosts")
printf '%s slots=1\n' "${host[@]}" >"$tmp/hosts"
# shellcheck disable=SC2034
access=(--ssh_identity "$rig/user_ed25519" --ssh_known_hosts "$rig/known_hosts")

# on I COMMAND...: on host I, from 1
on() { "$rigs/sshd" run "$1" "$rig" "${@:2}"; }

net_of() { readlink "/proc/$1/ns/net" 2>/dev/null; }
networks=()
for i in 1 2 3 4; do networks+=("$(net_of "$(cat "$rig/sshd$i.pid")")"); done
# host_of PID: its number among the hosts, from 0; empty: none
host_of() {
    local i net
    net=$(net_of "$1")
    for i in 0 1 2 3; do [ "$net" != "${networks[i]}" ] || echo $i; done
}
# of_host I: pids of the job there, from 0
of_host() {
    local p
    for p in $(survivors); do [ "$(net_of "$p")" != "${networks[$1]}" ] || echo "$p"; done
}
# link_of I up|down: the network of host I, from 0
link_of() { ip link set "$(cat "$rig/tag")v$(($1 + 1))" "$2"; }
