#!/bin/bash
# make install: what it puts where works from any folder, and make uninstall takes it away again.
. "$(dirname "$0")/launch_lib.sh"
[ "$bin" = bin ] || { echo "# the everyday build is what is installed"; exit 77; }
quiet_make() { env -u MAKEFLAGS -u MAKELEVEL make -s "$@" >"$tmp/out" 2>"$tmp/err"; }
src=$PWD
p=$tmp/prefix

quiet_make install-files PREFIX="$p"
check "make install" test $? -eq 0
cp README.md "$tmp/text.txt"
cd "$tmp" || exit 1
zlaunch=$p/bin/zlaunch
tiny=(--n_layer 1 --n_head 1 --n_embd 16 --block_size 16 --train_file text.txt --max_steps 2)
launch --num_gpus 2 gpt2.so "${tiny[@]}"
check "a plugin that ships is found by its name from another folder" err_has "step 2/2"
launch --num_gpus 1 gpt2.so "${tiny[@]}" --deepspeed "$p/share/zlaunch/ds_configs/zero1.json"
check "the configs are there" code_is 0
for program in "$p"/bin/*; do
    "$program" --help >"$tmp/out" 2>&1
    check "${program##*/} runs" test $? -eq 0 -a -s "$tmp/out"
    case $program in
    *zworker) ;; # its completion is that of zlaunch
    *) check "  and has a completion" bash -n "$p/share/bash-completion/completions/${program##*/}" ;;
    esac
    check "  and a manual page" grep -q '^\.TH' "$p/share/man/man1/${program##*/}.1"
done
check "the keys of a config are a page" grep -q zero_optimization "$p/share/man/man5/zlaunch-config.5"

if command -v cc pkg-config >/dev/null; then
    awk '/^```c$/ { on = 1; next } /^```/ { if (on) exit } on' "$src/docs/PLUGINS.md" >bigram.c
    export PKG_CONFIG_PATH=$p/lib/pkgconfig
    # shellcheck disable=SC2046
    cc -O2 -shared -fPIC $(pkg-config --cflags zlaunch) -o bigram.so bigram.c
    check "a plugin of one's own compiles by pkg-config" test $? -eq 0
    launch --num_gpus 1 ./bigram.so --block_size 16 --train_file text.txt --max_steps 2
    check "  and trains" err_has "step 2/2"
    mkdir mine && mv bigram.so mine
    ZLAUNCH_PLUGIN_PATH=$tmp/mine launch --num_gpus 1 bigram.so --block_size 16 --train_file text.txt --max_steps 2
    check "  found by ZLAUNCH_PLUGIN_PATH" err_has "step 2/2"
    mkdir dist && cat >dist/tool.c <<'END'
#include <stdio.h>
#include <zlaunch/checkpoint.h>
int main(int argc, char **argv)
{
    zt_checkpoint *c;
    char why[512];
    float x[16];

    if (argc != 2 || zt_checkpoint_open(argv[1], NULL, &c, why, sizeof(why)) != ZT_OK)
        return puts(why), 1;
    if (zt_checkpoint_read(c, zt_checkpoint_find(c, "transformer.ln_f.weight"), 0, 16, x, why, sizeof(why)) != ZT_OK)
        return puts(why), 2;
    for (int i = 0; i < zt_checkpoint_count(c); i++)
        printf("%s %lld\n", zt_checkpoint_at(c, i)->name, (long long)zt_checkpoint_at(c, i)->numel);
    zt_checkpoint_close(c);
    return zt_dtype_bytes(ZT_F32) != 4;
}
END
    # shellcheck disable=SC2046
    cc -o dist/tool dist/tool.c $(pkg-config --cflags --libs zcheckpoint)
    check "and a program that reads checkpoints" test $? -eq 0
    launch --num_gpus 1 gpt2.so "${tiny[@]}" --output_dir saved
    LD_LIBRARY_PATH=$p/lib dist/tool saved >"$tmp/out"
    check "  it runs" test $? -eq 0
    check "  and names each tensor" out_has "transformer.wte.weight 4112"
fi

cd "$src" || exit 1
quiet_make install-files PREFIX=/opt/z DESTDIR="$tmp/root"
check "DESTDIR goes in front" test -x "$tmp/root/opt/z/bin/zworker"
check "  and is in no file" grep -qx 'prefix=/opt/z' "$tmp/root/opt/z/lib/pkgconfig/zlaunch.pc"
quiet_make uninstall PREFIX="$p"
check "make uninstall" test $? -eq 0
check "  leaves no file: $(find "$p" ! -type d | tr '\n' ' ')" test -z "$(find "$p" ! -type d)"
finish
