#!/usr/bin/env bash
# Measures what docs/performance.md promises and prints it as a Markdown table: median (minimum to maximum) of each ratio,
# with its target beside it. What cannot run here is a row with the reason.
#
#   scripts/targets.sh [-pairs N] [-passes N]      # 9 and 5, of a million files 1
#
# Needs Linux, Go and a C compiler; root for the cold caches and for FUSE. Sets of tickets that are missing are made in
# .data, those of a million files only if TARGETS_1M is set: they take 4 GB.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
export GOFLAGS="${GOFLAGS:-} -buildvcs=false" # a clone owned by another user cannot be stamped
export CGO_ENABLED=0

data=$(cd .. && pwd)/.data
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
go build -o "$bin/floor" ./floor
for tag in nouring unix generic; do
	go build -tags "fileproc_$tag" -o "$bin/floor-$tag" ./floor
done

row() { printf '| %s | %s | %s | %s |\n' "$@"; }

# measure prints the rows of one case: program, set (or -), case, what to add to the row's name, targets (one a row).
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
		[[ $set != *_1m ]] || dir+=(-passes 1) # one takes as long as ten of the others
	fi
	if ! out=$("$bin/$program" -case "$name" "${dir[@]}" "${flags[@]}" 2>&1); then
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
	# The last columns are ns a file of each side; of 1,000 files, µs in all.
	out=$("$bin/floor" -case sweep -fuse 1ms -workers 2 "${flags[@]}" | awk '/Workers/ { printf "%.0f ms", $(NF-3) / 1000 }') ||
		out="not run: FUSE does not work here"
	row "FUSE, 1 ms an open, 1,000 files" "$out" "" "≤ 60 ms"
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
measure floor flat_100k cold "" "≤ 1.05 of the best"
measure floor flat_100k allocs "" "≤ 0.02"
measure floor flat_100k peak "" "≤ 32 MiB"
measure floor flat_1m peak "" "≤ 32 MiB, as with 100k"
measure floor-unix flat_100k whole "unix backend: " "reported"
measure floor-generic flat_100k whole "generic backend: " "reported"
fuse
