#!/usr/bin/env bash
# Shows that bench_compare.sh detects a planted slowdown, and reports none for unchanged code.
exec "$(dirname "${BASH_SOURCE[0]}")/bench.sh" prove "$@"
