#!/usr/bin/env bash
# Measures fileproc beside its peers and its floor, and writes docs/benchmarks.md with its plots.
#
#   scripts/bench_report.sh [--quick] [--only TABLE,...|none]
#
# --quick takes sets of 5,000 files and few rounds, and writes to .data/report-quick/. --only measures these tables and
# draws the others, or with none all of them, from what .data holds of earlier runs. Needs Go; a C compiler, ripgrep and
# grep if they are there; root for the cold caches. The whole takes about ten minutes on an idle machine, and some more
# if scripts/tickets has made sets of 1m files.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
export GOFLAGS="${GOFLAGS:-} -buildvcs=false" # a clone owned by another user cannot be stamped

data=$(cd .. && pwd)/.data
out=../docs
raw=$data/report.jsonl
sets="flat:1 flat:10 flat:100 flat:1k flat:5k flat:10k flat:100k nested1:1k nested1:5k nested1:100k"
args=()
while [ $# -gt 0 ]; do
	case $1 in
	--quick)
		out=$data/report-quick
		raw=$out/report.jsonl
		sets="flat:1 flat:10 flat:100 flat:1k flat:5k nested1:5k"
		args+=(-quick)
		;;
	--only)
		[ $# -gt 1 ] || { echo "bench_report.sh: --only needs tables" >&2; exit 2; }
		args+=(-only "$2")
		shift
		;;
	*)
		echo "bench_report.sh: unknown argument $1; usage: bench_report.sh [--quick] [--only TABLE,...|none]" >&2
		exit 2
		;;
	esac
	shift
done

bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
mkdir -p "$out"
go build -o "$bin/peers" ./peers
go build -tags fileproc_unix -o "$bin/peers-unix" ./peers
go build -tags fileproc_generic -o "$bin/peers-generic" ./peers
go build -o "$bin/count" ./peers/count
go build -o "$bin/report" ./report
if [ "$(go env GOOS)" = linux ]; then
	go build -o "$bin/floor" ./floor
fi
for set in $sets; do
	layout=${set%:*} count=${set#*:}
	if [ ! -e "$data/tickets_${layout}_$count.json" ]; then
		go run ./tickets -layout "$layout" -count "$count" -out "$data"
	fi
done
"$bin/report" -bins "$bin" -data "$data" -out "$out" -raw "$raw" ${args[@]+"${args[@]}"}
echo "wrote $out/benchmarks.md"
