#!/usr/bin/env bash
# Measures cold runs, and how long they take to end when they are cancelled: --help says how.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
export GOFLAGS="${GOFLAGS:-} -buildvcs=false" # a clone owned by another user cannot be stamped
export CGO_ENABLED=0
exec go run ./bench cold "$@"
