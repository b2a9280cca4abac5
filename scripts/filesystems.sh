#!/usr/bin/env bash
# Runs the tests with their temporary directories on ext4 (with and without file types in its directories), xfs, btrfs,
# tmpfs and overlayfs, and checks trees on the read-only squashfs and erofs. On ext4, xfs, btrfs and overlayfs they run once
# more in the cold mode, while the machine's caches are dropped again and again. Needs root, loop devices and the tools of
# each file system; a file system without its tools is skipped with the reason. Installs nothing.
#
# These names run no tests. They check trees, warm and cold, with each backend:
#   ext4-inline        small files and small directories are in their inodes
#   ext4-encrypted     with the key; without it, when each file has to be a reported failure; with the key again
#   ext4-immutable, xfs-immutable, btrfs-immutable
#                      immutable and append-only files and directories, read as root and as another user
#   btrfs-compressed   zstd, lzo and zlib, with small files in the metadata
#   xfs-reflink, btrfs-reflink
#                      a tree and its reflinked copy
#   nfs3, nfs4, smb    on a server (nfs-kernel-server, samba and cifs-utils) of ext4, or of tmpfs for nfs4, also while others write
#   f2fs, jfs, nilfs2, reiserfs, udf, vfat
#                      the same, without a server
# From nfs3 on they run in a user-mode Linux (uml.sh), which leaves the machine's own servers alone, with fewer runs.
#
# With -incremental, only the tests of package incremental run, with COUNT random histories of a tree and COUNT rounds of each
# test of faults. On ext4-seconds, whose times are in whole seconds, only the histories run.
#
# Usage: filesystems.sh [-soak DURATION | -incremental COUNT] [NAME]...
# Each NAME is one of ext4 ext4-untyped ext4-seconds xfs btrfs tmpfs overlay squashfs erofs, or one of the names above.
# Without a NAME, all of them run; with -incremental, those that the tests of package incremental can write to.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
export CGO_ENABLED=0

in_uml=(nfs3 nfs4 smb f2fs jfs nilfs2 reiserfs udf vfat)
trees=(ext4-inline ext4-encrypted ext4-immutable xfs-immutable btrfs-immutable btrfs-compressed xfs-reflink btrfs-reflink "${in_uml[@]}")

soak=10s
incremental=
case "${1:-}" in
-soak)
	soak=$2
	shift 2
	;;
