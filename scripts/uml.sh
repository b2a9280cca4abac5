#!/usr/bin/env bash
# Runs a command as root of a user-mode Linux, for file systems and servers that the machine does not have or should not get.
# The command sees the machine's files and cannot change them: what it writes goes to memory, to /run, where TMPDIR is too. Its
# status is the script's, which is 125 if there can be no such system. Needs linux.uml and its modules (Debian's
# user-mode-linux) and modprobe (kmod), but no root.
# Usage: uml.sh COMMAND [ARG]...
[ $# != 0 ] || set -- --help
dir=$PWD
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
export PATH=$PATH:/usr/sbin:/sbin
has linux.uml modprobe || exit 125
modules=$(echo /usr/lib/uml/modules/*)
[ -d "$modules" ] || { skip "no modules, or those of more than one kernel: $modules"; exit 125; }

mkdir "$tmp/out"
cat >"$tmp/init" <<END
#!/bin/bash
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t tmpfs -o size=3g,mode=755 run /run
mkdir -p /run/tmp /run/out /run/modules/lib
mount -t hostfs -o $(printf %q "$tmp/out") none /run/out
chmod 1777 /run/tmp
export PATH=$(printf %q "$PATH") HOME=/root TMPDIR=/run/tmp
ip link set lo up
ln -s /usr/lib/uml/modules /run/modules/lib/modules
printf '#!/bin/sh\nexec %s -d /run/modules "\$@"\n' $(printf %q "$(command -v modprobe)") >/run/modprobe # the kernel calls it
chmod +x /run/modprobe
echo /run/modprobe >/proc/sys/kernel/modprobe
/run/modprobe loop
cd $(printf %q "$dir")
$(printf '%q ' "$@")
echo \$? >/run/out/status
echo o >/proc/sysrq-trigger
sleep 60
END
chmod +x "$tmp/init"
shared=$tmp # the kernel's memory is a file there. Not $memory, which is removed at the end: see lib.sh
[ ! -w /dev/shm ] || shared=/dev/shm
TMPDIR=$shared linux.uml mem=4G rootfstype=hostfs root=/dev/root ro init="$tmp/init" quiet loglevel=1 con=null con0=null,fd:1 \
	con1=null </dev/null 2>&1 | sed -u 's/\r$//' || true
status=$(cat "$tmp/out/status" 2>/dev/null || true)
[[ $status =~ ^[0-9]+$ ]] || { echo "uml: the kernel has ended before the command" >&2; exit 1; }
exit "$status"
