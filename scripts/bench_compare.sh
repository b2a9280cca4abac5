#!/usr/bin/env bash
# Compares the working tree with the baseline, the previous record or a revision; fails if it is slower.
# --help lists the flags; docs/dev/benchmarking.md explains.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
go build -buildvcs=false -o "$tmp/regress" ./regress # go run would hide the exit status
"$tmp/regress" compare "$@"
