#!/usr/bin/env bash
# Runs a command as root of a user-mode Linux, for file systems and servers that the machine does not have or should not get.
# The command sees the machine's files and cannot change them: what it writes goes to memory, to /run, where TMPDIR is too. Its
# status is the script's, which is 125 if there can be no such system. Needs linux.uml and its modules (Debian's
# user-mode-linux) and modprobe (kmod), but no root; on a processor with AMX also a C compiler.
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

# A processor with AMX has more registers than linux.uml sets, and ptrace sets all of them or fails: "ptrace set fp regs failed".
# This ptrace adds the rest, as they are. Its buffer is static, as the stack that linux.uml calls it on has 16 KiB.
! command -v cc >/dev/null || cc -shared -fPIC -x c -o "$tmp/ptrace.so" - -ldl <<'END' || true
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>
#include <sys/uio.h>
long ptrace(int request, long pid, long set, struct iovec *registers)
{
	long (*next)(int, ...) = (long (*)(int, ...))dlsym(RTLD_NEXT, "ptrace");
	static char buffer[1 << 16];
	struct iovec all = {buffer, sizeof buffer};
	/* PTRACE_SETREGSET, NT_X86_XSTATE, PTRACE_GETREGSET */
	if (request == 0x4205 && set == 0x202 && next(0x4204, pid, set, &all) == 0 && all.iov_len > registers->iov_len) {
		memcpy(buffer, registers->iov_base, registers->iov_len);
		registers = &all;
	}
	return next(request, pid, set, registers);
}
END
preload=
[ ! -e "$tmp/ptrace.so" ] || preload=ptrace.so
LD_LIBRARY_PATH=$tmp LD_PRELOAD=$preload TMPDIR=$shared linux.uml mem=4G rootfstype=hostfs root=/dev/root ro init="$tmp/init" quiet \
	con=null con0=null,fd:1 con1=null </dev/null 2>&1 | sed -u 's/\r$//' || true
status=$(cat "$tmp/out/status" 2>/dev/null || true)
[[ $status =~ ^[0-9]+$ ]] || { echo "uml: the kernel has ended before the command" >&2; exit 1; }
exit "$status"
