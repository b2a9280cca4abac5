#!/usr/bin/env bash
# Measures the cache beside absfs/cachefs and absfs/corfs: --help says how.
exec "$(dirname "${BASH_SOURCE[0]}")/bench.sh" caches "$@"
