#!/usr/bin/env bash
# Measures the cases of docs/dev/performance.md and prints them as a Markdown table: the median (minimum to maximum) of each
# ratio, and its target. A case that cannot run here is a row with the reason.
#
#   scripts/targets.sh [-pairs N] [-passes N]      # default 9 and 5; 1 pass for a million files
#
# Needs Linux, Go and a C compiler, and root for cold caches and FUSE. Missing sets of tickets, and the images for the
# emulated disk, are made in .data. Sets of a million files take 4 GB and are made only if TARGETS_1M is set.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
export GOFLAGS="${GOFLAGS:-} -buildvcs=false" # a clone owned by another user cannot be stamped
export CGO_ENABLED=0

data=$(cd .. && pwd)/.data
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
go build -o "$bin/floor" ./bench
for tag in nouring unix generic; do
	go build -tags "fileproc_$tag" -o "$bin/floor-$tag" ./bench
done

row() { printf '| %s | %s | %s | %s |\n' "$@"; }

# measure prints the rows of one case: program, set (or -), case, prefix of the row's name, targets (one per row).
measure() {
	local program=$1 set=$2 name=$3 what=$4 out targets
	shift 4
	targets=("$@")
	local -a dir=()
	if [ "$set" != - ]; then
		if [ ! -d "$data/tickets_$set" ]; then
			if [[ $set = *_1m ]] && [ -z "${TARGETS_1M:-}" ]; then
				row "$what$name, $set" "not run: TARGETS_1M is not set" "" "${targets[0]}"
				return
			fi
			go run ./tickets -layout "${set%_*}" -count "${set#*_}" -out "$data" >&2
		fi
		dir=(-dir "$data/tickets_$set")
		[[ $set != *_1m ]] || dir+=(-passes 1) # a pass takes as long as ten of the other sets
	fi
	if ! out=$("$bin/$program" floor -case "$name" "${dir[@]}" "${flags[@]}" 2>&1); then
		row "$what$name, $set" "not run: ${out##*$'\n'}" "" "${targets[0]}"
		return
	fi
	local i=0 line spread='([0-9.]+ \([0-9.]+ to [0-9.]+\))'
	while IFS= read -r line; do
		if [[ $line =~ ^(.*[^ ])\ +[0-9]+\ +$spread\ +$spread ]]; then
			row "$what${BASH_REMATCH[1]}${dir:+, $set}" "${BASH_REMATCH[2]}" "${BASH_REMATCH[3]}" "${targets[i]:-${targets[-1]}}"
			i=$((i + 1))
		elif [[ $line != backend* && $line = *[a-z]* && $line != *wall* ]]; then
			row "$what$line${dir:+, $set}" "" "" "${targets[0]}"
		fi
	done <<<"$out"
}

fuse() {
	if [ ! -w /dev/fuse ] || [ "$(id -u)" != 0 ]; then
		row "FUSE, 1 ms an open, 1,000 files" "not run: needs root and /dev/fuse" "" "≤ 60 ms"
		return
	fi
	local out
	# The last columns are ns per file of each side, which for 1,000 files are µs in all.
	out=$("$bin/floor" floor -case sweep -fuse 1ms -workers 2 "${flags[@]}" | awk '/Workers/ { printf "%.0f ms", $(NF-3) / 1000 }') ||
		out="not run: FUSE does not work here"
	row "FUSE, 1 ms an open, 1,000 files" "$out" "" "≤ 60 ms"
}

# requests prints the requests of cold runs to the emulated disk, which counts them exactly, so one run is enough.
requests() {
	BENCH_COLD_1M=${TARGETS_1M:-} ./bench_cold.sh -runs 1 ', ext4$' |
		awk -F ' *[|] *' '/, ext4 / { printf "| %s, cold: requests | %s |  | %s |\n", $2, $3, $(NF - 1) }' ||
		row "flat_100k, ext4, cold: requests" "not run: see above" "" "≤ 2,500 requests"
}

flags=("$@")
row case wall "CPU time" target
row --- --- --- ---
for set in flat_100k nested1_100k flat_1m nested1_1m; do
	measure floor "$set" whole "" "≤ 0.65, CPU ≤ 0.70"
	measure floor-nouring "$set" whole "no io_uring: " "≤ 0.95"
done
for set in flat_100k nested1_100k; do
	measure floor "$set" stat "" "≤ 0.85"
done
measure floor flat_100k names "" "≤ 1.15" "≤ 0.45"
measure floor flat_100k walkdir "" "≤ 0.20"
measure floor - small "" "≤ 1.0"
measure floor - shapes "" "≤ 1.0"
# 2 to 64 threads in the order of the listing, of which the best counts, and the order of the disk.
measure floor flat_100k cold "" "≤ 0.65" "≤ 0.65" "≤ 0.65" "≤ 0.65" reported
requests
measure floor flat_100k allocs "" "≤ 0.02"
measure floor flat_100k peak "" "≤ 32 MiB"
measure floor flat_1m peak "" "≤ 32 MiB, as with 100k"
measure floor-unix flat_100k whole "unix backend: " "reported"
measure floor-generic flat_100k whole "generic backend: " "reported"
fuse
