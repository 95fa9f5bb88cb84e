#!/bin/bash
# What ranks write arrives whole, in order, and says who wrote it.
. "$(dirname "$0")/launch_lib.sh"

# Each rank writes lines of one letter and a length of its own, as fast as it can.
launch --num_gpus 4 -- awk 'BEGIN {
    r = ENVIRON["RANK"]; c = substr("abcd", r + 1, 1); s = "";
    for (i = 0; i < 3000 + 1000 * r; i++) s = s c;
    for (n = 0; n < 400; n++) { print n " " s; if (n % 2) print n " " s > "/dev/stderr"; }
}'
check "four fast writers end well" code_is 0
check "no line is interleaved, lost or reordered on stdout" awk '
    { if (match($0, /^\[rank [0-3]\] /) != 1) { print "# no tag: " substr($0, 1, 80); exit bad = 1 }
      r = substr($2, 1, 1); c = substr("abcd", r + 1, 1)
      if ($3 != seen[r]++ || length($4) != 3000 + 1000 * r || $4 ~ "[^" c "]") {
          print "# line " NR " of rank " r; exit bad = 1 } }
    END { for (r = 0; r < 4; r++) if (seen[r] != 400) bad = 1; exit bad }' "$tmp/out"
check "the same on stderr" awk '
    { r = substr($2, 1, 1); c = substr("abcd", r + 1, 1)
      if (length($4) != 3000 + 1000 * r || $4 ~ "[^" c "]") exit bad = 1; seen[r]++ }
    END { for (r = 0; r < 4; r++) if (seen[r] != 200) bad = 1; exit bad }' "$tmp/err"

# stdout and stderr into one pipe that is read slowly: still whole lines, and no deadlock.
new_mark
ZT_MARK=$mark "$zlaunch" --num_gpus 2 -- awk 'BEGIN {
    s = sprintf("%5000s", ""); gsub(/ /, "x", s);
    for (n = 0; n < 1000; n++) { print s; print s > "/dev/stderr" } }' 2>&1 |
    { read -r first; within 1 false; echo "$first"; cat; } >"$tmp/out"
check "a slow reader gets every line whole" awk '
    length($0) != 5009 { exit bad = 1 } END { exit bad || NR != 4000 }' "$tmp/out"
gone "after a slow reader"

launch -- printf 'no newline at the end'
check "the unfinished last line is shown" test "$(cat "$tmp/out")" = 'no newline at the end'
launch -- printf 'one rank\n'
check "one rank alone has no tag" test "$(cat "$tmp/out")" = 'one rank'
launch -- printf 'a\r\nb\rc\n'
check "carriage returns end lines" test "$(cat "$tmp/out")" = $'a\nb\nc'
launch -- head -c 200000 /dev/zero
check "a line without end is cut at 64 KiB" test "$(wc -l <"$tmp/out") $(wc -c <"$tmp/out")" = "4 200004"
launch --num_gpus 2 -- sh -c 'read x; echo "stdin gives: $x$?"'
check "ranks read nothing from stdin" test "$(sort "$tmp/out" | tr '\n' ';')" = '[rank 0] stdin gives: 1;[rank 1] stdin gives: 1;'

mkdir "$tmp/shared"
jobs=()
for i in 1 2 3; do
    "$zlaunch" --enable_each_rank_log "$tmp/shared" -- sh -c "echo $i; echo $i" &
    jobs+=($!)
done
wait "${jobs[@]}"
check "jobs of one second have log files of their own" test "$(cat "$tmp/shared"/*_rank0.log | sort | tr -d '\n') $(ls "$tmp/shared" | wc -l)" = "112233 3"
check "  each its lines" sh -c '! paste -sd " " "$0"/* | grep -qvE "^(. .)$"' "$tmp/shared"
launch --num_gpus 2 --enable_each_rank_log "$tmp/logs/of it" -- sh -c 'echo out $RANK; echo err >&2'
check "rank logs: nothing on the screen" test ! -s "$tmp/out"
check "rank logs: one file a rank, both streams" test "$(cat "$tmp"/logs/of\ it/*_rank1.log | sort | tr '\n' ' ')" = "err out 1 "
check "rank logs are named by time and rank" sh -c "ls '$tmp/logs/of it' | grep -Eqx '[0-9]{14}_rank0.log'"

