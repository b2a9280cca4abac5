#!/usr/bin/env bash
# Shows that bench_compare.sh detects a planted slowdown, and reports none for unchanged code.
# --help lists the flags; docs/dev/benchmarking.md explains.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
go build -buildvcs=false -o "$tmp/regress" ./regress # go run would hide the exit status
"$tmp/regress" prove "$@"
