#!/bin/bash
# Hostfiles, filters and bounds become the right ranks in the right places, and --dry_run
# tells all of it without running anything.
. "$(dirname "$0")/launch_lib.sh"
unset CUDA_VISIBLE_DEVICES NCCL_DEBUG
export HOME=$tmp

cat >"$tmp/hosts" <<'H'
# cluster
worker-0 slots=4

  worker-1   slots=2 # the small one
root@worker-2:2222 slots=1
H
dry() { launch --hostfile "$tmp/hosts" --launcher local --dry_run "$@" -- true; }

dry
check "a table of nodes and ranks" out_has "7 ranks on 3 nodes, started by: local"
check "  nodes with user and port" out_has "node 2: root@worker-2:2222, 1 slot"
check "  ranks go on from node to node" out_has "  rank 6: slot 0"
check "  each node's devices" test "$(grep -c 'CUDA_VISIBLE_DEVICES=0,1$' "$tmp/out")" = 1
check "  and its command" test "$(grep -c 'zworker --daemon$' "$tmp/out")" = 3
dry --num_nodes 2 --num_gpus 2
check "--num_nodes and --num_gpus" out_has "4 ranks on 2 nodes"
# nodes that nobody has named: the plan is that of a hostfile with as many
shape=("$bin/models/gpt2.so" --model gpt2-xl --train_file README.md --tokenizer_name bytes --do_train --block_size 64)
launch --num_nodes 3 --num_gpus 2 --dry_run "${shape[@]}" --zero_stage 3
check "a dry run of nodes that are not there" out_has "nodes 0 to 2: 2 slots each, taken to be like this host"
plan_of() { sed -n '/^memory of/,/^  total/ { s/, of .* available.*//; p }' "$tmp/out"; }
plan_of >"$tmp/assumed"
printf 'x%d slots=2\n' 0 1 2 >"$tmp/three"
launch --hostfile "$tmp/three" --dry_run "${shape[@]}" --zero_stage 3
planned() { grep -v '^  process \|^  total ' "$@"; } # what a process takes is measured in each run
check "  has the plan of a hostfile's" cmp <(planned "$tmp/assumed") <(plan_of | planned)
check "  of six ranks, two of them local" grep -qz "^memory of one rank (.*, 6 ranks,.* total .*x 2 local ranks" "$tmp/assumed"
launch --num_nodes 3 --num_gpus 2 --log_format json --dry_run -- true
check "  as JSON" out_has '"nodes_are_assumed":true'
launch --num_nodes 3 --num_gpus 2 -- true
check "a run needs their names: 2" code_is 2
check "  and says so" err_has "only 1 host is known; name more of them in a --hostfile"
dry --include worker-0:1,3@worker-2
check "--include" test "$(grep -c '^  rank' "$tmp/out")" = 3
check "  keeps slot numbers" out_has "rank 1: slot 3"
check "  and gives the devices" out_has "CUDA_VISIBLE_DEVICES=1,3"
dry --exclude worker-0@worker-1:0
check "--exclude" test "$(grep -c '^  rank' "$tmp/out")" = 2
dry --include worker-9
check "an unknown host: 2" code_is 2
check "  is named" err_has "there is no host 'worker-9'"
launch --num_gpus 4096 --num_nodes 4096 --dry_run -- true
check "more ranks than there can be" err_has "16777216 ranks on 4096 nodes; at most 1048576 are possible"
dry --num_nodes 4
check "more nodes than there are: 2" code_is 2
for line in "worker-0 slots=1" "worker-3" "worker-3 slots=0" "a@b@c slots=1" "h:99999 slots=1" "[::1 slots=1"; do
    { cat "$tmp/hosts"; echo "$line"; } >"$tmp/bad"
    launch --hostfile "$tmp/bad" --launcher local --dry_run -- true
    check "hostfile line '$line': 65, as of a config" code_is 65
    check "  the line is told" err_has "$tmp/bad:6: "
done
printf '[fe80::1]:22 slots=1\nfe80::2 slots=2\n' >"$tmp/six"
launch --hostfile "$tmp/six" --launcher local --include '[fe80::2]:1' --dry_run -- true
check "IPv6 in hostfile and filter" out_has "node 0: fe80::2, 1 slot"

