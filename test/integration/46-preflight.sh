#!/bin/bash
# The test of the links before ranks start: four nodes in network namespaces of their own,
# joined by bridges. Nodes are daemons of the local starter, moved into a namespace each.
# alone: it changes the networks of this machine
. "$(dirname "$0")/launch_lib.sh"
printf 'n0 slots=1\nn1 slots=1\nn2 slots=1\nn3 slots=1\n' >"$tmp/hosts"
nodes=(--hostfile "$tmp/hosts" --launcher local)
unset NCCL_SOCKET_IFNAME GLOO_SOCKET_IFNAME UCX_NET_DEVICES

launch "${nodes[@]}" -- sh -c 'echo ${NCCL_SOCKET_IFNAME-none}'
check "nodes in one network: nothing to test" code_is 0
check "  nothing to say" test ! -s "$tmp/err"
check "  nothing to set" test "$(grep -c '\] none$' "$tmp/out")" = 4

tag=zp$$
clean_up() {
    local i
    for i in 1 2 3 4; do ip netns del "$tag$i" 2>/dev/null; done
    ip link del "${tag}a" 2>/dev/null
    ip link del "${tag}b" 2>/dev/null
    rm -rf "$tmp"
}
skip() {
    echo "skip - nodes with networks of their own: $1"
    [ "$failures" -eq 0 ] || exit 1
    exit 77
}
[ "$(id -u)" = 0 ] || skip "that needs root"
command -v ip >/dev/null || skip "there is no ip program: apt install iproute2"
ip netns add "${tag}1" 2>/dev/null || skip "this system allows no network namespaces"
trap 'clean_up 2>/dev/null' EXIT
ip link add "${tag}a" type bridge 2>/dev/null && ip link add "${tag}b" type bridge || skip "this system allows no bridges"
for i in 2 3 4; do ip netns add "$tag$i"; done

in_ns() { # in_ns I COMMAND...
    local i=$1
    shift
    ip netns exec "$tag$i" "$@"
}
# wire I BRIDGE INTERFACE ADDRESS/BITS [nodad]
wire() {
    ip link add "$tag$2$1" type veth peer name "$3" netns "$tag$1"
    ip link set "$tag$2$1" master "$tag$2" up
    # shellcheck disable=SC2086
    ip -n "$tag$1" addr add "$4" dev "$3" $5
    ip -n "$tag$1" link set "$3" up
}
ip link set "${tag}a" up
ip link set "${tag}b" up
for i in 1 2 3 4; do
    ip -n "$tag$i" link set lo up
    wire $i a eth0 10.99.7.$i/24
    # as docker does: the same address everywhere, on a network of its own
    ip -n "$tag$i" link add docker0 type bridge
    ip -n "$tag$i" link add port0 type veth peer name port1
    ip -n "$tag$i" link set port0 master docker0 up
    ip -n "$tag$i" link set port1 up
    ip -n "$tag$i" addr add 172.31.0.1/16 dev docker0
    ip -n "$tag$i" link set docker0 up
done

# Daemons take the namespaces as they come.
cat >"$tmp/zworker" <<Z
#!/bin/bash
exec 8>'$tmp/lock'; flock 8
n=\$(cat '$tmp/starts' 2>/dev/null || echo 0); echo \$((n + 1)) >'$tmp/starts'
exec 8>&-
exec ip netns exec $tag\$((n % 4 + 1)) "$(readlink -f "$bin")/zworker" "\$@"
Z
chmod +x "$tmp/zworker"
export ZLAUNCH_ZWORKER=$tmp/zworker
# shellcheck disable=SC2016
show='echo "$NCCL_SOCKET_IFNAME $GLOO_SOCKET_IFNAME $MASTER_ADDR $MPIR_CVAR_CH3_INTERFACE_HOSTNAME"'
words() { sed 's/.*\] //' "$tmp/out" | sort -u | tr '\n' ';'; }

