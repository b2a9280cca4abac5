#!/usr/bin/env bash
# Puts a mixed load (create, read, list, delete) on files, or on an S3 server: --help and docs/dev/reliability.md explain.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/break/load"
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
go build -buildvcs=false -o "$bin/load" . # go run would hide the exit status
revision=$(git describe --always --dirty --exclude '*' 2>/dev/null) || revision=
cd "$OLDPWD"
"$bin/load" -revision "$revision" "$@"
