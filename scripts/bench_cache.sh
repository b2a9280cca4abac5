#!/usr/bin/env bash
# Measures the cache beside absfs/cachefs and absfs/corfs, and prints the tables of docs/cache.md.
#
#   scripts/bench_cache.sh [--plot] [--rounds N] [--only TEXT] [--repaired] [--engines]
#
# --plot draws docs/img/cache.png too. --rounds is how often each case is repeated, the sides in turn (default 9).
# --only measures the cases whose name contains TEXT, and no other tables. --repaired measures cachefs with a list that works: its
# source, as it was downloaded, is built with scripts/bench/internal/caches/testdata/repair.go in place of one method. --engines measures the
# cache's engine alone beside jellydator/ttlcache and maypok86/otter, and nothing else. Needs Go. A full run takes about two
# minutes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
export GOFLAGS="${GOFLAGS:-} -buildvcs=false" # a clone owned by another user cannot be stamped

args=()
engines= build=()
for arg; do
	case $arg in
	--help | -h)
		sed -n 's/^# \{0,1\}//; 2,10p' "$(basename "$0")"
		exit
		;;
	--plot) args+=(-plot ../docs/img/cache.png) ;;
	--engines) engines=1 ;;
	--repaired) build=(repaired) ;;
	*) args+=("$arg") ;; # which caches knows, or rejects
	esac
done

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
if [ "$engines" ]; then
	# The engine is not exported. The benchmark is put into its package for this build alone, with a go.mod that has the two
	# libraries, so that the repository's own has not.
	benchmark=$PWD/bench/internal/caches/testdata/engines_test.go
	cd ..
	cp go.mod go.sum "$tmp"
	go mod edit -require github.com/jellydator/ttlcache/v3@v3.4.1 -require github.com/maypok86/otter/v2@v2.4.0 "$tmp/go.mod"
	printf '{"Replace": {"%s/cache/engines_test.go": "%s"}}\n' "$PWD" "$benchmark" >"$tmp/overlay.json"
	go test -modfile "$tmp/go.mod" -mod=mod -overlay "$tmp/overlay.json" -run '^$' -bench Engines -count 5 -benchtime 200ms ./cache
	exit
fi
if [ ${#build[@]} -gt 0 ]; then
	dir=$(go list -f '{{.Dir}}' github.com/absfs/cachefs)
	cp go.mod go.sum "$tmp"
	cp -R "$dir" "$tmp/cachefs"
	chmod -R u+w "$tmp/cachefs"
	sed '/^func (c \*CacheFS) removeLRU(/,/^}/d' "$dir/cachefs.go" >"$tmp/cachefs/cachefs.go"
	cp bench/internal/caches/testdata/repair.go "$tmp/cachefs"
	go mod edit -replace "github.com/absfs/cachefs=$tmp/cachefs" "$tmp/go.mod"
	build=(-modfile "$tmp/go.mod" -mod=mod)
fi
go build ${build[@]+"${build[@]}"} -o "$tmp/bench" ./bench
"$tmp/bench" caches ${args[@]+"${args[@]}"}
