#!/usr/bin/env bash
# Makes 5,000 small files, and reads them with each backend and with a loop of WalkDir and ReadFile, in turn. Each line ends with the
# time of fileproc over that of the loop. Needs Go, which downloads the modules that the package and its tests need.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
for tags in "" fileproc_unix fileproc_generic; do
	echo "== ${tags:-the default backend}"
	go test -tags "$tags" -run '^$' -bench TimesWalkDir -benchtime 15x . | grep ^Benchmark
done