if unshare -m mount -t tmpfs none /mnt 2>/dev/null; then
    # shellcheck disable=SC2016
    unshare -m sh -c 'mount -t tmpfs -o size=4k none /mnt && "$0" --enable_each_rank_log /mnt -- seq 5000; code=$?; cat /mnt/*.log >"$1"; exit $code' \
        "$bin/zlaunch" "$tmp/kept" >"$tmp/out" 2>"$tmp/err"
    code=$?
    check "rank logs: a full disk is an error" code_is 73
    check "  which the last line names" sh -c "tail -n 1 '$tmp/err' | grep -q 'error: the log file of rank 0 in /mnt took no more'"
    check "  that names the file's rank" err_has "log file of rank 0: No space left on device; the rest goes to the screen"
    check "  and the rest does" bash -c "{ cat '$tmp/kept'; sed 's/^.rank 0. //' '$tmp/out'; } | tr -d '\n' | cmp - <(seq 5000 | tr -d '\n')"
    # shellcheck disable=SC2016
    unshare -m sh -c 'mount -t tmpfs -o size=4k none /mnt && "$0" --num_gpus 2 --enable_each_rank_log /mnt -- seq 5000' "$bin/zlaunch" >"$tmp/out" 2>"$tmp/err"
    check "  of two ranks both are named" sh -c "tail -n 1 '$tmp/err' | grep -q 'error: the log files of ranks 0, 1 in /mnt took no more, and what they lack is above'"
    # shellcheck disable=SC2016
    unshare -m sh -c 'mount -t tmpfs -o size=4k none /mnt && "$0" --log_format json --enable_each_rank_log /mnt -- seq 5000' "$bin/zlaunch" >"$tmp/out" 2>"$tmp/err"
    check "  also in the event of the end" sh -c "tail -n 1 '$tmp/out' | grep -q '\"event\":\"end\",\"exit_code\":73'"
    check "  with the cause" sh -c "tail -n 1 '$tmp/out' | grep -q '\"cause\":\"the log file of rank 0 in /mnt took no more'"
    seq 2000 >"$tmp/text"
    # shellcheck disable=SC2016
    unshare -m sh -c 'mount -t tmpfs -o size=4k none /mnt && "$@"; code=$?; cat /mnt/*.log >"$0"; exit $code' "$tmp/kept" \
        "$bin/zlaunch" --num_gpus 1 --enable_each_rank_log /mnt "$bin/models/gpt2.so" --n_layer 1 --n_embd 16 --n_head 2 \
        --n_positions 16 --train_file "$tmp/text" --block_size 16 --max_steps 99 --logging_steps 1 --do_train --do_eval \
        >"$tmp/results" 2>"$tmp/shown"
    code=$?
    check "rank logs: what a plugin says goes on there, too" code_is 73
    check "  with every step" test "$(grep -h '^step ' "$tmp/shown" "$tmp/kept" | cut -d' ' -f2 | sort -u | grep -c '/99$')" = 99
    check "  and results" grep -q "^eval at step 99" "$tmp/results"
fi

launch --num_gpus 2 --log_format json -- sh -c 'printf "x\377\"y\\\\\n"; echo e >&2; exit 4'
check "json: every line is an object with ts and event" sh -c "! grep -qvE '^\{\"ts\":\"[0-9T:.-]+Z\",\"event\":\"[a-z]+\".*\}\$' '$tmp/out'"
check "json: output is escaped, bad UTF-8 replaced" out_has $'"text":"x\xef\xbf\xbd\\"y\\\\"'
check "json: the end carries the exit code" sh -c "tail -n 1 '$tmp/out' | grep -q '\"event\":\"end\",\"exit_code\":4'"
check "json: stderr stays empty" test ! -s "$tmp/err"
launch --log_format json -- sh -c 'echo "{\"ts\":\"2026-01-01T00:00:00.000000Z\",\"event\":\"end\",\"exit_code\":0}"; exit 3'
check "json: what looks like an event is output of the rank" out_has '"event":"output","rank":0,"stream":"stdout","text":"{\"ts\":'
check "  and does not end the job" test "$(grep -c '"event":"end"' "$tmp/out") $code" = "1 3"

