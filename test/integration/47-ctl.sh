#!/bin/bash
# A running job can be asked for things by its owner, run in the background, and followed.
. "$(dirname "$0")/launch_lib.sh"
mkdir -m 700 "$tmp/run"
export XDG_RUNTIME_DIR=$tmp/run
jobs_dir=$tmp/run/zlaunch
sockets() { find "$jobs_dir" -name '*.sock' 2>/dev/null; }
has_socket() { [ -n "$(sockets)" ]; }
no_socket() { [ -z "$(sockets)" ]; }
# the id of the only job in our runtime folder
job_id() { sockets | sed 's|.*/||; s|\.sock$||'; }
ready() { within 10 lines_are "$tmp/out" "$1" || fail "the ranks did not start"; }
# ask ARGS...: zlaunch --ctl ARGS, its words in $tmp/said
ask() {
    timeout 100 "$zlaunch" --ctl "$@" >"$tmp/said" 2>&1
    code=$?
}
said() { grep -qF -- "$1" "$tmp/said" || { sed 's/^/# said: /' "$tmp/said"; false; }; }
end() {
    wait "$job"
    code=$?
}

# ---------------------------------------------------------------- asking
printf 'n0 slots=2\nn1 slots=1\n' >"$tmp/hosts"
printf '#!/bin/sh\nexec sleep 600\n' >"$tmp/slow"
chmod +x "$tmp/slow"
launch_bg --hostfile "$tmp/hosts" --ssh_program "$tmp/slow" --connect_timeout 100 -- true
within 10 has_socket || fail "no socket"
ask "$(job_id)" status
check "a job that begins" said "state     starting"
check "  has no ranks on a node yet" sh -c "grep -qx '  n1: starting' '$tmp/said'"
kill -INT "$job"
end
check "Ctrl-C meanwhile: 130" code_is 130

launch_bg --hostfile "$tmp/hosts" --launcher local --max_restarts 2 -- sh -c 'echo ready; sleep 600'
ready 3
id=$(job_id)
check "the folder is for its owner alone" test "$(stat -c '%a %u' "$jobs_dir")" = "700 $(id -u)"
ask "" status
check "an empty name is no job, though every name begins so" code_is 2
check "  and why" said 'the name of the job is empty'
ask "$id" status
check "status" code_is 0
check "  names the command" said "sh -c echo ready"
check "  and the ranks" said "3: 3 running, 0 ended"
check "  of each node" said "n1: running, ranks 2 to 2"
check "  and what restarts are left" said "0 of 2"
ask "$id" status --log_format json
check "options go before the target: one word too many" code_is 2
"$zlaunch" --log_format json --ctl "$id" status >"$tmp/said" 2>&1
check "status as JSON is one event, then the end" test "$(sed 's/^{"ts":"[^"]*","event":"\([a-z]*\)",.*}$/\1/' "$tmp/said" | tr '\n' ' ')" = "status end "
check "  with the pids" sh -c "grep -q '\"pids\":\[[0-9]*,[0-9]*,[0-9]*\]' '$tmp/said'"
ask "$id" save weights "$tmp/a" b
check "  as many as there are" said "--ctl: 'b' is one word too many"
ask list
check "list" said "$id"
ask "${id%?}" status
check "a prefix that only one job has is enough" code_is 0
ask nosuchjob status
check "an unknown job: 66, as what else is not there" code_is 66
check "  and where to look" said "zlaunch --ctl list"
ask zt-12345-0123456789abcdef status
check "  an id is not taken for the name of a run" said "no job 'zt-12345-0123456789abcdef' of this user runs here; see: zlaunch --ctl list"
if unshare -m mount -t tmpfs none /run 2>/dev/null; then
    # shellcheck disable=SC2016
    unshare -m bash -c 'mount -t tmpfs none /run && mkdir -p "/run/user/$(id -u)" && chmod 700 "/run/user/$(id -u)" &&
        id=$(XDG_RUNTIME_DIR=/run/user/$(id -u) "$0" --detach --log_file /dev/null -- sleep 20) &&
        env -u XDG_RUNTIME_DIR "$0" --ctl "$id" stop' "$zlaunch" >"$tmp/said" 2>&1
    code=$?
    check "a job of a session is found from where XDG_RUNTIME_DIR is not set" code_is 0
