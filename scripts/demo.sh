#!/usr/bin/env bash
# Reads 5,000 files with each backend and with a loop of WalkDir and ReadFile: the ratio of times is last in each line. Needs Go.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
for tags in "" fileproc_unix fileproc_generic; do
	echo "== ${tags:-the default backend}"
	go test -tags "$tags" -run '^$' -bench TimesWalkDir -benchtime 15x . | grep ^Benchmark
done
