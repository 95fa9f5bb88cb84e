# Helpers of the launch tests; sourced. Every job carries a mark in its environment, so that
# what is left of it can be found wherever it hides.

bin=${ZT_BIN:-bin}
zlaunch=$bin/zlaunch
tmp=$(mktemp -d)
export XDG_CACHE_HOME=$tmp/cache # the rates of dry runs
trap 'rm -rf "$tmp"' EXIT
failures=0
slowest=0 # end of a job that was killed, in ms
mark=none

# A fresh mark for the next job.
new_mark() {
    mark="zt-test-$$-$RANDOM-$RANDOM"
    export ZT_TEST_MARK_NEXT=$mark
}

# launch ARGS...: zlaunch with the mark, in the foreground; stdout and stderr in $tmp.
launch() {
    new_mark
    env -u ZT_TEST_MARK_NEXT ZT_MARK=$mark "$zlaunch" "$@" >"$tmp/out" 2>"$tmp/err"
    code=$?
}

# The same in the background, in a process group of its own; $job is its pid.
launch_bg() {
    new_mark
    : >"$tmp/out" # what the last job wrote must not pass for this one's
    : >"$tmp/err"
    env -u ZT_TEST_MARK_NEXT ZT_MARK=$mark setsid "$zlaunch" "$@" >"$tmp/out" 2>"$tmp/err" &
    job=$!
    # until it bears the mark, nobody_left would be true
    while readlink -q "/proc/$job/exe" >/dev/null && ! grep -qsz "^ZT_MARK=$mark\$" "/proc/$job/environ"; do :; done
}

# Pids of living processes with the mark. One grep for all of them: it is asked often.
survivors() {
    local f
    for f in $(grep -lsz "^ZT_MARK=$mark\$" /proc/[0-9]*/environ 2>/dev/null); do
        f=${f#/proc/}
        echo "${f%/environ}"
    done
}

# From here on daemons are started by a program that fails where break_daemons says so; one after
# the other, in the order of their nodes.
breakable_daemons() {
    cat >"$tmp/zworker" <<Z
#!/bin/bash
[ "\$1" = --daemon ] || exec "$(readlink -f "$bin")/zworker" "\$@"
is_first() {
    local p
    for p in \$(cat /proc/\$PPID/task/\$PPID/children); do
        [ \$p -lt \$\$ ] || continue # an older one that is still this script, or not even that
        [ ! /proc/\$p/exe -ef /proc/\$\$/exe ] && [ ! /proc/\$p/exe -ef /proc/\$PPID/exe ] || return 1
    done
}
until is_first; do read -rt 0.01 <> <(:); done
n=\$(flock '$tmp/counting' sh -c 'n=\$(cat "\$0" 2>/dev/null || echo 0); echo \$((n + 1)) >"\$0"; echo \$n' '$tmp/starts')
case " \$(cat '$tmp/broken') " in *" \$n "*) exit 5 ;; esac
exec "$(readlink -f "$bin")/zworker" "\$@"
Z
    chmod +x "$tmp/zworker"
    export ZLAUNCH_ZWORKER=$tmp/zworker
    break_daemons ""
}
# break_daemons NUMBERS: those of the next starts (from 0) that fail.
break_daemons() {
    echo "$1" >"$tmp/broken"
    rm -f "$tmp/starts"
}

# children PID: its children, without looking at any other process.
children() { cat "/proc/$1/task/$1/children" 2>/dev/null; }

# rank_pid RANK: its pid in $pid; false when it does not run (yet, or any more).
rank_pid() {
    local d environ
    for d in $(children "$job"); do
        for pid in $(children "$d"); do
            mapfile -d '' environ 2>/dev/null <"/proc/$pid/environ" || continue
            case " ${environ[*]} " in *" RANK=$1 "*) return 0 ;; esac
        done
    done
    false
}

# The daemon of the job.
daemon_pid() {
    local p
    for p in $(survivors); do
        if tr '\0' ' ' 2>/dev/null <"/proc/$p/cmdline" | grep -q -- '--daemon'; then
            echo "$p"
        fi
    done
}

