#!/usr/bin/env bash
# Runs a command of scripts/bench, whose exit status go run would hide: bench.sh COMMAND [FLAG]...
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd scripts
go build -o "$tmp/bench" ./bench
"$tmp/bench" "$@"