fi
ask status
check "a question without a job: 2" code_is 2
check "  and how to say whose" said "zlaunch --ctl last status"
ask "$id" dance
check "an unknown question: 2" code_is 2
check "  with all that there is" said "for status, stop, save, save weights [DIR], trace or stacks; --ctl list names all jobs"
ask "$id" stacks
check "stacks" code_is 0
check "  which are no error" sh -c "grep -q ' is ' '$tmp/said' && ! grep -q 'error:' '$tmp/said'"
check "  of every rank" test "$(grep -c 'rank [012].* is ' "$tmp/said")" = 3
ask "$id" save
check "a program that is no plugin: 1" code_is 1
check "  and says so" said "only plugins (.so) listen"
kill -STOP "$job"
ask "$id" status
check "a stopped zlaunch: an error, no hang" code_is 69
check "  that says what" said "does not answer"
kill -CONT "$job"
ask "$id" stop
check "stop" code_is 0
gone "stop"
end
check "stop: as SIGTERM" code_is 143
check "  but nobody has interrupted it" err_has "zlaunch: told to by zlaunch --ctl: stopping the ranks"
check "  which its end says as well" err_has "error: stopped by zlaunch --ctl"
check "the socket goes with the job" no_socket

launch_bg --num_gpus 2 --grace 60 -- sh -c 'trap "" TERM; echo ready; while :; do sleep 600; done'
ready 2
ask "$(job_id)" stop
ask "$(job_id)" stop
check "stop twice is no second Ctrl-C" said "stopped already"
check "  the job has its grace" kill -0 "$job"
kill -9 "$job"
gone "kill -9 of zlaunch"
wait "$job" 2>/dev/null
check "a killed zlaunch leaves a socket" has_socket
ask list
check "which is recognised" no_socket

