#!/usr/bin/env bash
# Puts a mixed load (create, read, list, delete) on files, or on an S3 server in the same process. It reads and lists through
# fileproc and, in the same run, through package os (or io/fs), checks all content, and judges thresholds in the words of k6. The
# exit status is 99 if a threshold is not met.
# Usage: bench_load.sh [FLAG]...                run a load, print the table; --help lists the flags
#        bench_load.sh --compare A.json B.json  print which differences between two runs, saved with --out, are significant
# The build tags in GOFLAGS select another backend: GOFLAGS=-tags=fileproc_unix bench_load.sh --out unix.json
# Needs Go, and 500 MB of space in --dir, which is the temporary directory by default. docs/dev/reliability.md explains.
set -euo pipefail
repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
(cd "$repo/scripts/break/load" && go build -buildvcs=false -o "$tmp/load" .) # go run would hide the exit status
revision=$(git -C "$repo" describe --always --dirty --exclude '*' 2>/dev/null) || revision=
tags=$(sed -n 's/.*-tags[= ]\([^ ]*\).*/\1/p' <<<"${GOFLAGS:-}")
"$tmp/load" -revision "$revision" -tags "$tags" "$@"
