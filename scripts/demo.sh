#!/usr/bin/env bash
# Makes 5,000 tickets in one directory and 5,000 in year-month directories, then extracts every frontmatter with each
# backend and with a plain loop. Needs Go, which downloads the two modules that the package itself needs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
export GOFLAGS="${GOFLAGS:-} -buildvcs=false" # a clone owned by another user cannot be stamped

data=$(cd .. && pwd)/.data
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT

go run ./tickets -layout flat -count 5k -out "$data"
go run ./tickets -layout nested1 -count 5k -out "$data"
echo

go build -o "$bin/default" ./demo
go build -tags fileproc_unix -o "$bin/unix" ./demo
go build -tags fileproc_generic -o "$bin/generic" ./demo
"$bin/default" -bin "$bin/default,$bin/unix,$bin/generic" "$data/tickets_flat_5k" "$data/tickets_nested1_5k"
