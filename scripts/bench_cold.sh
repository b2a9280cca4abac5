#!/usr/bin/env bash
# Measures cold runs, and how long they take to end when they are cancelled: --help says how.
exec "$(dirname "${BASH_SOURCE[0]}")/bench.sh" cold "$@"
