#!/usr/bin/env bash
# Measures cold runs and prints them as a Markdown table: the requests to the disk and the seconds of fileproc, of the usual
# loop (a C loop in the order of the listing) and of the C loop in the order of the disk, each the median, and the target. A
# case that cannot run here is a row with the reason. A second table is of cancels at random moments of a run on one head.
#
#   scripts/bench_cold.sh [-runs N] [-cancels N] [-against REVISION] [PATTERN]
#
#   -runs N             runs of each side, in turn; default 5
#   -cancels N          moments at which runs are cancelled; default 20
#   -against REVISION   adds the columns of that revision of fileproc
#   PATTERN             only the cases whose name has this regular expression
#
# Needs Linux, root, Go, a C compiler, FUSE and loop devices, and drops the machine's caches. Missing sets of tickets and images
# are made in .data and kept, since counts are comparable only on the same image. A million files are measured only if
# BENCH_COLD_1M is set.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
export GOFLAGS="${GOFLAGS:-} -buildvcs=false" # a clone owned by another user cannot be stamped
export CGO_ENABLED=0

runs=5 cancels=20 against= pattern=
while [ $# -gt 0 ]; do
	case $1 in
	-runs | -cancels | -against)
		[ $# -gt 1 ] || { echo "bench_cold: $1 needs a value" >&2; exit 2; }
		declare "${1#-}=$2"
		shift
		;;
	-h | --help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]##*/}" && exit ;;
	-*) echo "bench_cold: unknown flag $1: --help explains" >&2 && exit 2 ;;
	*) pattern=$1 ;;
	esac
	shift
done
[[ $runs =~ ^[1-9][0-9]*$ ]] || { echo "bench_cold: -runs $runs: want a number from 1" >&2; exit 2; }
[[ $cancels =~ ^[1-9][0-9]*$ ]] || { echo "bench_cold: -cancels $cancels: want a number from 1" >&2; exit 2; }
[ "$(id -u)" = 0 ] || { echo "bench_cold: needs root" >&2; exit 2; }

data=$(cd .. && pwd)/.data
tmp=$(mktemp -d)
cleanup() {
	[ ! -d "$tmp/worktree" ] || git worktree remove --force "$tmp/worktree"
	rm -rf "$tmp"
}
trap cleanup EXIT
trap 'exit 130' INT TERM
go build -o "$tmp/disk" ./disk
go build -o "$tmp/floor" ./bench
sides=(fileproc)
if [ -n "$against" ]; then
	# The same measuring program, with fileproc of the revision.
	git worktree add -q --detach "$tmp/worktree" "$against"
	cp go.sum "$tmp/against.sum"
	cp go.mod "$tmp/against.mod"
	go mod edit -replace "github.com/fileproc/fileproc=$tmp/worktree" "$tmp/against.mod"
	go build -modfile "$tmp/against.mod" -o "$tmp/floor-against" ./bench
	sides+=(against)
fi

row() { printf '| %s ' "$@" && echo '|'; }

