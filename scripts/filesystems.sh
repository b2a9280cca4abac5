#!/usr/bin/env bash
# Runs the tests with their temporary directories on ext4 (with and without file types in its directories), xfs, btrfs,
# tmpfs and overlayfs, and checks trees on the read-only squashfs and erofs. On ext4, xfs, btrfs and overlayfs they run once
# more in the cold mode, while the machine's caches are dropped again and again. Needs root, loop devices and the tools of
# each file system; a file system without its tools is skipped with the reason. Installs nothing.
#
# These names run no tests but those of File.Replace on the last line. They check trees, warm and cold, with each backend:
#   ext4-inline, ext4-encrypted (with its key, without, with it again), btrfs-compressed (zstd, lzo, zlib)
#   ext4-immutable, xfs-immutable, btrfs-immutable (and append-only, as root and another user), xfs-reflink, btrfs-reflink
#   nfs3, nfs4, smb, f2fs, jfs, nilfs2, reiserfs, udf, vfat: also while others write, and in a user-mode Linux (uml.sh)
#
# With -incremental, only the tests of packages incremental and watch run, with COUNT random histories of a tree and COUNT rounds of each
# test of faults. On ext4-seconds, whose times are in whole seconds, only the histories run.
#
# Usage: filesystems.sh [-soak DURATION | -incremental COUNT] [NAME]...
# Each NAME is one of ext4 ext4-untyped ext4-seconds xfs btrfs tmpfs overlay squashfs erofs, or one of the names above.
# Without a NAME, all of them run; with -incremental, those that the tests of package incremental can write to.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
export CGO_ENABLED=0

in_uml=(nfs3 nfs4 smb f2fs jfs nilfs2 reiserfs udf vfat)
trees=(ext4-inline ext4-encrypted ext4-immutable xfs-immutable btrfs-immutable btrfs-compressed xfs-reflink btrfs-reflink "${in_uml[@]}")
# What formats an image of a file system, and with which options for a name. The system is what comes before the name's dash.
declare -A mkfs=([ext4]="mkfs.ext4 -q -F" [xfs]="mkfs.xfs -q -f" [btrfs]="mkfs.btrfs -q -f" [jfs]="mkfs.jfs -q" [reiserfs]="mkfs.reiserfs -q -ff"
	[udf]=mkudffs [f2fs]=mkfs.f2fs [nilfs2]=mkfs.nilfs2 [vfat]=mkfs.vfat)
declare -A options=([ext4-untyped]="-O ^filetype" [ext4-seconds]="-I 128" [ext4-inline]="-O inline_data" [ext4-encrypted]="-O encrypt")

