#!/usr/bin/env bash
# Measures the cache beside absfs/cachefs and absfs/corfs: --help says how.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
export GOFLAGS="${GOFLAGS:-} -buildvcs=false" # a clone owned by another user cannot be stamped
exec go run ./bench caches "$@"