launch --hostfile "$tmp/hosts" --launcher local -- sh -c \
    'echo $RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $GROUP_RANK $NODE_RANK $CROSS_RANK $CROSS_SIZE $LOCAL_SIZE $CUDA_VISIBLE_DEVICES'
for want in "3 3 7 4 0 0 0 3 4 0,1,2,3" "4 0 7 2 1 1 1 3 2 0,1" "6 0 7 1 2 2 2 3 1 0"; do
    check "unequal nodes: rank ${want%% *} finds '$want'" out_has "[rank ${want%% *}] $want"
done

# What a launch by hand on the second node would be.
launch --hostfile "$tmp/hosts" --no_ssh --node_rank 1 --master_addr 10.0.0.1 --master_port 99 -- \
    sh -c 'echo $RANK $LOCAL_RANK $WORLD_SIZE $GROUP_RANK $MASTER_ADDR $MASTER_PORT'
check "--no_ssh runs the ranks of its node" test "$(sort "$tmp/out" | tr '\n' ';')" = \
    "[rank 4] 4 0 7 1 10.0.0.1 99;[rank 5] 5 1 7 1 10.0.0.1 99;"
for way in mpich openmpi slurm; do
    launch --hostfile "$tmp/hosts" --launcher $way --no_ssh --node_rank 1 --master_addr h -- true
    check "--launcher $way with --no_ssh: 2" code_is 2
    check "  by both names" err_has "--launcher $way does not go together with --no_ssh"
done
for option in force_multi push "ssh_port 22" "ssh_identity k" "ssh_known_hosts k" ssh_accept_any_host "ssh_jump h" "ssh_program p"; do
    # shellcheck disable=SC2086
    launch --hostfile "$tmp/hosts" --launcher local --$option -- true
    check "--$option where nothing is reached by ssh: 0" code_is 0
    check "  has no effect, and that is told" err_has "--${option% *} has no effect: no node of this job is reached by ssh"
done
ZLAUNCH_SSH_PORT=22 launch -- true
check "  but not of the environment, which is that of all jobs" test ! -s "$tmp/err"
launch --hostfile "$tmp/hosts" --no_ssh --node_rank 3 --master_addr h -- true
check "a node that is not there: 2" code_is 2
printf '\xef\xbb\xbflocalhost slots=2\r\n' >"$tmp/bom"
launch --hostfile "$tmp/bom" -- sh -c 'echo $WORLD_SIZE'
check "a hostfile from Windows" out_has "[rank 1] 2"
printf 'localhost slots=1\n127.0.0.1 slots=1\n' >"$tmp/both"
launch --hostfile "$tmp/both" -- true
check "this host twice: 2" code_is 2
check "  both names are told" err_has "localhost and 127.0.0.1 are both this machine"

# Devices of the user, without a hostfile.
CUDA_VISIBLE_DEVICES=3,GPU-x launch -- sh -c 'echo $WORLD_SIZE $CUDA_VISIBLE_DEVICES'
check "CUDA_VISIBLE_DEVICES gives the ranks" out_has "[rank 1] 2 3,GPU-x"
CUDA_VISIBLE_DEVICES=3,5 launch --num_gpus 1 -- sh -c 'echo $WORLD_SIZE $CUDA_VISIBLE_DEVICES'
check "  of which --num_gpus takes the first" test "$(cat "$tmp/out")" = "1 3"
CUDA_VISIBLE_DEVICES=3,5 launch --hostfile "$tmp/hosts" --launcher local --include worker-0:2 -- \
    sh -c 'echo $CUDA_VISIBLE_DEVICES'