# every line is an event, whatever becomes of the run, the last one is its end, and stderr is empty
is_json() { # is_json CODE
    code_is "$1" && [ ! -s "$tmp/err" ] && [ -s "$tmp/out" ] &&
        ! grep -vE '^\{"ts":"[0-9T:.-]+Z","event":"[a-z_]+".*\}$' "$tmp/out" &&
        tail -n 1 "$tmp/out" | grep -q '"event":"end","exit_code":'"$1[,}]"
}
plugin=("$bin/models/gpt2.so" --n_layer 1 --n_head 1 --n_embd 16 --block_size 16 --train_file README.md --logging_steps 1)
json=(--num_gpus 2 --log_format json --verbose)
launch "${json[@]}" "${plugin[@]}" --max_steps 2 --do_train --do_eval --output_dir "$tmp/json" --prompt a --generate_tokens 2
check "json: a whole run" is_json 0
launch "${json[@]}" "${plugin[@]}" --max_steps 2 --output_dir "$tmp/json"
check "json: one that is refused by its ranks" is_json 73
launch "${json[@]}" "${plugin[@]}" --no_such_option
check "json: ... by its options" is_json 2
launch "${json[@]}" --no_such_option "${plugin[@]}"
check "json: ... by zlaunch, too early to know what was asked for" is_json 2
launch "${json[@]}" --hostfile "$tmp/nowhere" "${plugin[@]}"
check "json: ... by its hostfile" is_json 66
launch "${json[@]}" nowhere.so
check "json: ... without its plugin" is_json 66
launch "${json[@]}" --summary "$tmp/no/where" -- touch "$tmp/begun"
check "json: one whose summary cannot be written" is_json 73
check "  which is known before it begins" test ! -e "$tmp/begun"
launch_bg "${json[@]}" "${plugin[@]}" --max_steps 1000000
within 30 out_has '"event":"step"' || fail "no step"
kill -QUIT "$job"
within 10 out_has '"event":"inspected"' || fail "no answer"
kill -INT "$job"
gone "a stopped run in JSON"
wait "$job"
code=$?
check "json: one that is stopped" is_json 130
core=$(awk '/^Cpus_allowed_list/ { split($2, a, /[,-]/); print a[1] }' /proc/self/status)
launch "${json[@]}" --bind_core_list "$core" "${plugin[@]}" --max_steps 1
check "json: one with a warning of its plan" is_json 0
check "  which is an event" out_has '"event":"log","level":"warning","who":"zlaunch","msg":"2 ranks share 1 core'

