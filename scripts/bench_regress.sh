#!/usr/bin/env bash
# Measures the working tree and records it under .benchmarks; --update-baseline makes it a baseline too.
exec "$(dirname "${BASH_SOURCE[0]}")/bench.sh" run "$@"