# Without $FILEPROC_BUILT, a directory of programs, the script builds these and calls itself for each name.
if [ -z "${FILEPROC_BUILT:-}" ]; then
	export FILEPROC_BUILT=$tmp FILEPROC_SOAK=10s
	case "${1:-}" in
	-soak)
		FILEPROC_SOAK=$2
		shift 2
		;;
	-incremental)
		export FILEPROC_HISTORIES=$2 FILEPROC_FAULTS=$2 FILEPROC_WATCHED=${FILEPROC_WATCHED:-$2}
		shift 2
		[ $# -gt 0 ] || set -- ext4 ext4-seconds xfs btrfs tmpfs overlay
		;;
	esac
	[ $# -gt 0 ] || set -- ext4 ext4-untyped ext4-seconds xfs btrfs tmpfs overlay squashfs erofs "${trees[@]}"
	[ "$(uname)" = Linux ] && [ "$(id -u)" = 0 ] || { skip "mounting needs Linux and root"; exit 0; }
	chmod 755 "$tmp" # another user runs some of the tests
	for package in incremental incremental/internal/cachefile watch . tests internal/uring; do
		go test -c -o "$tmp/test-${package//\//-}" "./$package"
	done
	for backend in linux unix generic; do
		go -C scripts build -tags "fileproc_$backend" -o "$tmp/break-$backend" ./break
	done
	failed=()
	for name; do
		start=$SECONDS status=0
		echo "== $name"
		if is "$name" "${in_uml[@]}"; then
			scripts/uml.sh env FILEPROC_BUILT="$tmp" FILEPROC_SOAK="$FILEPROC_SOAK" scripts/filesystems.sh "$name" >"$tmp/err" 2>&1 || status=$?
			case $status in
			0) grep '^   ' "$tmp/err" ;;
			125) cat "$tmp/err" && status=0 ;;
			*) cat "$tmp/err" ;;
			esac
		else
			scripts/filesystems.sh "$name" || status=$?
		fi
		[ "$status" = 0 ] || { echo "   FAILED" && failed+=("$name"); }
		echo "   $((SECONDS - start)) s"
	done
	[ ${#failed[@]} = 0 ] || { echo "failed on: ${failed[*]}"; exit 1; }
	exit
fi

name=$1 built=$FILEPROC_BUILT soak=$FILEPROC_SOAK fs=${1%%-*} at=$tmp/$1
runs=60 # of check_tree
! is "$name" "${in_uml[@]}" || runs=4
chmod 755 "$tmp"

mounted=()
cleanup() {
	local i
	for ((i = ${#mounted[@]} - 1; i >= 0; i--)); do
		umount "${mounted[i]}" || umount -l "${mounted[i]}" || true
	done
}

leave() { skip "$1" && exit; }
needs() { has "$@" || exit 0; }

# attach mounts something at a directory.
attach() {
	mkdir -p "$1"
	mount "${@:2}" "$1" 2>"$tmp/err" || leave "cannot be mounted: $(head -n 1 "$tmp/err")"
	mounted+=("$1")
}

image() { # directory, file system, formatting command
	needs "$3"
	truncate -s 1G "$1.img"
	"${@:3}" "$1.img" >/dev/null 2>"$tmp/err" || leave "$3 fails: $(head -n 1 "$tmp/err")"
	attach "$1" -t "$2" -o loop "$1.img"
}

# run_tests runs the tests of packages, with their temporary directories on the file system.
run_tests() { # packages, flags of the tests
	local package
	for package in $1; do
		(cd "$package" && TMPDIR=$at "$built/test-${package//\//-}" -test.timeout 180m -test.v "${@:2}") >>"$tmp/log" 2>&1 || { failures && return 1; }
	done
}

# run_cold runs the tests in the cold mode. Files that were written since the last sync stay in the cache, so only some
# reads wait for the disk; the tests meet windows that are cached, uncached and in between.
run_cold() {
	local dropper status=0
	while sleep 0.3; do
		sync -f "$at"
		echo 3 >/proc/sys/vm/drop_caches || exit
	done &
	dropper=$!
	FILEPROC_TEST_COLD=1 run_tests ". tests internal/uring" -test.short || status=1
	kill "$dropper"
	[ "$status" = 0 ] || echo "   that was in the cold mode"
	return "$status"
}

run_all() {
	chmod 1777 "$at"
	case $name in
	ext4-seconds) run_tests incremental -test.run Histories ;; # the content decides there; the others assume finer times
	*) run_tests "incremental/internal/cachefile incremental watch" ;;
	esac
	sed -En 's/^ +[a-z_]+\.go:[0-9]+: ([0-9]+ (histories|rounds))/   \1/p' "$tmp/log"
	[ -z "${FILEPROC_HISTORIES:-}" ] && [ "$name" != ext4-seconds ] || return 0
	run_tests ". tests internal/uring" -test.short
	{ grep -o 'left out: .*' "$tmp/log" || true; } | sort | uniq -c | sed 's/^ */   /'
	! is "$name" ext4 xfs btrfs overlay || run_cold
	"$built/break-linux" churn -for "$soak" -dir "$at"
}

make_tree() { "$built/break-linux" tree -make "$1" -seed 7; }
check() { "$built/break-$1" tree -check "$2" -seed 7 -runs "${@:3}" | sed "s/^/   $1: /"; } # backend, directory, number, flags

# check_tree checks the tree of make_tree in a directory: warm and cold, then warm with the other backends.
check_tree() { # directory, flags of break tree
	echo "   ${1#"$tmp"/}:"
	check linux "$1" "$runs" "${@:2}"
	check linux "$1" $(((runs + 3) / 4)) "${@:2}" -cold
	check unix "$1" $(((runs + 2) / 3)) "${@:2}"
	check generic "$1" $(((runs + 2) / 3)) "${@:2}"
}

# count_files prints how many files have a flag of lsattr, or an extent with a flag of filefrag, and fails if none has it:
# the tree would then not test what it is for.
count_files() { # directory, flag
	local n
	sync -f "$1"
	case $2 in
	?) n=$(lsattr -R "$1" 2>/dev/null | awk -v flag="$2" 'NF == 2 && index($1, flag)' | wc -l) ;;
	*) n=$(find "$1" -type f -size +0 -print0 | xargs -0 filefrag -v | awk -v flag="$2" '/^File size of/ { new = 1 } new && $NF ~ flag { n++; new = 0 } END { print n + 0 }') ;;
	esac
	echo "   ${1#"$tmp"/}: $n with the flag $2"
	[ "$n" != 0 ]
}

# check_made makes a tree, counts the files with flags, and checks it.
check_made() { # directory, flags of count_files
	local flag
	make_tree "$1"
	for flag in "${@:2}"; do
		count_files "$1" "$flag"
	done
	check_tree "$1"
}

test_inline() { check_made "$at/tree" N; }

add_key() { printf 'fileproc%.0s' {1..8} | xfs_io -c add_enckey "$at" | sed 's/.* //'; } # prints its identifier

test_encrypted() {
	local id locked
	needs xfs_io
	mkdir "$at/dir"
	id=$(add_key)
	[ -n "$id" ] && xfs_io -c "set_encpolicy -v 2 $id" "$at/dir" || leave "the kernel does not encrypt"
	make_tree "$at/dir/tree"
	count_files "$at/dir" E
	check_tree "$at/dir/tree"
	sync -f "$at"
	xfs_io -c "rm_enckey $id" "$at" >/dev/null
	locked=$(echo "$at"/dir/*) # the tree has another name without the key
	[ "$locked" != "$at/dir/tree" ] || { echo "   the key is still there"; return 1; }
	check_tree "$locked" -locked
	add_key >/dev/null
	check_tree "$at/dir/tree"
}

test_immutable() {
	make_tree "$at/tree"
	find "$at/tree" -name '*.a' -print0 | xargs -0 chattr +i
	find "$at/tree" -name '*.b' -print0 | xargs -0 chattr +a
	find "$at/tree" -mindepth 1 -type d -name '*[02468]' -print0 | xargs -0 chattr +i
	find "$at/tree" -type d -name '*[13579]' -print0 | xargs -0 chattr +a
	chattr +i "$at/tree"
	count_files "$at/tree" i
	count_files "$at/tree" a
	check_tree "$at/tree"
	needs setpriv
	TMPDIR=/tmp setpriv --reuid=65534 --regid=65534 --clear-groups "$built/break-linux" tree -check "$at/tree" -seed 7 -runs 20 | sed 's/^/   another user: /'
}

test_compressed() {
	local algorithm
	for algorithm in zstd lzo zlib; do
		mount -o "remount,compress-force=$algorithm" "$at"
		check_made "$at/$algorithm" inline encoded
	done
}

test_reflink() {
	make_tree "$at/tree"
	cp -a --reflink=always "$at/tree" "$at/copy"
	count_files "$at/copy" shared
	check_tree "$at/tree"
	check_tree "$at/copy"
}

# test_changing checks a tree that stands still, and then ones that change. On a server, the first is written there.
test_changing() {
	local there=$at
	[ ! -d "$tmp/export" ] || there=$tmp/export
	make_tree "$there/tree"
	check_tree "$at/tree"
	"$built/break-linux" churn -for "$soak" -dir "$at" | sed 's/^/   churn: /'
}

# test_replace runs the tests of File.Replace that need no links, no modes, no exact times and no exchange of names. On SMB, the
# syncs of TestDurable take too long, and files that TestInvariant11Replace has just written get another time a second later.
test_replace() {
	local skip='^$'
	[ "$name" != smb ] || skip='^Test(Durable|Invariant11Replace)$'
	run_tests tests -test.skip "$skip" -test.run '^TestInvariant11(Replace|Killed|Temporaries|Leftovers)$|^TestReplace(Again|ThenEnd)$|^TestDurable$'
	echo "   Replace: $(grep -c '^--- PASS' "$tmp/log") tests pass"
}

# serve makes what a server exports: ext4, or tmpfs for nfs4, whose positions in a directory do not survive a change before Linux 6.6.
serve() { # commands that are needed
	needs "$@"
	case $name in
	nfs4) attach "$tmp/export" -t tmpfs -o size=1g tmpfs ;;
	*) image "$tmp/export" ext4 mkfs.ext4 -q -F ;;
	esac
	chmod 1777 "$tmp/export"
}

case $name in
nfs3 | nfs4)
	serve exportfs rpcbind rpc.mountd rpc.nfsd mount.nfs
	mount -t tmpfs nfs /var/lib/nfs
	mkdir /var/lib/nfs/{sm,sm.bak,v4recovery,rpc_pipefs}
	touch /var/lib/nfs/{etab,rmtab,state}
	{
		mount -t nfsd nfsd /proc/fs/nfsd &&
			exportfs -o rw,no_root_squash,insecure,no_subtree_check,fsid=0 "127.0.0.1:$tmp/export" &&
			rpcbind -w && rpc.mountd && rpc.nfsd 4
	} >"$tmp/err" 2>&1 || leave "no server: $(tail -n 1 "$tmp/err")"
	if [ "$name" = nfs3 ]; then attach "$at" -t nfs -o vers=3,nolock "127.0.0.1:$tmp/export"; else attach "$at" -t nfs -o vers=4.2 127.0.0.1:/; fi
	;;
smb)
	serve smbd mount.cifs
	for dir in /var/lib/samba /var/cache/samba /var/log; do
		mount -t tmpfs smb "$dir"
	done
	mkdir -p /var/lib/samba/private /run/samba
	printf '%s\n' '[global]' 'map to guest = bad user' 'guest account = root' 'server role = standalone' 'log file = /run/samba/log' \
		'[export]' "path = $tmp/export" 'guest ok = yes' 'read only = no' 'force user = root' >"$tmp/smb.conf"
	{ smbd -s "$tmp/smb.conf" -D && timeout 60 bash -c 'until : </dev/tcp/127.0.0.1/445; do sleep 1; done'; } >"$tmp/err" 2>&1 ||
		leave "no server: $(tail -n 1 "$tmp/err")"
	attach "$at" -t cifs -o guest,ip=127.0.0.1 //127.0.0.1/export
	;;
tmpfs) attach "$at" -t tmpfs -o size=1g tmpfs ;;
overlay)
	# On tmpfs: $tmp may be on an overlay, which does not have the extended attributes that an upper directory needs.
	attach "$tmp/base" -t tmpfs -o size=1g tmpfs
	mkdir "$tmp"/base/{lower,upper,work}
	attach "$at" -t overlay -o "lowerdir=$tmp/base/lower,upperdir=$tmp/base/upper,workdir=$tmp/base/work" overlay
	;;
squashfs | erofs)
	make_tree "$tmp/tree"
	case $name in
	squashfs) needs mksquashfs && mksquashfs "$tmp/tree" "$at.img" -quiet -no-progress >/dev/null ;;
	erofs) needs mkfs.erofs && mkfs.erofs "$at.img" "$tmp/tree" >/dev/null 2>&1 ;;
	esac
	attach "$at" -t "$name" -o loop,ro "$at.img"
	;;
*)
	[ -n "${mkfs[$fs]:-}" ] || { echo "filesystems: unknown file system $name" >&2; exit 1; }
	# shellcheck disable=SC2086 # several words
	image "$at" "$fs" ${mkfs[$fs]} ${options[$name]:-}
	;;
esac
if is "$name" squashfs erofs; then
	check linux "$at" 100
elif is "$name" "${in_uml[@]}"; then
	test_replace
	test_changing
	exit # the kernel ends with what is mounted
elif is "$name" "${trees[@]}"; then
	"test_${name#*-}"
else
	run_all
fi
umount "$at" # fails if the tests have left a file open
unset "mounted[-1]"