launch "${nodes[@]}" -- sh -c "$show"
check "four nodes on one network: 0" code_is 0
check "it is named, with how far it reaches" grep -qE 'links: eth0 10\.99\.7\.0/24 reaches all 4 nodes, rtt [0-9.]+ ms' "$tmp/err"
check "the address that all have is not taken for a way" err_lacks docker0
master=$(sed 's/.*\] //' "$tmp/out" | cut -d' ' -f3 | sort -u)
check "all ranks know where rank 0 is" test "$(grep '^\[rank 0\]' "$tmp/out")" = "[rank 0] =eth0 eth0 $master $master"
check "each rank has its own address" test "$(sed 's/.*\] //' "$tmp/out" | cut -d' ' -f4 | sort | tr '\n' ' ')" = "10.99.7.1 10.99.7.2 10.99.7.3 10.99.7.4 "
NCCL_SOCKET_IFNAME=lo launch "${nodes[@]}" --master_addr 1.2.3.4 --log_format json -- sh -c 'echo "$NCCL_SOCKET_IFNAME $GLOO_SOCKET_IFNAME $MASTER_ADDR"'
check "what the user set stays" test "$(grep -c '"event":"output".*"lo eth0 1.2.3.4"' "$tmp/out")" = 4
check "json has it as an event" grep -q '"event":"links","ok":true' "$tmp/out"
launch "${nodes[@]}" --no_preflight -- sh -c 'echo ${NCCL_SOCKET_IFNAME-none}'
check "--no_preflight sets nothing" test "$(words)" = "none;"
launch "${nodes[@]}" --max_restarts 1 -- sh -c '[ $ZLAUNCH_RESTART_COUNT = 1 ] || exit 3; echo $NCCL_SOCKET_IFNAME'
check "a restart tests again" test "$code $(words)" = "0 =eth0;"
check "  and says it once" test "$(grep -c 'links: eth0' "$tmp/err")" = 1
launch "${nodes[@]}" --num_nodes 1 -- true
check "one node: nothing to test" err_lacks "links:"

# The way between 1 and 2 swallows packets.
in_ns 1 ip route add blackhole 10.99.7.2/32
launch "${nodes[@]}" -- sh -c 'echo started'
check "a link that is cut: 69" code_is 69
check "nothing was started" test ! -s "$tmp/out"
check "both directions are named" test "$(grep -c 'cannot reach' "$tmp/err")" = 2
check "  with the address of one" grep -qE '^ *n[0-3] cannot reach n[0-3] \(.*10\.99\.7\.1[ )]' "$tmp/err"
check "  and of the other" grep -qE '^ *n[0-3] cannot reach n[0-3] \(.*10\.99\.7\.2[ )]' "$tmp/err"
check "  they are the two ends of one link" test "$(sed -nE 's/^ *(n[0-3]) cannot reach (n[0-3]) .*/\1\n\2/p' "$tmp/err" | sort | uniq -c | awk '{ print $1 }' | tr '\n' ' ')" = "2 2 "
check "what to do is said" err_has "2 of the 12 ways between the 4 nodes do not work; open the ports"
gone "after a link that is cut"
launch "${nodes[@]}" --log_format json -- true
check "json tells the table, too" grep -q '"ok":false,"text":".*cannot reach' "$tmp/out"
launch "${nodes[@]}" --no_preflight -- sh -c 'echo started'
check "--no_preflight starts all the same" test "$(grep -c started "$tmp/out")" = 4
# An end of it goes away: with those that are left all is well.
launch_bg "${nodes[@]}" --elastic_training -- sh -c 'echo world $WORLD_SIZE'
in_second() { [ -n "$(ip netns pids "${tag}2")" ]; }
within 10 in_second || fail "no daemon came to the second namespace"
ip netns pids "${tag}2" | xargs -r kill -9
wait "$job"
code=$?
check "elastic: a node that ends meanwhile is left out" test "$code $(words)" = "0 world 3;"
check "  the others are joined" err_has "links: eth0 10.99.7.0/24 reaches all 3 nodes"

# A second network, of which eth0 is not a part; and IPv6.
for i in 1 2 3 4; do wire $i b ib0 fd99:7::$i/64 nodad; done
launch "${nodes[@]}" -- sh -c "$show"
check "another network is found" err_has "links: ib0 fd99:7::/64 reaches all 4 nodes"
check "  and used" grep -qE '=ib0 ib0 fd99:7::[1-4] fd99:7::[1-4]$' "$tmp/out"
# Interfaces of other names on one network.
in_ns 3 ip link set ib0 down
in_ns 3 ip link set ib0 name port9
in_ns 3 ip link set port9 up
in_ns 3 ip addr replace fd99:7::3/64 dev port9 nodad
launch "${nodes[@]}" -- sh -c "$show"
check "names may differ" test "$(sed 's/.*\] //' "$tmp/out" | cut -d' ' -f1 | sort | tr '\n' ' ')" = "=ib0 =ib0 =ib0 =port9 "
# A node without any network.
in_ns 4 ip link set eth0 down
in_ns 4 ip link set ib0 down
in_ns 1 ip route del blackhole 10.99.7.2/32
launch "${nodes[@]}" -- true
check "a node that is cut off: 69" code_is 69
check "  the three others cannot reach it, nor it them" test "$(grep -c 'cannot reach' "$tmp/err")" = 4
launch_bg "${nodes[@]}" -- sleep 600
kill -INT "$job"
gone "Ctrl-C while links are tested"
wait "$job" 2>/dev/null
finish
