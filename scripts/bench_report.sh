#!/usr/bin/env bash
# Measures fileproc against other packages and the bare system calls, and writes docs/dev/benchmarks.md with its plots.
#
#   scripts/bench_report.sh [--quick] [--only TABLE,...|none] [--sets SET,...]
#
# --quick uses sets of 5,000 files and few rounds, and writes to .data/report-quick/. --only measures these tables (peers,
# programs, backends, readdir, floor, bare, fio, sizes, workers, cold, warm, ablation) and draws the others, or with none
# all of them, from the measurements of earlier runs in .data. --sets measures only these sets, such as flat_1m. Needs Go,
# and root for cold caches; uses a C compiler, fio, ripgrep and grep if they are installed. A full run takes about ten
# minutes on an idle machine, and ten more if scripts/tickets has made sets of 1m files.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
export GOFLAGS="${GOFLAGS:-} -buildvcs=false" # a clone owned by another user cannot be stamped

data=$(cd .. && pwd)/.data
out=../docs/dev
raw=$data/report.jsonl
sets="flat:1 flat:10 flat:100 flat:1k flat:5k flat:10k flat:100k nested1:1k nested1:5k nested1:100k"
args=()
for arg; do
	case $arg in
	--help | -h)
		sed -n 's/^# \{0,1\}//; 2,10p' "$(basename "$0")"
		exit
		;;
	--quick)
		out=$data/report-quick
		raw=$out/report.jsonl
		sets="flat:1 flat:10 flat:100 flat:1k flat:5k nested1:5k"
		args+=(-quick)
		;;
	*) args+=("$arg") ;; # which report knows, or rejects
	esac
done

bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
report() { "$bin/bench" report -bins "$bin" -data "$data" -out "$out" -raw "$raw" "$@" ${args[@]+"${args[@]}"}; }
go build -o "$bin/bench" ./bench
report -check # fail early on wrong arguments
mkdir -p "$out"
go build -o "$bin/peers" ./bench
for tag in nouring unix generic; do
	go build -tags "fileproc_$tag" -o "$bin/peers-$tag" ./bench
done
go build -o "$bin/count" ./bench/internal/peers/count
if [ "$(go env GOOS)" = linux ]; then
	go build -o "$bin/floor" ./bench
fi
for set in $sets; do
	layout=${set%:*} count=${set#*:}
	if [ ! -e "$data/tickets_${layout}_$count.json" ]; then
		go run ./tickets -layout "$layout" -count "$count" -out "$data"
	fi
done
report
echo "wrote $out/benchmarks.md"