# whatever the next zlaunch is for, it removes what killed ones left, and nothing of those that live
launch_bg --num_gpus 1 -- sh -c 'echo ready; exec sleep 600'
ready 1
within 2 has_socket || fail "there is no socket"
living=$job living_mark=$mark socket=$(sockets)
sockets_are() { [ "$(sockets | wc -l)" -eq "$1" ]; }
no_more_than_living() { [ "$(sockets)" = "$socket" ] && ! ls "$jobs_dir"/*.pid 2>/dev/null; }
for next in "-- true" "--dry_run -- true" --report "--ctl list"; do
    launch_bg --num_gpus 1 --save_pid -- sh -c 'echo ready; exec sleep 600'
    ready 1
    within 2 sockets_are 2 || fail "there is no second socket"
    kill -9 "$job" "$(daemon_pid)" # nobody is left to remove its files
    gone "kill -9 of zlaunch and its daemon"
    wait "$job" 2>/dev/null
    check "a killed job leaves its socket" sockets_are 2
    # shellcheck disable=SC2086 # words
    launch $next
    check "  which zlaunch $next removes, with its pid" no_more_than_living
done
job=$living mark=$living_mark
ask "$(job_id)" stop
gone "stop of the one that lives"
wait "$job" 2>/dev/null

# ---------------------------------------------------------------- the ranks answer
corpus=/usr/share/common-licenses/GPL-3
train=("$(readlink -f "$bin")/models/gpt2.so" --n_layer 1 --n_head 1 --n_embd 16 --block_size 16 --do_train
    --max_steps 1000000 --logging_steps 1000 --train_file "$corpus")
here=$PWD
case $zlaunch in /*) ;; *) zlaunch=$here/$zlaunch ;; esac
cd "$tmp/run" || exit 1 # where timelines go
launch_bg --num_gpus 2 "${train[@]}"
cd "$here" || exit 1
within 20 has_socket || fail "training did not start"
# until_running ASK TEXT: ask again while no rank runs yet
until_running() {
    ask "$(job_id)" "$@"
    while grep -q 'no rank of the job is running' "$tmp/said" && kill -0 "$job"; do ask "$(job_id)" "$@"; done
}
until_running save
check "save: 1" code_is 1
check "  and why, from all ranks" said "all 2 ranks: this run has no --output_dir to save to"
check "  and what to ask instead" said "ask for 'save weights DIR'"
ask "$(job_id)" save weights ""
check "  not into a folder without a name: 2" code_is 2
part=$(printf 'x%.0s' {1..200})
ask "$(job_id)" save weights "$tmp/$part/$part/$part/$part/$part/$part"
check "save weights into a folder whose path is long: 0" code_is 0
check "  it is that folder" test -s "$tmp/$part/$part/$part/$part/$part/$part/model.safetensors"
check "  and told in full" said "$part/$part/$part/$part/$part/$part"
ask "$(job_id)" save weights "$(printf "/$part%.0s" {1..21})"
check "  one that no system takes: 2" code_is 2
check "  says so" said "File name too long"
ask "$(job_id)" save weights "$tmp/mine"
check "save weights DIR: 0" code_is 0
check "  the weights are there" test -s "$tmp/mine/model.safetensors"
ask "$(job_id)" save weights "$tmp/mine"
check "  once more in the same folder: 0" code_is 0
mkdir "$tmp/theirs" && : >"$tmp/theirs/model.safetensors.index.json"
ask "$(job_id)" save weights "$tmp/theirs"
check "  but not over the model of another run" test "$code" -ne 0 -a ! -e "$tmp/theirs/model.safetensors"
check "  which is said" said "has a model already, and this run replaces only the one that it has saved last"
ask "$(job_id)" save weights
check "save weights, and not where: 1, for the run has no folder" code_is 1
ask "$(job_id)" trace
check "trace: 0" code_is 0
check "  of the next steps" said "rank 1: the timeline of 5 steps is in $tmp/run/zlaunch-trace-$(job_id)-7.json.rank1"
for r in 0 1; do
    check "  rank $r: five steps" test "$(grep -o '"name":"step"' "$tmp"/run/zlaunch-trace-*-7.json.rank$r | wc -l)" = 5
done
mkdir -p "$tmp/kept/global_step1" && printf global_step1 >"$tmp/kept/latest"
echo '{}' | tee "$tmp/kept/config.json" >"$tmp/kept/global_step1/manifest.json"
ask "$(job_id)" save weights "$tmp/kept"
check "save weights into a checkpoint of another model: 73" code_is 73
check "  which is said" said "kept: is a checkpoint, and its config.json is not that of these weights"
check "  which keeps its config.json" test "$(cat "$tmp/kept/config.json")" = '{}' -a ! -e "$tmp/kept/model.safetensors"
steps() { "$zlaunch" --log_format json --ctl "$(job_id)" status 2>/dev/null | grep -q '"last_step":{"event":"step"'; }
check "status has the last step" within 20 steps
ask "$(job_id)" stop
gone "stop of a training run"
wait "$job"
check "  says what is saved, and what was done" grep -qE "^  weights alone are saved, the last in $tmp/mine; step [0-9]+ was the last report" "$tmp/err"

launch_bg --num_gpus 2 "${train[@]}" --trace "$tmp/t.json"
within 20 has_socket || fail "training did not start"
until_running trace
check "trace of a job that records anyway" said "$tmp/t.json"
check "trace of a job with one: 0" code_is 0
kill -9 "$job"
gone "kill -9 of a training run"
wait "$job" 2>/dev/null
ask list

# what is saved on the way is what a run of so many steps ends with
same=(--lr_scheduler_type constant --seed 3)
launch_bg --num_gpus 2 "${train[@]}" "${same[@]}" --logging_steps 1 --output_dir "$tmp/saved" --run_name "1st/try"
within 20 has_socket || fail "training did not start"
until_running save weights
check "save weights: 0" code_is 0
check "  tells where, for all ranks" said "all 2 ranks: the weights after step "
ask 1st-try status
check "a job is found by its --run_name" said "job       1st-try-"
ask "1st/try" status
check "  as it was typed, too" said "job       1st-try-"
ask "1st/try of a name that is longer" status
check "a name that is longer than ids are: 66" code_is 66
check "  what its ids begin with is told" said "the id of a run of that name begins with '1st-try-of-a-name-that-'"
ask 1st-try save weights "$corpus"
check "save weights to a file: 73" code_is 73
check "  by its name, and by no option's" grep -q "rank 0: $corpus: that is a file; name a folder" "$tmp/said"
saved=$(echo "$tmp"/saved/weights-*)
check "  one folder" test -f "$saved/config.json"
ask "$(job_id)" save
check "save: 0" code_is 0
check "  tells where, for all ranks" said "all 2 ranks: training after step "
check "  a checkpoint" test -f "$(echo "$tmp"/saved/checkpoint-*)/latest"
at=$(echo "$tmp"/saved/checkpoint-*) at=${at##*-}
within 20 err_has "step $((at + 1))/" || fail "training does not go on"
ask "$(job_id)" stop
gone "stop of a run that has saved"
wait "$job"
code=$?
check "  has no checkpoint of its last step: 143" code_is 143
check "  says since when nothing is saved" err_has "  after step $at (saved in $tmp/saved/checkpoint-$at) nothing is known to be saved; step "
launch --num_gpus 2 "${train[@]}" "${same[@]}" --max_steps "${saved##*-}" --output_dir "$tmp/again"
check "  the same bits as a run of ${saved##*-} steps" cmp "$saved/model.safetensors" "$tmp/again/model.safetensors"

launch_bg --num_gpus 2 "${train[@]}" --logging_steps 1 --output_dir "$tmp/both"
within 20 has_socket || fail "training did not start"
until_running save
at=$(echo "$tmp"/both/checkpoint-*) at=${at##*-}
within 20 err_has "step $((at + 1))/" || fail "training does not go on"
ask "$(job_id)" save weights "$tmp/newer"
check "weights behind a checkpoint: 0" code_is 0
ask "$(job_id)" stop
gone "stop of a run with weights behind its checkpoint"
wait "$job"
check "  names both" err_has "  after step $at (saved in $tmp/both/checkpoint-$at) weights alone are saved, the last in $tmp/newer; step "

# results beside them are no weights
launch_bg --num_gpus 1 "${train[@]}" --do_eval \
    --max_steps 400 --logging_steps 1 --eval_steps 1 --eval_fraction 0.02 --learning_rate 1e-12 --early_stopping_patience 1 \
    --output_dir "$tmp/early" --prompt x --generate_tokens 1000000 --min_new_tokens 1000000
within 30 err_has "sample:" || fail "the run writes no text"
rank_pid 0 && kill -9 "$pid"
wait "$job"
check "a run that is killed behind its training" err_has "  weights alone are saved, the last in $tmp/early; step "

# what is asked for while the last step is made is done, too; a run that is stopped there saves as at any other
# late OPTIONS: a run of two long steps, the second of which has begun
late() {
    launch_bg --num_gpus 2 "${train[@]}" --max_steps 2 --logging_steps 1 --gradient_accumulation_steps 2500 "$@"
    within 60 err_has "step 1/2" || fail "training did not start"
}
late
ask "$(job_id)" save weights "$tmp/late"
check "save weights DIR in the last step: 0" code_is 0
check "  the weights are there" test -s "$tmp/late/model.safetensors"
end
late --output_dir "$tmp/late1" --save_steps 9
ask "$(job_id)" stop
end
check "stop in the last step: 75, with its checkpoint" test "$code" = 75 -a -f "$tmp/late1/checkpoint-2/latest"
launch_bg --num_gpus 2 "${train[@]}" --max_steps 3 --logging_steps 1 --gradient_accumulation_steps 2500 --output_dir "$tmp/late2" --save_steps 9
within 60 err_has "step 1/3" || fail "training did not start"
"$zlaunch" --ctl "$(job_id)" save weights >"$tmp/said.weights" 2>&1 &
asker=$!
ask "$(job_id)" stop
wait "$asker"
code=$?
check "save weights in the step that a stop ends: 1" code_is 1
check "  for there is a checkpoint alone" grep -qF "the run was stopped, and saves no weights besides: training after step 2 is in $tmp/late2/checkpoint-2" "$tmp/said.weights"
end
check "  which is there" test "$code" = 75 -a -f "$tmp/late2/checkpoint-2/latest"

# a folder that is gone when the run is over does not cost the weights
launch_bg --num_gpus 2 --log_format json "${train[@]}" "${same[@]}" --max_steps 1500 --logging_steps 1 --output_dir "$tmp/lost"
out_says() { grep -q -- "$1" "$tmp/out"; }
within 20 out_says '"event":"step"' || fail "training did not start"
rm -rf "$tmp/lost" && : >"$tmp/lost"
check "a save that fails at the end waits, and says for what" within 60 \
    out_says "they are kept for 600 s: zlaunch --ctl $(job_id) save weights DIR writes them elsewhere"
ask "$(job_id)" save weights /proc/nowhere
check "  another folder that does not take them: 73" code_is 73
check "  by its name, and by no option's" grep -q "rank 0: /proc/nowhere: cannot make the folder" "$tmp/said"
ask "$(job_id)" save weights "$tmp/elsewhere"
check "  one that does: 0" code_is 0
end
check "  and the job ends well" code_is 0
check "  with the weights there" test -s "$tmp/elsewhere/model.safetensors"
gone "a run that was saved elsewhere"

# ---------------------------------------------------------------- detach and attach
# wait until the job, whose id is in $id, is over
over() { [ ! -e "$jobs_dir/$id.sock" ]; }
launch --detach --save_pid --num_gpus 2 -- sh -c 'for i in $(seq 120); do echo old $i; done; while [ ! -e "$0" ]; do sleep 0.1; done; echo new; exit 7' "$tmp/go"
check "--detach returns 0" code_is 0
id=$(cat "$tmp/out")
check "  and prints the id, alone" test -e "$jobs_dir/$id.sock"
check "  and how to attach" err_has "zlaunch --attach $id"
"$zlaunch" --log_format json --ctl "$id" status >"$tmp/said"
pid=$(sed -n 's/.*"pid":\([0-9]*\),.*/\1/p' "$tmp/said")
check "  the job leads a session of its own" test "$(cut -d ' ' -f 6 "/proc/$pid/stat")" = "$pid"
check "  --save_pid names it" test "$(cat "$jobs_dir/$pid.pid")" = "$pid"
has_lines() { [ "$(grep -c old "$jobs_dir/$id.log")" = 240 ]; }
within 10 has_lines || fail "the output is not in the log"
"$zlaunch" --attach "$id" >"$tmp/said" 2>"$tmp/said.err" &
follower=$!
follows() { [ "$(wc -l <"$tmp/said")" -ge 100 ]; }
within 10 follows || fail "--attach shows nothing"
kill -INT "$follower"
wait "$follower"
code=$?
check "Ctrl-C ends --attach: 130" code_is 130
cat "$tmp/said.err" >>"$tmp/said"
check "Ctrl-C only ends --attach" said "detached; the job goes on"
check "  the job lives" test -e "$jobs_dir/$id.sock"
check "  it showed the last 100 lines" test "$(grep -c old "$tmp/said")" = 100
"$zlaunch" --attach "$id" >"$tmp/said" 2>"$tmp/said.err" &
follower=$!
within 10 follows || fail "--attach shows nothing"
touch "$tmp/go"
wait "$follower"
code=$?
check "--attach ends with the job's code" code_is 7
check "  after its last lines" said "new"
check "  and the cause" grep -q 'exited with code 7' "$tmp/said.err"
within 20 over || fail "the job did not end"
gone "a detached job"
ask "$id" status
check "  --save_pid: removed" test ! -e "$jobs_dir/$pid.pid"
check "a job that is over: where its output is" said "$jobs_dir/$id.log"
launch_bg --num_gpus 1 -- sh -c 'while :; do echo y; done'
within 10 has_socket || fail "no socket"
for _ in 1 2 3 4 5; do # at any moment, also while it prints
    timeout -s INT -k 20 0.3 "$zlaunch" --attach "$(job_id)" >"$tmp/said" 2>&1
    code=$?
    check "Ctrl-C ends --attach of a job that prints all the time" test "$code" = 124
    check "  and says so" said "detached; the job goes on"
done
kill -INT "$job"
end

launch --detach --log_file "$tmp/log" --num_gpus 2 --launcher local --hostfile /nonexistent -- true
check "--detach: bad options are told at once" test "$code" -ne 0
printf '#!/bin/sh\nexit 5\n' >"$tmp/zworker"
chmod +x "$tmp/zworker"
ZLAUNCH_ZWORKER=$tmp/zworker launch --detach --log_file "$tmp/log" --num_gpus 2 -- true
check "--detach: a job that does not start is an error" test "$code" -ne 0
check "  that is told" err_has "ended early with exit code 5"
launch --detach --log_file "$tmp/log" --num_gpus 2 -- echo finished
id=$(cat "$tmp/out")
finished() { [ "$(grep -c finished "$tmp/log")" = 2 ]; }
check "--log_file has the output" within 10 finished
within 20 over || fail "the job did not end"
launch --quiet --detach --log_file "$tmp/log" -- true
check "--quiet --detach: the id, and no more" test ! -s "$tmp/err" -a "$(wc -l <"$tmp/out")" = 1
id=$(cat "$tmp/out")
within 20 over || fail "the job did not end"
# a plugin has begun when it has made a step
launch --detach --log_file "$tmp/begun" "${train[@]}" --train_file "$tmp/nowhere.txt"
check "--detach: a plugin that fails before it begins" code_is 66
check "  says why" err_has "there is no file $tmp/nowhere.txt"
# from a folder of its own: `last` is the newest job of a folder, and other tests run in this one
cd "$tmp" || exit 1
launch --detach --log_file "$tmp/begun" "${train[@]}" --output_dir "$tmp/none/of it"
check "--detach: a plugin that has begun: 0" code_is 0
id=$(cat "$tmp/out")
ask "$id" status
check "  and it has: the first step is made" grep -qE "^step  .*\(the last report, [0-9.a-z]+ ago\)" "$tmp/said"
check "  what it does is in the log" within 10 grep -q " of 16 tokens" "$tmp/begun"
for request in status stop stacks save "save weights" attach; do
    what=(--ctl last $request)
    [ "$request" != attach ] || what=(--attach last)
    (cd / && timeout 20 "$zlaunch" "${what[@]}" >"$tmp/said" 2>&1 </dev/null)
    code=$?
    check "${what[*]} does not take a job of another folder" code_is 2
    check "  names the one it may be" grep -qE "zlaunch ${what[0]} [^ ]+-[0-9a-f]{16}( $request)?\$" "$tmp/said" # of any test here
done
began=$id
"$zlaunch" --detach --log_file later -- true >"$tmp/id" 2>"$tmp/said"
id=$(cat "$tmp/id")
within 20 over || fail "the later job did not end"
ask last status
check "a job that a later one of its folder did not outlive: which runs is said" \
    grep -qE "zlaunch: job $began, which runs; the last job of this folder, $id, ended at .* with exit code 0" "$tmp/said"
id=$began
ask last stop
check "  and stops the newest job of this one" code_is 0
check "  whose name it says" said "zlaunch: job $id"
cd "$OLDPWD" || exit 1
within 20 over || fail "the job did not end"
check "  which says that nothing is saved" grep -qE '^  nothing is saved; step [0-9]+ was the last report \(--output_dir with --save_steps' "$tmp/begun"
check "  and leaves no empty folder" test ! -e "$tmp/none"
# a log that does not take the output: 73, as in the foreground
cd "$tmp" || exit 1
for format in text json; do
    rm -f "$tmp/go"
    # shellcheck disable=SC2016
    "$zlaunch" --log_format "$format" --detach --log_file /dev/full --summary "$tmp/end" -- \
        sh -c 'echo text; while [ ! -e "$0" ]; do sleep 0.05; done' "$tmp/go" >"$tmp/id" 2>"$tmp/said"
    id=$(grep -o 'zt-[0-9]*-[0-9a-f]*' "$tmp/id" | head -n 1)
    lacks() { ask "$id" status && grep -q "^log       /dev/full has not all of the output: No space left on device" "$tmp/said"; }
    check "a full log of a job that runs, in $format: status says so" within 10 lacks
    "$zlaunch" --attach "$id" >"$tmp/said" 2>&1 &
    follower=$!
    shows() { grep -q text "$tmp/said"; }
    within 10 shows || fail "--attach shows nothing"
    touch "$tmp/go"
    wait "$follower"
    code=$?
    check "  the job ends with 73" code_is 73
    check "  which its last words explain" said "log file /dev/full: No space left on device; what was printed there is not complete"
    check "  and its record" grep -q '"exit_code":73.*"cause":"log file /dev/full: No space left on device' "$tmp/end"
    within 20 over || fail "the job did not end"
    ask last status
    check "  and who asks later" grep -qE 'with exit code 73; /dev/full has not all that it wrote: No space left on device' "$tmp/said"
done
# shellcheck disable=SC2016
"$zlaunch" --detach --log_file /dev/full "${train[@]}" --train_file "$tmp/nowhere.txt" >"$tmp/id" 2>"$tmp/said"
code=$?
check "a job that does not begin, and whose log is full: its code" code_is 66
check "  is not all that is said" said "ended with exit code 66 before it had begun, and log file /dev/full has nothing of it"
cd "$OLDPWD" || exit 1
# this folder's job is over, another folder's is not
launch_bg --num_gpus 1 -- sh -c 'echo ready; exec sleep 600'
ready 1
mkdir "$tmp/here" && cd "$tmp/here" || exit 1
other=$job
refused=(launch "${train[@]}" --train_file "$tmp/nowhere.txt")
"${refused[@]}"
ask last status
check "a start that was refused is the last job where there is no other" said "ended at 20"
check "  with its exit code" said "with exit code 66"
"$zlaunch" --detach --log_file log -- sh -c 'sleep 0.1; exit 7' >"$tmp/id" 2>"$tmp/said"
id=$(cat "$tmp/id")
within 20 over || fail "the job did not end"
for what in "--ctl last status" "--attach last"; do
    # shellcheck disable=SC2086 # words
    timeout 20 "$zlaunch" $what >"$tmp/said" 2>&1 </dev/null
    code=$?
    check "$what of a folder whose job is over" code_is 66
    check "  says how that ended" grep -q "the last job of this folder, $id, ended at 20[0-9-]* [0-9:]* UTC with exit code 7" "$tmp/said"
    check "  and where its output is" said "what it wrote is in $tmp/here/log"
done
"$zlaunch" --ctl "$id" status >"$tmp/said" 2>&1
check "by its name as well" said "job $id ended at 20"
# of several that had a name, the one of this folder, else the newest
twins=()
for folder in first second third; do
    mkdir "$folder"
    (cd "$folder" && "$zlaunch" --detach --log_file log --num_gpus 1 "${train[@]}" --max_steps 1 --run_name twin) >"$tmp/id" 2>/dev/null
    twins+=("$(cat "$tmp/id")")
    (id=${twins[-1]} && within 20 over) || fail "the job did not end"
done
for folder in first second third; do
    (cd "$folder" && "$zlaunch" --ctl twin status) >"$tmp/said" 2>&1
    check "the job of a name in its folder, $folder" said "job ${twins[0]} ended at 20"
    twins=("${twins[@]:1}" "${twins[0]}")
done
"$zlaunch" --attach twin >"$tmp/said" 2>&1
check "elsewhere the newest of that name" said "job ${twins[2]} ended at 20"
"${refused[@]}"
ask last status
check "a start that was refused since is not the last job" said "the last job of this folder, $id, ended at 20"
"$zlaunch" -- sh -c 'kill -9 "$(cut -d " " -f 4 /proc/$PPID/stat)"' >/dev/null 2>&1
"$zlaunch" --ctl last status >"$tmp/said" 2>&1
check "one that was killed" grep -q "the last job of this folder, .* and was killed before" "$tmp/said"
cd "$OLDPWD" || exit 1
kill "$other"
wait "$other"
# answer WORD: on a terminal it asks; yes is said about a job of ours alone
mkfifo "$tmp/keys"
answer() {
    local word=$1 asked
    (cd / && exec script -qec "'$zlaunch' --ctl last stop" /dev/null) <"$tmp/keys" >"$tmp/said" 2>&1 &
    asked=$!
    exec 9>"$tmp/keys"
    within 10 grep -qF 'is that the one? [y/N]' "$tmp/said" || fail "nobody asks"
    grep -qF "$id" "$tmp/said" || word=n
    echo "$word" >&9
    wait "$asked"
    code=$?
    exec 9>&-
    [ "$word" = "$1" ] || echo "# another job of this machine was the last one"
    [ "$word" = "$1" ]
}
if command -v script >/dev/null; then
    launch --detach --log_file "$tmp/log" -- sleep 600
    id=$(cat "$tmp/out")
    answer n && check "no on a terminal: it is not stopped" code_is 2
    if answer y; then
        check "yes: it is" code_is 0
        within 20 over || fail "the job did not end"
    else
        ask "$id" stop
    fi
fi
launch --max_restarts 1 "${train[@]}" --output_dir "$tmp/begun"
check "a folder that cannot be made: 73" code_is 73
check "  without a restart, which would not help" err_lacks "restart 1 of 1"
launch_bg --max_restarts 1 "${train[@]}"
within 20 rank_pid 0 && within 20 err_has "step 1/" && kill -9 "$pid"
within 20 err_has "restart 1 of 1" || fail "the job was not started again"
ask "$(job_id)" stop
wait "$job" 2>/dev/null
check "a restart says what it goes back to" err_has ": from step 1, for the run saves no checkpoints"
launch --log_file "$tmp/log" -- true
check "--log_file without --detach is refused" code_is 2

# ---------------------------------------------------------------- nobody holds up a job
if command -v python3 >/dev/null; then
    launch_bg --num_gpus 2 -- sh -c 'echo ready; while [ ! -e "$0" ]; do sleep 0.05; done; seq 20000; exit 3' "$tmp/flood"
    ready 2
    id=$(job_id)
    python3 - "$jobs_dir/$id.sock" "$tmp/clients" <<'P' &
import json, socket, struct, sys, time
def dial():
    s = socket.socket(socket.AF_UNIX); s.settimeout(5); s.connect(sys.argv[1]); return s
body = b"0" + json.dumps({"request": "attach"}).encode()
body = bytes([48]) + body[1:]
slow = [dial() for _ in range(8)]
for s in slow: s.sendall(struct.pack(">I", len(body)) + body)      # they follow, and never read
mute = [dial() for _ in range(8)]                                  # they say nothing
for _ in range(200):
    try: dial().sendall(b"\xff" * 64)                              # they talk nonsense
    except OSError: pass
open(sys.argv[2], "w").close()
time.sleep(600)
P
    clients=$!
    within 20 test -e "$tmp/clients" || fail "the clients did not come"
    ask "$id" status
    check "a good question is answered beside bad clients" code_is 0
    touch "$tmp/flood"
    gone_job() { ! kill -0 "$job" 2>/dev/null; }
    check "the job ends beside clients that do not read" within 20 gone_job
    end
    check "  with its code" code_is 3
    lines=$(grep -c . "$tmp/out")
    check "  and its output is whole" test "$lines" -ge 20000
    kill "$clients"
    wait "$clients" 2>/dev/null
else
    echo "# skip - no python3: bad clients"
fi
check "no socket is left" no_socket
finish
