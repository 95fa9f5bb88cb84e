#!/bin/bash
# The progress line on a terminal, plain lines elsewhere, colour only when wanted.
. "$(dirname "$0")/launch_lib.sh"
command -v script >/dev/null || { echo "script (bsdutils) is not installed"; exit 77; }

# A rank that speaks the event protocol: one frame is u32 length, u8 type 32, JSON.
cat >"$tmp/rank" <<'RANK'
#!/bin/bash
event() {
    local n=$((${#1} + 1))
    printf "\\x$(printf %02x $((n >> 24)))\\x$(printf %02x $((n >> 16 & 255)))\\x$(printf %02x $((n >> 8 & 255)))\\x$(printf %02x $((n & 255)))\\x20%s" "$1" >&"$ZLAUNCH_CONTROL_FD"
}
[ "$RANK" = 0 ] || exit 0
for i in $(seq "${1:-40}"); do
    event '{"event":"step","step":'$i',"total_steps":40,"loss":2.5,"lr":0.0003,"grad_norm":"NaN","tokens_per_s":12345.0,"samples":8,"skipped":0,"peak_device_bytes":1048576,"gemm_share":0.5,"eta_s":5.0}'
    [ $((i % 20)) != 0 ] || echo "a line at $i"
    read -rt 0.01 <> <(:)
done
event '{"event":"sample","text":"to be or not"}'
[ -z "$FAIL" ] || { event '{"event":"fail","code":"bad config","exit_code":65,"peer":false,"text":"ds.json:1:2: unknown key"}'; exit 65; }
RANK
chmod +x "$tmp/rank"

on_terminal() { script -qec "$*" /dev/null </dev/null >"$tmp/out" 2>&1; }
export TERM=xterm
unset NO_COLOR CLICOLOR CLICOLOR_FORCE FORCE_COLOR CI
stty_cols='stty cols 60 2>/dev/null;'

on_terminal "$stty_cols '$zlaunch' --num_gpus 2 -- '$tmp/rank'"
redraws=$(tr '\r' '\n' <"$tmp/out" | grep -c '^step ')
check "the live line is redrawn in place" test "$redraws" -ge 2
check "not at every step: at most ten times a second" test "$redraws" -lt 36
check "the last step stays on the screen" sh -c "tr '\r' '\n' <'$tmp/out' | grep -q '^step 40/40'"
check "it never exceeds the terminal's width" sh -c "! tr '\r' '\n' <'$tmp/out' | grep '^step ' | grep -qE '.{61}'"
check "a narrow terminal gets whole columns, how long it takes among them" \
    sh -c "tr '\r' '\n' <'$tmp/out' | sed 's/ *\$//' | grep -qx 'step 40/40  loss 2.5000  12.3k tok/s  mem 1.0 MiB  eta 5s'"
stays() { sed 's/\r*$//; s/.*\r//; s/ *$//' "$tmp/out" | grep -oE '^(step [0-9]+/40|to be or not)' | tr '\n' ' '; }
check "each tenth of the run leaves a line, and the sample is the last" test "$(stays)" = "$(printf 'step %d/40 ' $(seq 4 4 40))to be or not "
check "other lines stand alone" sh -c "tr '\r' '\n' <'$tmp/out' | sed 's/\x1b\[[0-9;]*m//g' | grep -qx '\[rank 0\] a line at 20'"
check "a result is shown whole" sh -c "tr '\r' '\n' <'$tmp/out' | grep -qx 'to be or not'"

# What a terminal of that size would show: carriage return goes to column 0 and overwrites.
check "nothing of the live line is left in other lines" awk '
    { gsub(/\033\[[0-9;]*m/, ""); n = split($0, part, "\r"); line = "";
      for (i = 1; i <= n; i++) line = part[i] substr(line, length(part[i]) + 1)
      sub(/ +$/, "", line)
      if (line ~ /a line at/ && line !~ /^\[rank 0\] a line at [0-9]+$/) { print "# " line; exit bad = 1 } }
    END { exit bad }' "$tmp/out"

on_terminal "$stty_cols FAIL=1 '$zlaunch' --num_gpus 2 -- '$tmp/rank' 2"
check "messages have colour on a terminal" grep -q $'\x1b\[1;31m' "$tmp/out"
shown() { sed 's/\x1b\[[0-9;]*m//g; s/\r*$//; s/.*\r//; s/ *$//' "$tmp/out"; }
check "what ended the run stands below its last step" sh -c 'echo "$0" | sed "1,/unknown key/d" | { ! grep -q "^step "; }' "$(shown)"
check "  which is there" [ "$(shown | grep -c '^step 2/40')" = 1 ]
for how in "NO_COLOR=1" "CLICOLOR=0" "TERM=dumb"; do
    on_terminal "$stty_cols FAIL=1 $how '$zlaunch' --num_gpus 2 -- '$tmp/rank' 2"
    check "$how: not one escape sequence" sh -c "! grep -q $'\x1b' '$tmp/out'"
done
on_terminal "$stty_cols FAIL=1 '$zlaunch' --color never --num_gpus 2 -- '$tmp/rank' 2"
check "--color never: not one escape sequence" sh -c "! grep -q $'\x1b' '$tmp/out'"
on_terminal "$stty_cols CI=true '$zlaunch' -- '$tmp/rank' 3"
check "CI: plain lines" test "$(tr -d '\r' <"$tmp/out" | grep -c '^step ')" = 3
on_terminal "$stty_cols TERM=dumb '$zlaunch' -- '$tmp/rank' 3"
check "dumb terminal: plain lines" test "$(tr -d '\r' <"$tmp/out" | grep -c '^step ')" = 3

launch --num_gpus 2 -- "$tmp/rank" 5
check "no terminal: one plain line a step" test "$(grep -c '^step [0-9]*/40  loss 2.5000  lr 0.0003  grad nan  12.3k tok/s  50% of GEMM peak  mem 1.0 MiB  eta 5s$' "$tmp/err")" = 5
check "no terminal: no carriage return, no escape" sh -c "! grep -q $'[\r\x1b]' '$tmp/out' '$tmp/err'"
check "progress goes to stderr, results to stdout" test "$(cat "$tmp/out")" = "to be or not"
launch --color always -- sh -c 'exit 3'
check "--color always: colour without a terminal" grep -q $'\x1b\[1;31m' "$tmp/err"
launch -q -- "$tmp/rank" 5
check "-q: results only" test "$(cat "$tmp/out" "$tmp/err")" = "to be or not"
launch --log_format json -- "$tmp/rank" 1
check "json: the step's fields are numbers as they came" out_has '"event":"step","rank":0,"step":1,"total_steps":40,"loss":2.5,"lr":0.0003,"grad_norm":"NaN","tokens_per_s":12345.0'
FAIL=1 launch --num_gpus 2 -- "$tmp/rank" 1
check "a reported failure is told" err_has "error: ds.json:1:2: unknown key"
check "and once" test "$(grep -c 'unknown key' "$tmp/err")" = 1
check "with its code" code_is 65

# a start that takes long says what it is at: rank 0 waits for rank 1, and that one for us
mkfifo "$tmp/go"
launch_bg --num_gpus 2 -- sh -c '[ "$RANK" = 0 ] || read -r _ <"$0"; exec "$@"' "$tmp/go" "$bin/zworker" "$bin/models/gpt2.so" \
    --n_layer 1 --n_head 1 --n_embd 16 --block_size 16 --max_steps 2 --train_file README.md
check "a start that takes long says what it is at" within 30 err_has "start: meeting the other ranks"
echo >"$tmp/go"
wait "$job"
code=$?
check "and goes on" code_is 0

# no line of a help is longer than the terminal is wide, from 60 columns on
longest() { COLUMNS=$1 "${@:2}" 2>&1 </dev/null | awk '{ n = length($0); if (n > most) most = n } END { print most }'; }
for columns in 60 75 80 110; do
    for help in "$zlaunch" "$bin/zworker" "$bin/zworker $bin/models/gpt2.so" "$bin/zckpt" "$bin/zckpt convert" "$bin/zero_to_fp32" "$bin/ztok" "$bin/zio"; do
        # shellcheck disable=SC2086 # a program and its words
        check "$columns columns: ${help##*/} --help" [ "$(longest $columns $help --help)" -le $columns ]
    done
    check "$columns columns: zlaunch --help_all" [ "$(longest $columns "$zlaunch" --help_all)" -le $columns ]
done
check "a terminal's own width counts" sh -c "! script -qec \"stty cols 66; '$zlaunch' --help\" /dev/null </dev/null | tr -d '\r' | grep -q '.\{67\}'"
finish