check "  and which a hostfile overrules" test "$(cat "$tmp/out")" = 2
printf 'localhost slots=2\n' >"$tmp/here"
# visible LIST WANT OPTIONS...: the devices that the ranks get
visible() {
    local list=$1 want=$2
    shift 2
    CUDA_VISIBLE_DEVICES=$list launch "$@" -- sh -c 'echo "<$CUDA_VISIBLE_DEVICES>"'
    check "CUDA_VISIBLE_DEVICES=$list $*: $want" test "$code $(sed 's/^.rank [0-9]*. //' "$tmp/out" | sort -u)" = "0 <$want>"
}
visible 3,5 5 --include localhost:1
visible 3,5 5 --exclude localhost:0
visible 3,5 3,5 --hostfile "$tmp/here"
visible 3,5 5 --hostfile "$tmp/here" --include localhost:1
visible 3,5 3 --hostfile "$tmp/here" --num_gpus 1
visible 3,5,6,7 7 --include localhost:3
visible 5 5 --num_gpus 2
visible "" "" --num_gpus 2
visible -1 -1 --hostfile "$tmp/here"
for where in "" "--hostfile $tmp/here"; do
    # shellcheck disable=SC2086
    CUDA_VISIBLE_DEVICES=3 launch $where --include localhost:1 -- true
    check "a slot that is not visible: 2${where:+, of a hostfile}" code_is 2
    check "  names the variable" err_has "CUDA_VISIBLE_DEVICES=3"
done

