#!/usr/bin/env bash
# Runs a command of scripts/bench, whose exit status go run would hide: bench.sh COMMAND [FLAG]...
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
go build -buildvcs=false -o "$tmp/bench" ./bench
"$tmp/bench" "$@"