# what_is PID: zlaunch, "guard ?", "daemon N" (of which node, "?": not known), "rank N" or stray, in
# $what; false: it is gone.
what_is() {
    local environ cmd again child
    [ "$1" != "$job" ] || { what=zlaunch && return; }
    mapfile -d '' environ 2>/dev/null <"/proc/$1/environ" || return 1
    mapfile -d '' cmd 2>/dev/null <"/proc/$1/cmdline" || return 1
    what=stray
    case " ${cmd[*]} " in
    *" --daemon "*) # it has no place of its own: its ranks tell
        what="daemon ?"
        [ "$(cat "/proc/$1/comm" 2>/dev/null)" != zworker-guard ] || { what="guard ?" && return; }
        for child in $(children "$1"); do
            what="daemon $(tr '\0' '\n' 2>/dev/null <"/proc/$child/environ" | sed -n 's/^GROUP_RANK=//p')"
        done
        # a rank that had not been executed looked like its daemon, and has children by now
        mapfile -d '' again 2>/dev/null <"/proc/$1/cmdline"
        [ "${again[*]}" = "${cmd[*]}" ] || what_is "$1" ;;
    *"sh -c "*) # what it forks looks the same
        [ "$(cat "/proc/$(sed -n 's/^PPid:\t//p' "/proc/$1/status" 2>/dev/null)/comm" 2>/dev/null)" = zworker-daemon ] || return 0
        what="rank $(printf '%s\n' "${environ[@]}" | sed -n 's/^RANK=//p')" ;;
    esac
}

# within SECONDS COMMAND...: true as soon as the command is; a deadline, not a duration. $waited: how many
# ms it took. A turn that took long counts for 0.1 s: the whole machine, and so the job too, may have stood still.
within() {
    local left=$(($1 * 1000)) before now=${EPOCHREALTIME/[.,]/} ms
    shift
    waited=0
    while ! "$@"; do
        before=$now now=${EPOCHREALTIME/[.,]/}
        ms=$(((now - before) / 1000))
        waited=$((waited + (ms < 100 ? ms : 100)))
        [ "$waited" -lt "$left" ] || return 1
        read -rt 0.02 <> <(:) || :
    done
    ms=$(((${EPOCHREALTIME/[.,]/} - now) / 1000))
    waited=$((waited + (ms < 100 ? ms : 100)))
}

nobody_left() { [ -z "$(survivors)" ]; }
# ends SECONDS COMMAND...: within, for the end of a job; the slowest is kept
ends() {
    local ok=0
    within "$@" || ok=1
    [ "$waited" -le "$slowest" ] || slowest=$waited
    return $ok
}
lines_are() { [ "$(wc -l <"$1")" -ge "$2" ]; }

# All of the job gone within 2 s of now?
gone() {
    if within 2 nobody_left; then
        ok "$1: nothing is left"
    else
        fail "$1: left behind: $(survivors | tr '\n' ' ')"
        survivors | xargs -r kill -9
    fi
}

ok() { echo "ok - $1"; }
fail() {
    failures=$((failures + 1))
    echo "not ok - $1"
    for f in out err; do
        [ ! -f "$tmp/$f" ] || sed "s/^/#  $f: /" "$tmp/$f" | cut -c 1-200 | head -n 12
    done
}

# check NAME COMMAND...: the command is the claim.
check() {
    local name=$1
    shift
    if "$@"; then ok "$name"; else fail "$name"; fi
}
code_is() { [ "$code" -eq "$1" ] || { echo "# exit code $code, not $1"; false; }; }
err_has() { grep -qF -- "$1" "$tmp/err"; }
err_lacks() { ! grep -qF -- "$1" "$tmp/err"; }
out_has() { grep -qF -- "$1" "$tmp/out"; }
finish() { [ "$failures" -eq 0 ] || { echo "# $failures failed"; exit 1; }; }
