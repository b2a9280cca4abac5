#!/usr/bin/env bash
# Measures: bench.sh COMMAND [FLAG]... With --help, each command lists its flags.
#   compare  the working tree with the baseline or a revision; fails if it is slower
#   run      the working tree; --update-baseline makes it a baseline
#   prove    shows that compare detects a planted slowdown, and reports none for unchanged code
#   report   what the pages show, and writes it into their tables and pictures; --only and --sets choose parts
#   cold     cold runs, and how long they take to end when they are cancelled
#   caches   the cache beside absfs/cachefs and absfs/corfs
#   floor    single cases against bare system calls, loops, packages and programs; targets prints those of the report
# All need Linux and Go. report and cold need root for cold trees, and use a C compiler, ripgrep and grep if they are installed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
export GOFLAGS="${GOFLAGS:-} -buildvcs=false" # a clone owned by another user cannot be stamped
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
go build -o "$tmp/bench" ./bench # go run would hide its exit status
"$tmp/bench" "$@"
