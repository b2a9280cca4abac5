#!/usr/bin/env bash
# Measures the working tree; --update-baseline makes it a baseline.
exec "$(dirname "${BASH_SOURCE[0]}")/bench.sh" run "$@"
