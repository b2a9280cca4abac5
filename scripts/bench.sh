#!/usr/bin/env bash
# Runs a command of scripts/bench, whose exit status go run would hide: bench.sh COMMAND [FLAG]...
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
export GOFLAGS="${GOFLAGS:-} -buildvcs=false" # a clone owned by another user cannot be stamped
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
go build -o "$tmp/bench" ./bench
"$tmp/bench" "$@"
