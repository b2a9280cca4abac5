#!/usr/bin/env bash
# Measures what the pages show and writes it into their tables and pictures: --help says how.
exec "$(dirname "${BASH_SOURCE[0]}")/bench.sh" report "$@"