# reason makes a row for a case that cannot run, from the first line of a command's output: those after it are consequences.
reason() {
	local -a cells=("$1" "not run: ${2%%$'\n'*}")
	while [ ${#cells[@]} -lt $((2 * ${#sides[@]} + 5)) ]; do cells+=(""); done
	row "${cells[@]}" "$3"
}

median() { sort -g "$1" | awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'; }

field() { [[ $1 =~ \"$2\":([0-9.e-]+) ]] && echo "${BASH_REMATCH[1]}"; }

# once runs one cold pass of a side and adds its requests and seconds to the side's files. It prints only an error.
once() { # side, directory or image, -side of floor, threads, flags of disk run
	local side=$1 on=$2 who=$3 threads=$4 program=floor out
	shift 4
	[ "$side" != against ] || program=floor-against
	if [ -d "$on" ]; then
		local stat before after
		stat=/sys/dev/block/$(stat -c %Hd:%Ld "$on")/stat
		read -r before _ 2>/dev/null <"$stat" || before=0
		out=$("$tmp/$program" floor -case once -dir "$on" -side "$who" -threads "$threads" -cache "$tmp/cache" -cold 2>&1) || { echo "$out"; return 1; }
		read -r after _ 2>/dev/null <"$stat" || after=0
		echo $((after - before)) >>"$tmp/$side.requests"
	else
		out=$("$tmp/disk" run -image "$on" "$@" -- "$tmp/$program" floor -case once -dir {} -side "$who" -threads "$threads" -cache "$tmp/cache" 2>&1) || { echo "$out"; return 1; }
		field "$out" requests >>"$tmp/$side.requests"
	fi
	field "${out%%$'\n'*}" seconds >>"$tmp/$side.seconds"
	echo "$(field "$out" files) files, $(field "$out" bytes) bytes" >>"$tmp/saw"
}

# each_side runs each side once.
each_side() { # directory or image, what is read, numbers of threads in the usual loop, flags of disk run
	local on=$1 what=$2 listing=$3 side threads suffix=-stat
	shift 3
	[ "$what" != whole ] || suffix= what=
	for side in "${sides[@]}"; do once "$side" "$on" "fileproc${what:+-$what}" 1 "$@" || return; done
	for threads in $listing; do once "c$threads" "$on" "c$suffix" "$threads" "$@" || return; done
	once order "$on" "c$suffix-order" 2 "$@"
}

# measure prints the row of a case: its name, a directory or an image, what is read (whole, stat, or again: what has changed
# since a run of package incremental, which is nothing), the target, and the flags of disk run.
measure() {
	local name=$1 on=$2 what=$3 target=$4 i side threads out listing=(32)
	shift 4
	[ ! -d "$on" ] || listing=(8 32 64) # of which the best counts
	rm -f "$tmp"/*.requests "$tmp"/*.seconds "$tmp/saw"
	if [ "$what" = again ]; then
		once fileproc "$on" fileproc-again 1 "$@" >/dev/null || true # the runs below meet the error too
		rm -f "$tmp"/*.requests "$tmp"/*.seconds "$tmp/saw"
	fi
	for ((i = 0; i < runs; i++)); do
		if ! out=$(each_side "$on" "$what" "${listing[*]}" "$@"); then
			reason "$name" "$out" "$target"
			return
		fi
	done
	if [ "$(sort -u "$tmp/saw" | wc -l)" != 1 ]; then
		reason "$name" "the sides saw $(sort -u "$tmp/saw" | paste -sd ';')" "$target"
		return
	fi
	local best= t cells=()
	for threads in "${listing[@]}"; do
		t=$(median "$tmp/c$threads.seconds")
		if [ -z "$best" ] || awk "BEGIN { exit !($t < $best) }"; then best=$t side=c$threads; fi
	done
	for side in "${sides[@]}" "$side" order; do
		t=$(median "$tmp/$side.seconds")
		cells+=("$(printf %.0f "$(median "$tmp/$side.requests")")" "$(awk "BEGIN { printf \"%.2f s (%.2f)\", $t, $t / $best }")")
	done
	row "$name" "${cells[@]}" "$target"
}

# measure_set makes what is missing of a case and measures it: file system or - for the machine's disk, set, what is read,
# target, flags of disk run and, in the last place, their description.
measure_set() {
	local fs=$1 set=$2 what=$3 target=$4 from image out name
	local -a flags=("${@:5:$#-5}")
	name="$set, ${fs/#-/}${!#}"
	case $what in
	stat) name="metadata of $name" ;;
	again) name="nothing changed since an incremental run: $name" ;;
	esac
	[[ $name =~ $pattern ]] || return 0
	if [ "$set" = go ]; then
		from=$(go env GOROOT)/src
		image=$data/disk_$(go env GOVERSION)_$fs.img
	else
		from=$data/tickets_$set
		image=$data/disk_${set}_$fs.img
		if [[ $set = *_1m ]] && [ -z "${BENCH_COLD_1M:-}" ]; then
			reason "$name" "BENCH_COLD_1M is not set" "$target"
			return
		fi
		if [ ! -f "$from.json" ] || [ ! -d "$from" ]; then
			go run ./tickets -layout "${set%_*}" -count "${set#*_}" -out "$data" >&2
		fi
	fi
	if [ "$fs" = - ]; then
		measure "$name" "$from" "$what" "$target"
		return
	fi
	if [ ! -f "$image" ]; then
		if ! out=$("$tmp/disk" image -fs "$fs" -from "$from" -o "$image.new" 2>&1); then
			reason "$name" "$out" "$target"
			return
		fi
		mv "$image.new" "$image"
	fi
	measure "$name" "$image" "$what" "$target" "${flags[@]}"
}

# measure_cancels prints a row for each side of fileproc: how long its run takes, cancelled at random moments from its first
# millisecond to the end, on 60 directories of 300 files. The arguments are what is read, the time of a seek, and the target.
measure_cancels() {
	local what=$1 seek=$2 target=$3 side name image=$data/disk_60x300_ext4.img d f out seconds i
	name="cancel$what, 60 directories of 300 files, ext4, one head, $seek a seek"
	[[ $name =~ $pattern ]] || return 0
	if [ ! -f "$image" ]; then
		for d in {01..60}; do
			mkdir -p "$tmp/60x300/$d"
			for f in {001..300}; do printf 'file %s of directory %s %0380d\n' "$f" "$d" 0 >"$tmp/60x300/$d/ticket-$d$f.md"; done
		done
		if ! out=$("$tmp/disk" image -fs ext4 -from "$tmp/60x300" -o "$image.new" 2>&1); then
			row "$name" "not run: ${out%%$'\n'*}" "" "" "" "$target"
			return
		fi
		mv "$image.new" "$image"
	fi
	local -a on=(-image "$image" -seek "$seek" -inflight 32 --)
	for side in "${sides[@]}"; do
		local program=$tmp/floor
		[ "$side" != against ] || program=$tmp/floor-against
		rm -f "$tmp/ends"
		for ((i = 0; i <= cancels; i++)); do
			local -a cancel=(-cancel "$((i ? RANDOM * RANDOM % whole : 0))us")
			((i)) || cancel=() # the first run ends, and shows when cancels are of use
			out=$("$tmp/disk" run "${on[@]}" "$program" floor -case once -dir {} -side "fileproc$what" "${cancel[@]}" 2>&1) || { row "$name" "not run: ${out%%$'\n'*}" "" "" "" "$target"; return; }
			seconds=$(field "${out%%$'\n'*}" seconds)
			((i)) && awk "BEGIN { print $seconds * 1e3 }" >>"$tmp/ends" || local whole=$(awk "BEGIN { print int($seconds * 1e6) }")
		done
		row "$name" "$side" "$((whole / 1000)) ms" $(sort -g "$tmp/ends" | awk '{ v[NR] = $1 } END { printf "%.0f %.0f", v[int((NR - 1) * 0.95) + 1], v[NR] }') "$target"
	done
}

columns=(case "fileproc: requests" "time (/ the usual loop's)")
[ -z "$against" ] || columns+=("$against: requests" time)
columns+=("usual loop: requests" time "in the disk's order: requests" time target)
row "${columns[@]}"
row "${columns[@]//*/---}"
cloud=(-rate 3000 -latency 500us -inflight 32)
head=(-seek 4ms -inflight 32)
measure_set ext4 flat_100k whole "≤ 2,500 requests" ""
measure_set - flat_100k whole "≤ 0.65 of the usual loop's best" "the machine's disk"
measure_set ext4 flat_100k whole "≤ 6 s" "${cloud[@]}" ", 3,000 requests/s"
for set in nested1_100k nested3_100k; do
	measure_set ext4 "$set" whole "≤ 3,500 requests" ""
done
measure_set ext4 go whole "≤ 2,500 requests, ≤ 2.5 s" "${cloud[@]}" ", 3,000 requests/s"
measure_set xfs go whole "≤ 1,700 requests, ≤ 2.5 s" "${cloud[@]}" ", 3,000 requests/s"
measure_set btrfs go whole "≤ 1,400 requests, ≤ 2.5 s" "${cloud[@]}" ", 3,000 requests/s"
measure_set ext4 go whole "≤ 9 s" "${head[@]}" ", one head, 4 ms a seek"
measure_set ext4 flat_1m whole "≤ 30,000 requests" ""
measure_set ext4 flat_100k stat "≤ 1,450 requests" ""
measure_set ext4 flat_100k again "the requests of metadata" ""

echo
columns=(case of "whole run" "p95 of $cancels, ms" "worst, ms" target)
row "${columns[@]}"
row "${columns[@]//*/---}"
for seek in 4ms 10ms; do
	measure_cancels "" "$seek" "≤ 100 ms"
	measure_cancels -stat "$seek" "≤ 100 ms"
done
