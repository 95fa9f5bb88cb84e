#!/bin/bash
# An arrow between rooms that scripts/rooms does not list, or a circle of files, stops the build.
. "$(dirname "$0")/train_lib.sh"
objects=$PWD/build/${ZT_VARIANT:-release}
mkdir "$tmp/src"
cp -r common include kernels launcher models scripts store worker backends "$tmp/src"

look() { # look: check the copy against the objects of this build
    "$tmp/src/scripts/check_rooms" "$objects" >"$tmp/said" 2>&1
}
refuses() { # refuses WORDS...: the copy as it is now, and says so
    ! look && grep -qE -- "$1" "$tmp/said"
}
plant() { # plant FILE INCLUDED
    cp "$tmp/src/$1" "$tmp/kept"
    sed -i "1i #include \"$2\"" "$tmp/src/$1"
}

check "the tree as it is passes" look
plant launcher/ctl/ctl.h launcher/ssh/ssh.h
check "an include that is not listed is refused by name" \
    refuses 'launcher/ctl may not use launcher/ssh: launcher/ctl/ctl.h includes launcher/ssh/ssh.h'
cp "$tmp/kept" "$tmp/src/launcher/ctl/ctl.h"
plant kernels/backend.h kernels/cpu/cpu.h
check "a circle is refused although both rooms may use each other" \
    refuses 'in a circle: kernels/(cpu/cpu.h includes kernels/backend.h|backend.h includes kernels/cpu/cpu.h)'
cp "$tmp/kept" "$tmp/src/kernels/backend.h"
sed -i 's|^launcher/ssh:.*|launcher/ssh: common|' "$tmp/src/scripts/rooms"
check "a call counts as an include does" refuses 'launcher/ssh may not use launcher/start: .* calls zt_find_zworker'
mkdir "$tmp/src/worker/shed"
echo 'int zt_shed;' >"$tmp/src/worker/shed/shed.c"
check "a folder that nobody named is refused" refuses 'worker/shed is not in scripts/rooms'
rm -r "$tmp/src/worker/shed"
for i in $(seq 1 30); do echo "int zt_$i;" >"$tmp/src/worker/monitor/m$i.c"; done
check "a folder in which nothing is found is refused" refuses 'worker/monitor has more than 30 files'
finish
