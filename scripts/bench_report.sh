#!/usr/bin/env bash
# Measures what the pages show and writes it into their tables and pictures: bench_report.sh [--quick] [--only PART,...|none]
# [--sets SET,...]. --help lists the parts. It needs Linux and Go, and root for cold trees; it uses a C compiler, ripgrep and grep if
# they are installed. What cannot be measured stays as it was. An interrupt ends it after what is measured has been drawn.
exec "$(dirname "${BASH_SOURCE[0]}")/bench.sh" report "$@"
