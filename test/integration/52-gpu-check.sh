#!/bin/bash
# scripts/gpu_check on the shim: its parts that train pass, and say so in text and in JSON; what
# is wrong is a failure that is told. No PyTorch is asked for.
. "$(dirname "$0")/train_lib.sh"
backends=build/${ZT_VARIANT:-release}/shim/backends
if [ ! -e "$backends/cuda.so" ]; then
    echo "$backends/cuda.so is not built"
    exit 77
fi
export GPU_CHECK_SHIM=1 GPU_CHECK_SHIM_BACKENDS=$backends ZT_PYTHON=

scripts/gpu_check "$tmp/out" >"$tmp/screen" 2>&1
check "exit code 0" test $? -eq 0
check "the last line says that all passed" grep -q '^gpu-check: all passed, in [0-9]* s$' <(tail -n 1 "$tmp/screen")
check "the summary is what the screen showed last" \
    diff "$tmp/out/summary.txt" <(tail -n "$(wc -l <"$tmp/out/summary.txt")" "$tmp/screen")
for part in train identity memory toy; do
    check "$part passed" grep -q "^{\"part\":\"$part\",\"state\":\"ok\",\"seconds\":[0-9]*}$" "$tmp/out/results.jsonl"
done
check "no claim failed" test "$(grep -c '^not ok' "$tmp/out/training.log")" -eq 0
check "there were claims" test "$(grep -c '^ok - ' "$tmp/out/training.log")" -gt 12
check "every figure of a line is a number or null" \
    awk '!/^\{("[a-zA-Z_0-9]+":(-?[0-9.e+-]+|null|"[^"]*"),?)+\}$/ { print "# " $0; bad = 1 } END { exit bad || !NR }' "$tmp/out/results.jsonl"
check "speed has a figure" grep -q '"bench":"gpu_training","shape":"toy","who":"zlaunch".*"tokens_per_s":[1-9]' "$tmp/out/results.jsonl"

GPU_CHECK_SECONDS=3 scripts/gpu_check "$tmp/late" >"$tmp/screen" 2>&1
check "what there is no time for is skipped" grep -q '^memory *skipped: no time left' "$tmp/screen"
check "and that is not called passed" grep -q '^gpu-check: nothing failed' <(tail -n 1 "$tmp/screen")
mkdir "$tmp/broken"
echo broken >"$tmp/broken/cuda.so"
GPU_CHECK_SHIM_BACKENDS=$tmp/broken scripts/gpu_check "$tmp/failed" "" memory >"$tmp/screen" 2>&1
check "a backend that does not load fails" test $? -eq 1
check "and what failed is named" grep -q '^gpu-check: FAILED: .*memory' "$tmp/screen"
scripts/gpu_check "$tmp/x" "" no-such-part >"$tmp/screen" 2>&1
check "an unknown part is refused" test $? -eq 64

# ---- a figure with attention by slow kernels is none ----
export ZLAUNCH_CUDA_BACKEND=$PWD/$backends/cuda.so
ZLAUNCH_CUDNN_BACKEND=$tmp/none.so bench/run_gpu --no-peer --steps 1 toy >"$tmp/screen" 2>&1
check "bench/run_gpu refuses a cuDNN that does not load" test $? -ne 0
check "and says why" grep -q 'toy Qwen2.5: no figure: attention is not cuDNN.s: .*cuDNN cannot be used' "$tmp/screen"
check "and has no figure" test "$(grep -c '^  zlaunch ' "$tmp/screen")" -eq 0
ZLAUNCH_CUDNN_BACKEND=$tmp/none.so bench/run_gpu --no-peer gpt2-124m >"$tmp/screen" 2>&1
check "and a build without it" grep -q 'gpt2-124m: no figure: there is no .*none.so' "$tmp/screen"
[ "$failures" -eq 0 ] || cat "$tmp/screen" "$tmp/out/summary.txt" "$tmp"/out/*.log
finish
