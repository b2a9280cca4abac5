#!/usr/bin/env bash
# Runs a test as another user with a umask of 077, for go test -exec: as root, another_user.sh CLONE DIR BINARY ARGUMENT...
# The tests of CLONE/X run in DIR/clone/X, a copy that the other user owns. DIR has that user's home and tmp, too.
set -euo pipefail
clone=$1 dir=$2 binary=$(mktemp -d -p "$2/bin")/${3##*/}
cp "$3" "$binary" # the go command's own directory is closed to others
chmod -R a+rx "${binary%/*}"
trap 'rm -r "${binary%/*}"' EXIT
cd "$dir/clone/${PWD#"$clone"}"
umask 077
setpriv --reuid 65534 --regid 65534 --clear-groups env -u GOCACHE -u GOPATH -u XDG_CACHE_HOME HOME="$dir/home" TMPDIR="$dir/tmp" \
	GOTMPDIR="$dir/tmp" GOMODCACHE="$dir/mod" "$binary" "${@:4}"
