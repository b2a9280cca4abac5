#!/usr/bin/env bash
# Measures the working tree and records it under .benchmarks; --update-baseline makes it a baseline too.
# --help lists the flags; docs/dev/benchmarking.md explains.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
go build -buildvcs=false -o "$tmp/regress" ./regress # go run would hide the exit status
"$tmp/regress" run "$@"
