#!/usr/bin/env bash
# Measures the targets of docs/dev/performance.md and prints them as a table. The exit status is 1 if one is missed. It needs Linux,
# Go and a C compiler, and root for cold trees and FUSE.
#
#   scripts/targets.sh [-pairs N] [-passes N] [-quick]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
export GOFLAGS="${GOFLAGS:-} -buildvcs=false" CGO_ENABLED=0 # a clone owned by another user cannot be stamped
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
go build -o "$bin/bench" ./bench # go run would hide the exit status
"$bin/bench" targets "$@"
