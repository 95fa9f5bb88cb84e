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
order="report train toy profile identity memory large"
check "what decides comes first" test "$(sed -n 's/^{"part":"\([a-z]*\)",.*/\1/p' "$tmp/out/results.jsonl" | xargs)" = "$order"
for part in $order; do
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
CUDA_VISIBLE_DEVICES=99 GPU_CHECK_SHIM=0 scripts/gpu_check "$tmp/none" >"$tmp/screen" 2>&1
check "without a device there is nothing to check" test $? -eq 69
check "and that is the one line" test "$(cat "$tmp/screen")" = "gpu-check: this machine has no GPU: nvidia-smi names no device 99"
scripts/gpu_check "$tmp/x" "" no-such-part >"$tmp/screen" 2>&1
check "an unknown part is refused" test $? -eq 64

# ---- kernels of a step, by a stand-in for ncu ----
cat >"$tmp/ncu" <<'END'
#!/bin/bash
while [ "${1#-}" != "$1" ]; do
    case $1 in --metrics | --clock-control | --cache-control | --print-units | --target-processes) shift ;; esac
    shift
done
[ -z "${NCU_REFUSES:-}" ] || { echo "==ERROR== ERR_NVGPUCTRPERM - no permission to access GPU counters" && exit 1; }
"$@" >/dev/null || exit
echo '==PROF== Connected'
echo '"ID","Process ID","Kernel Name","Metric Name","Metric Unit","Metric Value"'
for id in 0 1; do
    echo "\"$id\",\"7\",\"void norm_kernel<int>(rows, float *)\",\"gpu__time_duration.sum\",\"nsecond\",\"1,500,000\""
    echo "\"$id\",\"7\",\"void norm_kernel<int>(rows, float *)\",\"dram__bytes_read.sum\",\"byte\",\"2,000,000,000\""
    echo "\"$id\",\"7\",\"void norm_kernel<int>(rows, float *)\",\"dram__bytes_write.sum\",\"byte\",\"1,000,000,000\""
done
END
chmod +x "$tmp/ncu"
NCU=$tmp/ncu ZLAUNCH_CUDA_BACKEND=$PWD/$backends/cuda.so bench/profile_step toy >"$tmp/screen" 2>&1
check "kernels of a name are one line" grep -q '^  norm_kernel  *2 *3.000 *6.00 *2000$' "$tmp/screen"
check "and there is a sum" grep -q '^  all  *2 *3.000 *6.00 *2000$' "$tmp/screen"
NCU_REFUSES=1 NCU=$tmp/ncu bench/profile_step toy >"$tmp/screen" 2>&1
check "an ncu that may not count is said" test $? -eq 69
check "and why" grep -q 'ERR_NVGPUCTRPERM' "$tmp/screen"
NCU=$tmp/no-ncu bench/profile_step toy >"$tmp/screen" 2>&1
check "and so is none" test $? -eq 69

# ---- what a figure is compared with: products of one number draw less power ----
SHIM_REFUSE_ALIKE=1 ZLAUNCH_CUDNN_BACKEND=0 "${backends%/backends}/bench_cuda" limits >"$tmp/screen" 2>&1
check "the limits of a device are measured with random numbers" test $? -eq 0
check "and told" grep -q '^limits before  copy .* GB/s   bf16 product .* TFLOP/s$' "$tmp/screen"

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