-incremental)
	incremental=$2
	shift 2
	[ $# -gt 0 ] || set -- ext4 ext4-seconds xfs btrfs tmpfs overlay
	;;
esac
[ $# -gt 0 ] || set -- ext4 ext4-untyped ext4-seconds xfs btrfs tmpfs overlay squashfs erofs "${trees[@]}"

if [ "$(uname)" != Linux ] || [ "$(id -u)" != 0 ]; then
	skip "mounting needs Linux and root"
	exit 0
fi

mounted=()
cleanup() {
	local i
	for ((i = ${#mounted[@]} - 1; i >= 0; i--)); do
		umount "${mounted[i]}" || umount -l "${mounted[i]}" || true
	done
}
chmod 755 "$tmp" # another user runs some of the tests

packages=(. tests internal/uring) # whose tests run on each file system
runs=60 # of check_tree
if [ -n "${FILEPROC_BUILT:-}" ]; then # called by run_in_uml
	runs=4
	cp "$FILEPROC_BUILT"/break* "$tmp"
else
	for package in incremental incremental/internal/cachefile "${packages[@]}"; do
		go test -c -o "$tmp/test-${package//\//-}" "./$package"
	done
	for backend in linux unix generic; do
		go -C scripts build -tags "fileproc_$backend" -o "$tmp/break-$backend" ./break
	done
	ln "$tmp/break-linux" "$tmp/break"
fi

# attach mounts an image or a tmpfs at $tmp/NAME.
attach() {
	mkdir -p "$tmp/$1"
	mount "${@:2}" "$tmp/$1" 2>"$tmp/err" || { skip "cannot be mounted: $(head -n 1 "$tmp/err")"; return 1; }
	mounted+=("$tmp/$1")
}

detach() {
	umount "$tmp/$1" # fails if the tests have left a file open
	mounted=("${mounted[@]:0:${#mounted[@]}-1}")
}

format() { # NAME, formatting command
	has "$2" || return 1
	truncate -s 1G "$tmp/$1.img"
	"${@:2}" "$tmp/$1.img" >/dev/null 2>"$tmp/err" || { skip "$2 fails: $(head -n 1 "$tmp/err")"; return 1; }
}

image() { format "$1" "${@:3}" && attach "$1" -t "$2" -o loop "$tmp/$1.img"; } # NAME, file system, formatting command

run_tests() { # directory
	chmod 1777 "$1"
	run_incremental "$1" || return 1
	[ -z "$incremental" ] && [ "${1##*/}" != ext4-seconds ] || return 0 # the others assume finer times
	run_packages "$1" || return 1
	{ grep -o 'left out: .*' "$tmp/log" || true; } | sort | uniq -c | sed 's/^ */   /'
	! is "${1##*/}" ext4 xfs btrfs overlay || run_cold "$1" || return 1
	"$tmp/break" churn -for "$soak" -seed 1 -dir "$1" -cold
}

# run_test runs the tests of a package, with their temporary directories in a directory.
run_test() { # directory, package, name of its tests, flags; the variables of the environment are in env
	(cd "$2" && env TMPDIR="$1" "${env[@]}" "$tmp/test-$3" -test.timeout 180m -test.v "${@:4}") >>"$tmp/log" 2>&1 || { failures && return 1; }
}

run_packages() { # directory, variables of the environment
	local package
	local -a env=("${@:2}")
	: >"$tmp/log"
	for package in "${packages[@]}"; do
		run_test "$1" "$package" "${package//\//-}" -test.short || return 1
	done
}

# run_incremental runs the tests of package incremental and its cache file; on ext4-seconds, where the content decides, the histories.
run_incremental() { # directory
	local package
	local -a args=() env=()
	[ "${1##*/}" != ext4-seconds ] || args=(-test.run Histories)
	[ -z "$incremental" ] || env=("FILEPROC_HISTORIES=$incremental" "FILEPROC_FAULTS=$incremental")
	: >"$tmp/log"
	for package in incremental/internal/cachefile incremental; do
		run_test "$1" "$package" "${package//\//-}" "${args[@]}" || return 1
	done
	sed -En 's/^ +[a-z_]+\.go:[0-9]+: ([0-9]+ (histories|rounds))/   \1/p' "$tmp/log"
}

# run_cold runs the tests in the cold mode. Files that were written since the last sync stay in the cache, so only some
# reads wait for the disk; the tests meet windows that are cached, uncached and in between.
run_cold() { # directory
	while sleep 0.3; do
		sync -f "$1"
		echo 3 >/proc/sys/vm/drop_caches || exit
	done &
	local dropper=$! status=0
	run_packages "$1" FILEPROC_TEST_COLD=1 || status=1
	kill "$dropper"
	wait "$dropper" 2>/dev/null || true
	[ "$status" = 0 ] || echo "   that was in the cold mode"
	return "$status"
}

check_image() { # NAME, file system, command that makes the image
	has "$3" || return 0
	[ -d "$tmp/tree" ] || "$tmp/break" tree -make "$tmp/tree" -seed 7
	if [ "$3" = mksquashfs ]; then
		mksquashfs "$tmp/tree" "$tmp/$1.img" -quiet -no-progress >/dev/null
	else
		"$3" "$tmp/$1.img" "$tmp/tree" >/dev/null 2>&1
	fi
	attach "$1" -t "$2" -o loop,ro "$tmp/$1.img" || return 0
	"$tmp/break" tree -check "$tmp/$1" -seed 7
	detach "$1"
}

# check_tree checks the tree of -make in a directory: warm and cold, then warm with the other backends.
check_tree() { # directory, flags of break tree
	local backend
	echo "   ${1#"$tmp"/}:"
	"$tmp/break" tree -check "$1" -seed 7 -runs "$runs" "${@:2}" | sed 's/^/   warm: /' || return 1
	"$tmp/break" tree -check "$1" -seed 7 -runs $(((runs + 3) / 4)) "${@:2}" -cold | sed 's/^/   cold: /' || return 1
	for backend in unix generic; do
		"$tmp/break-$backend" tree -check "$1" -seed 7 -runs $(((runs + 2) / 3)) "${@:2}" | sed "s/^/   $backend: /" || return 1
	done
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

make_tree() { "$tmp/break" tree -make "$1" -seed 7 "${@:2}"; }

test_inline() { # directory
	make_tree "$1/tree" && count_files "$1/tree" N && check_tree "$1/tree"
}

test_encrypted() { # directory
	if ! "$tmp/break" tree -encrypt "$1/dir" 2>"$tmp/err"; then
		skip "$(head -n 1 "$tmp/err")"
		return 0
	fi
	make_tree "$1/dir/tree" && count_files "$1/dir" E && check_tree "$1/dir/tree" || return 1
	sync -f "$1"
	"$tmp/break" tree -lock "$1" || return 1
	local locked
	locked=$(echo "$1"/dir/*) # the tree has another name without the key
	if [ "$locked" = "$1/dir/tree" ]; then
		echo "   the key is still there"
		return 1
	fi
	check_tree "$locked" -locked && "$tmp/break" tree -unlock "$1" && check_tree "$1/dir/tree"
}

test_immutable() { # directory
	make_tree "$1/tree" || return 1
	find "$1/tree" -name '*.a' -print0 | xargs -0 chattr +i || return 1
	find "$1/tree" -name '*.b' -print0 | xargs -0 chattr +a || return 1
	find "$1/tree" -mindepth 1 -type d -name '*[02468]' -print0 | xargs -0 chattr +i || return 1
	find "$1/tree" -type d -name '*[13579]' -print0 | xargs -0 chattr +a || return 1
	chattr +i "$1/tree" || return 1
	count_files "$1/tree" i && count_files "$1/tree" a && check_tree "$1/tree" || return 1
	has setpriv || return 0
	TMPDIR=/tmp setpriv --reuid=65534 --regid=65534 --clear-groups "$tmp/break" tree -check "$1/tree" -seed 7 -runs 20 | sed 's/^/   another user: /'
}

test_compressed() { # directory
	local algorithm
	for algorithm in zstd lzo zlib; do
		if ! mount -o "remount,compress-force=$algorithm" "$1" 2>"$tmp/err"; then
			skip "$algorithm: $(head -n 1 "$tmp/err")"
			continue
		fi
		make_tree "$1/$algorithm" -compressible || return 1
		count_files "$1/$algorithm" inline && count_files "$1/$algorithm" encoded || return 1
		check_tree "$1/$algorithm" -compressible || return 1
	done
}

test_reflink() { # directory
	make_tree "$1/tree" || return 1
	if ! cp -a --reflink=always "$1/tree" "$1/copy" 2>"$tmp/err"; then
		skip "$(head -n 1 "$tmp/err")"
		return 0
	fi
	count_files "$1/copy" shared && check_tree "$1/tree" && check_tree "$1/copy"
}

# test_changing checks a tree that stands still, and then one that changes. On a server, the first is written there.
test_changing() { # directory
	local at=$1
	[ ! -d "$tmp/export" ] || at=$tmp/export
	make_tree "$at/tree" && check_tree "$1/tree" || return 1
	"$tmp/break" listing -for "$soak" -dir "$1" | sed 's/^/   /' || return 1
	"$tmp/break" churn -for "$soak" -dir "$1" | sed 's/^/   churn: /'
}

# attach_export mounts what serve_nfs and serve_smb serve: ext4, or tmpfs, whose positions in a directory do not survive a change
# before Linux 6.6.
attach_export() { # NAME, commands that are needed
	local tool
	for tool in "${@:2}"; do
		has "$tool" || return 1
	done
	case $1 in
	nfs4) attach export -t tmpfs -o size=1g tmpfs || return ;;
	*) format export mkfs.ext4 -q -F && attach export -o loop "$tmp/export.img" || return ;;
	esac
	chmod 1777 "$tmp/export"
}

serve_nfs() {
	attach_export "$1" exportfs rpcbind rpc.mountd rpc.nfsd mount.nfs || return
	mount -t tmpfs nfs /var/lib/nfs
	mkdir /var/lib/nfs/{sm,sm.bak,v4recovery,rpc_pipefs}
	touch /var/lib/nfs/{etab,rmtab,state}
	{
		mount -t nfsd nfsd /proc/fs/nfsd &&
			exportfs -o rw,no_root_squash,insecure,no_subtree_check,fsid=0 "127.0.0.1:$tmp/export" &&
			rpcbind -w && rpc.mountd && rpc.nfsd 4
	} >"$tmp/err" 2>&1 || { skip "no server: $(tail -n 1 "$tmp/err")"; return 1; }
}

serve_smb() {
	local dir
	attach_export smb smbd mount.cifs || return
	for dir in /var/lib/samba /var/cache/samba /var/log; do
		mount -t tmpfs smb "$dir"
	done
	mkdir -p /var/lib/samba/private /run/samba
	printf '%s\n' '[global]' 'map to guest = bad user' 'guest account = root' 'server role = standalone' 'log file = /run/samba/log' \
		'[export]' "path = $tmp/export" 'guest ok = yes' 'read only = no' 'force user = root' >"$tmp/smb.conf"
	smbd -s "$tmp/smb.conf" -D >"$tmp/err" 2>&1 || { skip "no server: $(tail -n 1 "$tmp/err")"; return 1; }
}

run_in_uml() { # NAME
	local status=0
	scripts/uml.sh env FILEPROC_BUILT="$tmp" scripts/filesystems.sh -soak "$soak" "$1" >"$tmp/err" 2>&1 || status=$?
	case $status in
	0) grep '^   ' "$tmp/err" ;;
	125) skip "$(head -n 1 "$tmp/err")" ;;
	*) cat "$tmp/err" && return 1 ;;
	esac
}

test_on() {
	local status=0
	if [ -n "$incremental" ] && is "$1" "${trees[@]}"; then
		skip "it checks trees alone"
		return
	elif [ -z "${FILEPROC_BUILT:-}" ] && is "$1" "${in_uml[@]}"; then
		run_in_uml "$1"
		return
	fi
	case $1 in
	nfs3) serve_nfs "$1" && attach "$1" -t nfs -o vers=3,nolock "127.0.0.1:$tmp/export" || return 0 ;;
	nfs4) serve_nfs "$1" && attach "$1" -t nfs -o vers=4.2 127.0.0.1:/ || return 0 ;;
	smb) serve_smb && attach "$1" -t cifs -o guest,ip=127.0.0.1 //127.0.0.1/export || return 0 ;;
	jfs) image "$1" jfs mkfs.jfs -q || return 0 ;;
	reiserfs) image "$1" reiserfs mkfs.reiserfs -q -ff || return 0 ;;
	udf) image "$1" udf mkudffs || return 0 ;;
	f2fs | nilfs2 | vfat) image "$1" "$1" "mkfs.$1" || return 0 ;;
	ext4-untyped) image "$1" ext4 mkfs.ext4 -q -F -O ^filetype || return 0 ;;
	ext4-seconds) image "$1" ext4 mkfs.ext4 -q -F -I 128 || return 0 ;;
	ext4-inline) image "$1" ext4 mkfs.ext4 -q -F -O inline_data || return 0 ;;
	ext4-encrypted) image "$1" ext4 mkfs.ext4 -q -F -O encrypt || return 0 ;;
	ext4 | ext4-immutable) image "$1" ext4 mkfs.ext4 -q -F || return 0 ;;
	xfs | xfs-*) image "$1" xfs mkfs.xfs -q -f || return 0 ;;
	btrfs | btrfs-*) image "$1" btrfs mkfs.btrfs -q -f || return 0 ;;
	tmpfs) attach "$1" -t tmpfs -o size=1g tmpfs || return 0 ;;
	overlay)
		# On tmpfs: $tmp may be on an overlay, which does not have the extended attributes that an upper directory needs.
		attach overlay-base -t tmpfs -o size=1g tmpfs || return 0
		mkdir "$tmp"/overlay-base/{lower,upper,work}
		attach "$1" -t overlay -o "lowerdir=$tmp/overlay-base/lower,upperdir=$tmp/overlay-base/upper,workdir=$tmp/overlay-base/work" overlay || return 0
		;;
	squashfs) check_image "$1" squashfs mksquashfs && return ;;
	erofs) check_image "$1" erofs mkfs.erofs && return ;;
	*)
		echo "filesystems: unknown file system $1" >&2
		return 1
		;;
	esac
	if [ -n "${FILEPROC_BUILT:-}" ]; then
		test_changing "$tmp/$1" # and leave it to the end of the kernel
		return
	elif is "$1" "${trees[@]}"; then
		"test_${1#*-}" "$tmp/$1" || status=1
	else
		run_tests "$tmp/$1" || status=1
	fi
	detach "$1"
	[ "$1" != overlay ] || detach overlay-base
	rm -f "$tmp/$1.img"
	return "$status"
}

failed=()
for name; do
	start=$SECONDS
	echo "== $name"
	if test_on "$name"; then
		echo "   $((SECONDS - start)) s"
	else
		echo "   FAILED"
		failed+=("$name")
	fi
done
[ ${#failed[@]} = 0 ] || { echo "failed on: ${failed[*]}"; exit 1; }