# Variables by name and by file.
printf '# mine\n\nZT_A=from file=1\nZT_B=two words "and quotes"\n' >"$tmp/.deepspeed_env"
launch --export ZT_C=3 -- sh -c 'echo "$ZT_A|$ZT_B|$ZT_C"'
check "env files and --export reach the ranks exactly" test "$(cat "$tmp/out")" = 'from file=1|two words "and quotes"|3'
launch --export ZT_C=3 --export ZT_D=4,ZT_E=5 -- sh -c 'echo "$ZT_C|$ZT_D|$ZT_E"'
check "--export several times adds up" test "$(cat "$tmp/out")" = "3|4|5"
launch --num_gpus 2 --export CUDA_VISIBLE_DEVICES=3,MASTER_PORT=7 -- true
check "what zlaunch sets itself is told to be that" err_has "MASTER_PORT=7, which --export or an env file sets, has no effect: zlaunch sets it by --master_port"
check "  devices too" err_has "CUDA_VISIBLE_DEVICES=3, which --export"
launch --export CUDA_VISIBLE_DEVICES=3 -- sh -c 'echo "<$CUDA_VISIBLE_DEVICES>"'
check "  unless they have an effect" test "$(cat "$tmp/out" "$tmp/err")" = "<3>"
launch --export ZLAUNCH_NUM_GPUS=2 -- sh -c 'echo $WORLD_SIZE'
check "so is an option of zlaunch, which it has read by then" err_has "ZLAUNCH_NUM_GPUS=2, which --export or an env file sets, has no effect: it is an option of zlaunch"
check "  and it has none" test "$(cat "$tmp/out")" = 1
ZLAUNCH_NUM_GPUS=2 launch --export ZLAUNCH_NUM_GPUS,ZLAUNCH_MAX_STEPS=3 -- true
check "  not one that it has read, or that is its ranks'" test ! -s "$tmp/err"
launch --export ZT_C=eth0,eth1 -- true
check "  a comma in a value: 2" code_is 2
check "  says how it goes" err_has "--export eth1: it is not set here; write --export eth1=VALUE (a value with commas: set it here, and --export its name)"
ZT_C=eth0,eth1 launch --export ZT_C -- sh -c 'echo "$ZT_C"'
check "  and it does" test "$(cat "$tmp/out")" = eth0,eth1
echo ZLAUNCH_LOGGING_STEPS=7 >>"$tmp/.deepspeed_env"
launch --export ZLAUNCH_SEED=1234 --check_config "${shape[@]}"
check "--check_config shows what ranks find of --export" out_has '"seed": 1234, // ZLAUNCH_SEED'
check "  and of env files" out_has '"steps_per_print": 7, // ZLAUNCH_LOGGING_STEPS'
launch --export ZLAUNCH_PER_DEVICE_TRAIN_BATCH_SIZE=1 --num_gpus 2 --dry_run "${shape[@]}"
check "  and so does a dry run" out_has "2 ranks, micro-batch 1"
rm "$tmp/.deepspeed_env"
printf '#!/bin/sh\necho "devices <$CUDA_VISIBLE_DEVICES>"\n' >"$tmp/worker"
chmod +x "$tmp/worker"
ZLAUNCH_ZWORKER=$tmp/worker CUDA_VISIBLE_DEVICES=3,5 launch --include localhost:1 --dry_run "${shape[@]}"
check "a dry run looks at the device of rank 0" out_has "devices <5>"
CUDA_VISIBLE_DEVICES=3,5 launch --device cpu --dry_run "${shape[@]}"
check "devices make no ranks of a model on processors" out_has "1 rank on 1 node"
if unshare -m mount -t tmpfs none /mnt 2>/dev/null; then # a machine with two GPUs, as far as names of devices go
    : >"$tmp/cuda.so"
    on_gpus() { # on_gpus WANT WORD...
        local want=$1 said
        shift
        # shellcheck disable=SC2016
        said=$(ZLAUNCH_CUDA_BACKEND=$tmp/cuda.so unshare -m sh -c 'mount -t tmpfs none /dev && mkdir /dev/shm &&
            touch /dev/null /dev/nvidia0 /dev/nvidia1 && exec "$@"' - "$zlaunch" --dry_run "$@" 2>&1 | head -n 1)
        [ "${said%% on *}" = "$want" ] || { echo "# $said" && return 1; }
    }
    plugin=${shape[0]}
    check "--device cpu makes no ranks of GPUs" on_gpus "1 rank" --device cpu "${shape[@]}"
    check "  also behind the plugin" on_gpus "1 rank" "$plugin" --device cpu "${shape[@]:1}"
    check "  as --use_cpu" on_gpus "1 rank" "$plugin" --use_cpu "${shape[@]:1}"
fi
mkdir -p "$tmp/home/.deepspeed_env" # root may read any file, but nobody a folder
HOME=$tmp/home launch -- true
check "one in the home that cannot be read is left out" code_is 0
check "  with a warning" err_has "warning: $tmp/home/.deepspeed_env: "
check "  one" test "$(grep -c 'left out' "$tmp/err")" = 1
HOME=$tmp/home launch --log_format json -- true
check "  which is an event where all are" sh -c '[ ! -s "$1" ] && grep -q "\"event\":\"log\",\"level\":\"warning\".*deepspeed_env: .*left out" "$2"' - "$tmp/err" "$tmp/out"
HOME=$tmp/home launch --quiet -- true
check "  and nothing with --quiet" test ! -s "$tmp/err"

launch --launcher PDSH --dry_run -- true
check "--launcher in capitals, as the deepspeed launcher takes it" code_is 0
env -u SLURM_JOB_ID "$zlaunch" --launcher slurm "$bin/models/gpt2.so" >"$tmp/out" 2>"$tmp/err"
code=$?
check "--launcher slurm outside an allocation: 2" code_is 2
check "  says how to get one" err_has "is not inside a Slurm allocation (SLURM_JOB_ID is not set); get one by salloc"
printf 'x%d slots=2\n' 0 1 2 >"$tmp/three"
elastic=(--hostfile "$tmp/three" --launcher local --elastic_training --max_elastic_nodes 2)
launch "${elastic[@]}" --dry_run "${shape[@]}"
check "a dry run has as many nodes as --max_elastic_nodes" out_has "4 ranks on 2 nodes, started by: local"
check "  the others are spare" out_has "node 2: x2, 2 slots, spare: more than --max_elastic_nodes"
check "  and its memory that of their ranks" grep -q "^memory of one rank (.*, 4 ranks" "$tmp/out"
launch "${elastic[@]}" --check_config "${shape[@]}"
check "  and --check_config their batch" out_has '"train_batch_size": 32,'
few=("$bin/models/gpt2.so" --n_layer 1 --n_head 1 --n_embd 8 --train_file README.md --block_size 16 --max_steps 1)
launch --num_gpus 2 "${few[@]}" --dry_run=true
check "--dry_run=true behind the target is asked once" test "$code $(grep -c 'memory of one rank' "$tmp/out")" = "0 1"
launch --num_gpus 2 "${few[@]}" --check-config=yes
check "  and --check_config" test "$code $(head -n 1 "$tmp/out")" = "0 {"
launch --check_config --dry_run "${few[@]}"
check "--check_config and --dry_run are both done" test "$code $(head -n 1 "$tmp/out") $(grep -c '^memory of one rank' "$tmp/out")" = "0 { 1"
for off in "--dry_run false" --check-config=0 --no_dry_run; do
    # shellcheck disable=SC2086
    launch --num_gpus 2 "${few[@]}" $off
    check "  $off is a run" test "$code $(grep -c "^step 1/1" "$tmp/err")" = "0 1"
done
launch --dry_run "$tmp/nowhere/gpt2.so"
check "a plugin that is elsewhere: 66" code_is 66
check "  says where" err_has "plugin $tmp/nowhere/gpt2.so: No such file or directory; there is "
launch --dry_run --include "" --exclude "" --master_addr "" --autotuning "" --num_gpus -1 --num_nodes -1 -- true
check "what DeepSpeed's launcher has by default changes nothing" code_is 0
launch --dry_run -m train
check "-m of torchrun: 2" code_is 2
check "  says what to write" err_has "write: zlaunch -- python3 -m NAME"
launch --help
check "--help says that --hang_timeout is off by itself" grep -q 'hang_timeout .*more than an evaluation takes; 0, the default: never' <(tr -s ' \n' ' ' <"$tmp/out")

# The command lines of MPI launchers.
printf 'h1 slots=2\nh2 slots=2\n' >"$tmp/mpi"
launch --hostfile "$tmp/mpi" --launcher openmpi --launcher_args="--bind-to 'a b'" --dry_run -- true
check "openmpi" grep -qE "^command: mpirun -n 4 -hostfile $tmp/mpi --mca btl '?\^openib'? --mca btl_tcp_if_include eth0 --bind-to 'a b' -x UCX_TLS=tcp .*/true$" "$tmp/out"
launch --hostfile "$tmp/hosts" --launcher mpich --dry_run -- true
check "mpich refuses unequal slots: 2" code_is 2
check "  with both numbers" err_has "worker-0 has 4, worker-1 2"
launch --hostfile "$tmp/mpi" --launcher impi --include h1 --dry_run -- true
check "impi refuses filters: 2" code_is 2
for option in elastic_training "max_restarts 1" "hang_timeout 9" "summary $tmp/end" "enable_each_rank_log $tmp/logs" serve_store \
    bind_cores_to_rank "bind_core_list 0" push "ssh_port 22" "ssh_identity k" "ssh_known_hosts k" ssh_accept_any_host \
    "ssh_jump a" "ssh_program ssh"; do
    # shellcheck disable=SC2086
    launch --launcher mpich --$option -- true
    check "mpich refuses --$option, which it does not do: 2" code_is 2
    check "  by its name" err_has "--launcher mpich: mpirun starts the ranks, and --${option%% *} has no effect there"
done
for option in "master_addr h1" "master_port 1234"; do
    # shellcheck disable=SC2086
    launch --hostfile "$tmp/mpi" --launcher openmpi --$option --dry_run -- true
    check "openmpi refuses --$option, which ranks would not get: 2" code_is 2
    # shellcheck disable=SC2086
    launch --hostfile "$tmp/mpi" --launcher mpich --$option --dry_run -- true
    check "  mpich does not" code_is 0
done
printf 'me@h1:2222 slots=2\nh2 slots=2\n' >"$tmp/named"
launch --hostfile "$tmp/named" --launcher mpich --dry_run -- true
check "users and ports of hosts, which mpich would not get: 2" code_is 2
check "  by name" err_has "--launcher mpich: host h1: names of hosts alone can be given there"
for way in "" "--launcher ssh --hostfile $tmp/mpi" "--launcher local"; do
    # shellcheck disable=SC2086
    launch $way --launcher_args=-x --dry_run -- true
    check "words for no mpirun, $way: 2" code_is 2
    check "  with what they are for" err_has "--launcher_args: they are words for mpirun"
done
echo 'localhost:1 slots=1' >"$tmp/port"
launch --hostfile "$tmp/port" -- true
check "where the port of a host stands is told" err_has "say its port: HOST:PORT in the hostfile, or --ssh_port"
launch --hostfile "$tmp/mpi" --ssh_jump localhost:1 -- true
check "  and that of a jump host" err_has "or give --ssh_jump HOST:PORT"
launch --hostfile "$tmp/mpi" --ssh_jump nowhere.invalid -- true
check "a jump host whose name is none is told where it stands" err_has "correct it in --ssh_jump, or ProxyJump of ~/.ssh/config"
launch --hostfile "$tmp/mpi" --ssh_program "$tmp/no/ssh" -- true
check "an ssh program that is not there: 69" code_is 69
check "  is told who named it" err_has "cannot run $tmp/no/ssh: No such file or directory; --ssh_program names it"

# Running one: a stand-in for mpirun that starts its words once.
mkdir "$tmp/fake"
cat >"$tmp/fake/mpirun" <<'M'
#!/bin/bash
[ "$1 $2 $3 $4" = "-n 4 -ppn 2" ] || exit 99
while [ "$1" != -hosts ]; do shift; done
shift 2
echo "$*" | head -c 6
PMI_RANK=3 MPI_LOCALRANKID=1 "$@"
M
chmod +x "$tmp/fake/mpirun"
PATH=$tmp/fake:$PATH launch --hostfile "$tmp/mpi" --launcher mpich -- sh -c 'echo "rank $RANK local $LOCAL_RANK"; exit 9'
check "the program's exit code comes back" code_is 9
check "and it knows its place" out_has "rank 3 local 1"
PATH=$tmp/fake:$PATH launch_bg --hostfile "$tmp/mpi" --launcher mpich -- sh -c 'trap "" TERM; echo ready; sleep 600 & wait; sleep 600'
is_ready() { grep -q ready "$tmp/out"; }
within 10 is_ready || fail "it did not start"
kill -TERM "$job"
gone "SIGTERM of a job under mpirun"
wait "$job"
code=$?
check "its exit code says how it ended" test "$code" -ge 128
# srun takes a value with a comma from its own environment
printf '#!/bin/sh\necho "$*"; echo "<$ZT_LIST>"\n' >"$tmp/fake/srun"
chmod +x "$tmp/fake/srun"
echo ZT_LIST=eth0,eth1 >"$tmp/.zlaunch_env"
PATH=$tmp/fake:$PATH SLURM_JOB_ID=1 SLURM_JOB_NODELIST=h1 launch --launcher slurm -- true
check "srun has what an env file sets to a list" out_has "<eth0,eth1>"
check "  and its name" grep -q -- '--export=ALL,\(.*,\)\?ZT_LIST[, ]' "$tmp/out"
rm "$tmp/.zlaunch_env"
# one of another MPI cannot read the command
cat >"$tmp/fake/mpirun" <<'M'
#!/bin/bash
[ "$1" = --version ] || { echo "unrecognized argument mca" >&2; exit 255; }
echo "HYDRA build details:"
M
PATH=$tmp/fake:$PATH launch --hostfile "$tmp/mpi" --launcher openmpi -- true
check "mpirun of another MPI: 2" code_is 2
check "  whose it is, and what to say" err_has "the mpirun here is MPICH's, which has other options: say --launcher mpich"
PATH=$tmp/fake:$PATH launch --hostfile "$tmp/mpi" --launcher mpich -- true
check "of the same MPI its exit code comes back" code_is 255
ln -s "$(type -P env)" "$tmp/env"
PATH=$tmp launch --hostfile "$tmp/mpi" --launcher mpich -- "$(type -P true)"
check "no mpirun: 66" code_is 66
# A drive that has less room than it is measured with otherwise.
if unshare -m mount -t tmpfs none /mnt 2>/dev/null; then
    seq 1 5000 >"$tmp/text"
    on_drive_of() { # on_drive_of SIZE
        unshare -m sh -c 'mount -t tmpfs -o "size=$0" none /mnt && exec "$@"' "$1" env XDG_CACHE_HOME="$tmp/cache" "$zlaunch" --dry_run --num_gpus 1 \
            "$bin/models/gpt2.so" --n_layer 1 --n_head 1 --n_embd 32 --block_size 32 --train_file "$tmp/text" \
            --deepspeed '{"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "nvme", "nvme_path": "/mnt"}}}' >"$tmp/out" 2>"$tmp/err"
        code=$?
    }
    on_drive_of 4m
    check "state in files of a drive on which nothing can be measured is planned" code_is 0
    check "  and what had no room was no state" err_has "no room for the 8.0 MiB of files with which drives are measured, no state, of 4.0 MiB that are free there"
    check "  which has enough" err_lacks "smaller ratio"
    on_drive_of 60m
    check "state in files of a small drive is planned" code_is 0
    check "  and timed" grep -qE '^\* +2  nvme       device   no .* [0-9.e-]+ +[0-9.]+ +[0-9.]+ +[0-9.]+$' "$tmp/out"
    check "  with nothing amiss" err_lacks "no time is estimated"
fi
finish
