#!/usr/bin/env bash
# Makes 5,000 tickets in one directory and 5,000 in year-month directories, then extracts every frontmatter with each
# backend and with a plain loop. Needs Go, which downloads the two modules that the package itself needs.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
data=$PWD/.data
cd scripts
for layout in flat nested1; do
	go run ./tickets -layout $layout -count 5k -out "$data"
done
for tags in "" fileproc_unix fileproc_generic; do
	echo
	go run -tags "$tags" ./demo "$data/tickets_flat_5k" "$data/tickets_nested1_5k"
done
