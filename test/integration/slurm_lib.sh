# A private Slurm with four nodes on this machine; sourced. slurm_up starts it or says why
# not; slurm_down ends it. Everything lives in $rig, listens on loopback, and is ended by pid.
# shellcheck shell=bash
rig=$tmp/slurm
rig_pids=()

# free_ports N: the first of N neighbouring free TCP ports
free_ports() {
    local p i taken
    while :; do
        p=$((20000 + RANDOM % 10000)) taken=0
        for ((i = p; i < p + $1; i++)); do
            ! grep -q ":$(printf %04X $i) " /proc/net/tcp /proc/net/tcp6 || taken=1
        done
        [ $taken -eq 1 ] || break
    done
    echo $p
}

slurm_why_not() {
    local t
    [ "$(id -u)" -eq 0 ] || { echo "a private Slurm needs root"; return; }
    for t in slurmctld slurmd srun sbatch munged; do
        command -v $t >/dev/null || { echo "$t is not installed (slurm-wlm, munge)"; return; }
    done
    getent hosts "$(hostname -s)" >/dev/null || echo "the name of this host does not resolve"
}

slurm_up() {
    local host port n
    host=$(hostname -s)
    port=$(free_ports 6)
    chmod 755 "$tmp"
    mkdir -p "$rig/munge" "$rig/state" "$rig/log" "$rig"/spool/node0{1,2,3,4}
    chmod 755 "$rig" "$rig/munge"
    head -c 1024 /dev/urandom >"$rig/munge/key"
    chmod 600 "$rig/munge/key"
    munged --force --foreground --key-file="$rig/munge/key" --socket="$rig/munge/sock" \
        --pid-file="$rig/munge/pid" --log-file="$rig/munge/log" --seed-file="$rig/munge/seed" \
        >"$rig/log/munged" 2>&1 &
    rig_pids+=($!)
    cat >"$rig/slurm.conf" <<CONF
ClusterName=t
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$rig/munge/sock
CredType=cred/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
ReturnToService=2
SlurmctldPidFile=$rig/slurmctld.pid
SlurmdPidFile=$rig/slurmd-%n.pid
SlurmdSpoolDir=$rig/spool/%n
StateSaveLocation=$rig/state
SlurmctldLogFile=$rig/log/slurmctld.log
SlurmdLogFile=$rig/log/slurmd-%n.log
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmctldTimeout=30
SlurmdTimeout=30
KillWait=5
JobRequeue=1
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
SlurmdParameters=config_overrides
NodeName=node[01-04] NodeHostname=$host NodeAddr=127.0.0.1 Port=[$((port + 1))-$((port + 4))] CPUs=8 Boards=1 SocketsPerBoard=1 CoresPerSocket=8 ThreadsPerCore=1 RealMemory=1000 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
CONF
    export SLURM_CONF=$rig/slurm.conf
    within 10 test -S "$rig/munge/sock" || { echo "munged did not start"; return 1; }
    slurmctld -D -c >"$rig/log/ctld.out" 2>&1 &
    rig_pids+=($!)
    for n in 1 2 3 4; do
        slurmd -D -N node0$n >"$rig/log/d$n.out" 2>&1 &
        rig_pids+=($!)
    done
    within 60 nodes_are_idle 4
}

nodes_are_idle() { [ "$(sinfo -h -t idle -o %D 2>/dev/null | head -n 1)" = "$1" ]; }
job_is() { [ "$(squeue -h -j "$1" -o %T 2>/dev/null)" = "$2" ]; }
job_is_over() { [ -z "$(squeue -h -j "$1" -o %T 2>/dev/null)" ]; }

slurm_down() {
    local i
    scancel -u root 2>/dev/null
    for ((i = ${#rig_pids[@]} - 1; i > 0; i--)); do
        kill "${rig_pids[i]}" 2>/dev/null
        wait "${rig_pids[i]}" 2>/dev/null
    done
    [ ${#rig_pids[@]} -eq 0 ] || kill "${rig_pids[0]}" 2>/dev/null
    rig_pids=()
}
