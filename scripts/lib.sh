# What the checks have in common: they source it. It goes to the repository's directory, makes the directory $tmp, which is removed
# at the end after the function cleanup, if there is one, has been called, and prints a script's first comment for --help.
set -euo pipefail
case ${1:-} in
-h | --help) sed -n '2,/^[^#]/{/^#/s/^# \{0,1\}//p}' "$0" && exit ;;
esac
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export GOFLAGS="${GOFLAGS:-} -buildvcs=false" # a clone owned by another user cannot be stamped
tmp=$(mktemp -d)
chmod a+x "$tmp" # another user runs some of the tests
memory=
trap '! declare -F cleanup >/dev/null || cleanup; [[ $memory != */ext4 ]] || umount -l "$memory"; rm -rf "$tmp" "${memory%/ext4}"' EXIT

skip() { echo "   skipped: $1"; }
# has TOOL... reports whether the machine has the tools.
has() {
	local tool
	for tool; do
		command -v "$tool" >/dev/null || { skip "no $tool"; return 1; }
	done
}
# is NAME LIST... reports whether the name is in the list.
is() { [[ " ${*:2} " = *" $1 "* ]]; }

# in_memory tmpfs, or in_memory ext4, sets memory to a directory that any user reaches, on such a file system in memory. Tests spend
# most of their time on creating and removing files, and an ext4 without a journal takes up to a millisecond for each, in which the
# kernel looks for an inode that was not deleted lately. On tmpfs the package does not use io_uring. Without loop devices there is no ext4.
in_memory() {
	[ -z "$memory" ] || return 0
	[ -w /dev/shm ] && [ "$(df --output=avail /dev/shm | tail -n 1)" -gt 5000000 ] || return 1 # KiB
	memory=$(mktemp -d /dev/shm/fileproc.XXXXXX)
	chmod 755 "$memory"
	[ "$1" = ext4 ] || return 0
	{ mkdir "$memory/ext4" && truncate -s 4G "$memory/image" && mkfs.ext4 -q -F -E nodiscard "$memory/image" &&
		mount -o loop,nodiscard "$memory/image" "$memory/ext4"; } 2>/dev/null || { rm -rf "$memory" && memory= && return 1; }
	memory+=/ext4
}

# failures prints what is of interest in $tmp/log, the output of go test -v.
failures() { grep -av -e '^ *=== ' -e '^ *--- PASS' "$tmp/log" | tail -n 300; }

# step prints NAME, what a COMMAND prints, and how long it took.
step() {
	local name=$1 start=$SECONDS
	shift
	echo "== $name"
	"$@"
	echo "   $((SECONDS - start)) s"
}

# beside is step in the background, once fewer than two others run there, since a package's tests keep one processor busy, not two.
# What it prints appears at its end. all_ended waits for all of them. It fails if one has, whose output it prints last, where it is read.
beside() {
	while [ "$(jobs -rp | wc -l)" -ge 2 ]; do wait -n || true; done
	(
		out=$tmp/$BASHPID.out what=$1 tmp=$(mktemp -d -p "$tmp")
		trap '[ $? = 0 ] && cat "$out" || { mv "$out" "$out.failed" && echo "== $what failed; its output is at the end"; }' EXIT
		export GOFLAGS="$GOFLAGS -p=1"
		step "$@" >"$out" 2>&1
	) &
}
all_ended() { wait && ! { compgen -G "$tmp/*.failed" >/dev/null && tail -n 300 "$tmp"/*.failed; }; }

# venv PACKAGE==VERSION sets python to one that has the package, which it installs for the runs to come, too.
venv() {
	local dir=${HOME:-/var/tmp}/.cache/fileproc/${1/==/-}
	if ! "$dir/bin/python" -c "" 2>/dev/null; then
		rm -rf "$dir"
		{
			mkdir -p "${dir%/*}" && "${PYTHON:-python3}" -m venv "$dir.$$" &&
				timeout 900 "$dir.$$/bin/python" -m pip install -q --disable-pip-version-check "$1" && mv -T "$dir.$$" "$dir"
		} >"$tmp/err" 2>&1 || { skip "$1 cannot be installed: $(tail -n 1 "$tmp/err")"; rm -rf "$dir.$$"; return 1; }
	fi
	python=$dir/bin/python
}
