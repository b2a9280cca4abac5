#!/usr/bin/env bash
# Measures what the pages show and writes it into their tables and pictures: fileproc against other packages and the bare system
# calls, the targets, cold trees, the cache and the mixed load. --help lists the parts. It needs Linux and Go, and root for cold
# trees; it uses a C compiler, fio, ripgrep and grep if they are installed. What cannot be measured stays as it was.
#
#   scripts/bench_report.sh [--quick] [--only PART,...|none] [--sets SET,...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
export GOFLAGS="${GOFLAGS:-} -buildvcs=false" CGO_ENABLED=0 # a clone owned by another user cannot be stamped
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
go build -o "$bin/bench" ./bench # go run would hide the exit status
"$bin/bench" report "$@"