# ... and so are questions to jobs, and jobs in the background
mkdir -m 700 "$tmp/run"
export XDG_RUNTIME_DIR=$tmp/run
launch "${json[@]}" --ctl nosuchjob status
check "json: a question about no job" is_json 66
launch "${json[@]}" --ctl nosuchjob dance
check "json: one that no job answers" is_json 66
launch "${json[@]}" --ctl status
check "json: one without a job" is_json 2
launch "${json[@]}" --attach nosuchjob
check "json: a job that cannot be followed" is_json 66
launch "${json[@]}" --detach --log_file "$tmp/no/where" "${plugin[@]}"
check "json: a job in the background whose log cannot be written" is_json 73
launch "${json[@]}" --detach --log_file "$tmp/log" "${plugin[@]}" --max_steps 2 --output_dir "$tmp/json"
check "json: one that its ranks refuse" is_json 73
check "  with what it printed, and its end alone" sh -c "grep -q '\"event\":\"fail\"' '$tmp/out' && [ \$(grep -c '\"event\":\"end\"' '$tmp/out') = 1 ]"
launch "${json[@]}" --detach --log_file "$tmp/log" "${plugin[@]}" --max_steps 1000000
check "json: one that has begun" is_json 0
id=$(sed -n 's/.*"event":"detached","job":"\([^"]*\)","log_file":"[^"]*log"}$/\1/p' "$tmp/out")
follower_mark=$mark
launch "${json[@]}" --ctl list
check "json: the list of jobs" is_json 0
check "  has it" out_has "\"event\":\"status\",\"job\":\"$id\""
launch "${json[@]}" --ctl "${id%????}" save weights
check "json: what the ranks refuse" is_json 1
check "  says which job was meant" out_has "\"msg\":\"job $id"
launch "${json[@]}" --ctl "$id" stacks
check "json: stacks" is_json 0
check "  are events of the job" out_has '"event":"inspected"'
launch "${json[@]}" --ctl "$id" save weights "$tmp/weights"
check "json: what the ranks have done" is_json 0
check "  is an answer" out_has '"event":"answer","text":"all 2 ranks: the weights after step '
launch "${json[@]}" --ctl "$id" status
check "json: the state of a job" is_json 0
check "  is an event" out_has "\"event\":\"status\",\"job\":\"$id\",\"pid\":"
: >"$tmp/out"
"$zlaunch" "${json[@]}" --attach "$id" >"$tmp/out" 2>"$tmp/err" &
follower=$!
within 10 out_has '"event":"step"' || fail "--attach shows nothing"
"$zlaunch" "${json[@]}" --ctl "$id" stop >"$tmp/stop" 2>&1
check "json: stop" grep -q '"event":"answer","text":"the job is told to stop"' "$tmp/stop"
wait "$follower"
code=$?
check "json: a job that is followed" is_json 143
check "  to its own end" sh -c "tail -n 1 '$tmp/out' | grep -q '\"job\":\"$id\"' && [ \$(grep -c '\"event\":\"end\"' '$tmp/out') = 1 ]"
mark=$follower_mark
gone "a detached job in JSON"
launch --detach --num_gpus 2 -- sh -c 'echo hello; while [ ! -e "$0" ]; do sleep 0.05; done; exit 7' "$tmp/go"
id=$(cat "$tmp/out")
: >"$tmp/out"
"$zlaunch" "${json[@]}" --attach "$id" >"$tmp/out" 2>"$tmp/err" &
follower=$!
within 10 out_has '"event":"output","stream":"stdout","text":"[rank 1] hello"' || fail "--attach shows nothing"
touch "$tmp/go"
wait "$follower"
code=$?
check "json: a job in text that is followed" is_json 7

(yes | head -n 100000 | ZT_MARK=x "$zlaunch" -- sh -c 'yes | head -n 100000; echo end >&2' 2>"$tmp/err" | head -n 1) >"$tmp/out"
check "a reader that leaves does not end the run" err_has end
hold='echo one; while [ ! -e "$0" ]; do sleep 0.05; done; echo end >&2'
for how in "" "--log_format json"; do
    rm -f "$tmp/go"
    : >"$tmp/err"
    # shellcheck disable=SC2086 # words
    (ZT_MARK=x "$zlaunch" $how -- sh -c "$hold" "$tmp/go" 2>"$tmp/err" | head -n 1) >"$tmp/out" &
    job=$!
    check "  which is said on standard error $how" within 20 err_has "nobody reads standard output any more: the job goes on"
    touch "$tmp/go"
    wait "$job"
    check "  once" test "$(grep -c 'nobody reads' "$tmp/err")" = 1
done
(ZT_MARK=x timeout 60 "$zlaunch" --summary "$tmp/summary" -- sh -c 'trap "" PIPE; echo one; exec sleep 600' 2>&1; echo $? >"$tmp/code") | head -n 1 >"$tmp/out"
check "where nobody reads standard error either the job ends, as by SIGPIPE" test "$(cat "$tmp/code")" = 141
check "  and its summary says why" grep -q '"cause":"stopped by SIGPIPE' "$tmp/summary"
finish
