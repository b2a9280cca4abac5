#!/usr/bin/env bash
# Profiles the time, the memory and the system calls of one case.
exec "$(dirname "${BASH_SOURCE[0]}")/bench.sh" profile "$@"
