#!/usr/bin/env bash
# Compares the working tree with the baseline or a revision; fails if it is slower.
exec "$(dirname "${BASH_SOURCE[0]}")/bench.sh" compare "$@"
