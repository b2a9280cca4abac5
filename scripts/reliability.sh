#!/usr/bin/env bash
# Tries to make fileproc lose, tear or leak something. Fails at the first part with a loss, and prints how to repeat that.
# Usage: reliability.sh [--minutes N] [PART]...   N minutes for each part, 2 by default; all parts by default:
#   faults   each system call with each of its errors, by strace's injection and by seccomp
#   hostile  a process that swaps links, FIFOs, devices and directories; odd mounts and FUSE servers; names on a terminal
#   churn    writers that create, rename, delete, rewrite and replace
#   limits   few descriptors, little memory, one processor, many runs at once, slow consumers, deep chains; its time does not
#            depend on N
#   fuzz     the fuzz targets, of which FuzzPool makes random interleavings; at least 10 s each
#   race     the short tests under the race detector, again and again, with 1, 2 and 8 processors
# A part that needs what the machine lacks is skipped with the reason. As root, faults installs strace by apt-get if it is missing.
# docs/dev/reliability.md has the figures.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
parts=(faults hostile churn limits fuzz race)
minutes=2
case ${1:-} in
-h | --help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "scripts/${BASH_SOURCE[0]##*/}" && exit ;;
--minutes)
	minutes=${2:-}
	[[ $minutes =~ ^[1-9][0-9]*$ ]] || { echo "reliability: --minutes needs a number of minutes" >&2; exit 2; }
	shift 2
	;;
-*) echo "reliability: unknown flag $1: --help explains" >&2 && exit 2 ;;
esac
export GOFLAGS="${GOFLAGS:-} -buildvcs=false" # a clone owned by another user cannot be stamped

tmp=$(mktemp -d)
memory=
trap 'rm -rf "$tmp" "$memory"' EXIT

skip() { echo "   skipped: $1"; }

run_faults() {
	if ! command -v strace >/dev/null && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
		apt-get install -y strace >/dev/null 2>&1 || true
	fi
	if ! command -v strace >/dev/null; then
		skip "there is no strace, and it cannot be installed"
		return
	fi
	if ! strace -qq -e trace=none true 2>/dev/null; then
		skip "strace may not trace a process here"
		return
	fi
	(cd scripts && go run ./break faults -minutes "$minutes")
}

# run_fuzz gives each fuzz target an equal share of the minutes, and 10 s at least. What go test finds interesting it keeps, so a later
# run goes on from there.
run_fuzz() {
	local target dir share status losses=0
	local -a targets
	mapfile -t targets < <(grep -rEo --exclude-dir=.data --include='*_test.go' '^func Fuzz[A-Za-z0-9_]+' .)
	share=$((minutes * 60 / ${#targets[@]}))
	[ "$share" -ge 10 ] || share=10
	if [ -w /dev/shm ] && [ "$(df --output=avail /dev/shm | tail -n 1)" -gt 1000000 ]; then # KiB; the targets make many small files
		memory=$(mktemp -d /dev/shm/fileproc.XXXXXX)
	fi
	for target in "${targets[@]}"; do
		dir=${target%/*} target=${target##* } status=0
		(cd "$dir" && TMPDIR=${memory:-$tmp} go test -run '^$' -fuzz "^$target\$" -fuzztime "${share}s" -fuzzminimizetime 2s .) >"$tmp/fuzz" 2>&1 || status=$?
		awk -v name="$dir $target" -v share="$share" '
			/execs: / { sub(/.*execs: /, ""); execs = $1; sub(/.*interesting: /, ""); interesting = $1 }
			END { printf "   %-45s %4d s %10d executions %5d new interesting\n", name, share, execs, interesting }' "$tmp/fuzz"
		[ "$status" = 0 ] || { cat "$tmp/fuzz" && losses=$((losses + 1)); } # with the file to repeat
	done
	echo "   losses: $losses"
	[ "$losses" = 0 ]
}

# run_race runs the short tests with 1, 2 and 8 processors, in turn, until the minutes are over. A pass that has begun is run to its
# end. The comparison of 506 calls of grep with rg is left out: it would take longer than all the others.
run_race() {
	local dir procs began end=$((SECONDS + minutes * 60))
	local -a race=(go test -race -count=1 -short -skip WhatRgPrints -timeout 20m)
	export GORACE="atexit_sleep_ms=20" # each process that a test starts waits so long at its end, by default a second
	if ! command -v "$(go env CC)" >/dev/null; then
		skip "the race detector needs cgo and a C compiler"
		return
	fi
	while :; do
		for procs in 1 2 8; do
			began=$SECONDS
			[ "$SECONDS" -lt "$end" ] || break 2
			for dir in . cache cmd/fileproc; do
				if ! (cd "$dir" && CGO_ENABLED=1 GOMAXPROCS=$procs "${race[@]}" -p 2 ./...) >"$tmp/race" 2>&1; then
					grep -v 'no test files' "$tmp/race"
					echo "   repeat it in $dir: GOMAXPROCS=$procs ${race[*]} ./..."
					return 1
				fi
			done
			echo "   GOMAXPROCS=$procs: all passed in $((SECONDS - began)) s"
		done
	done
	echo "   losses: 0"
}

# broken BACKEND COMMAND... runs a command of break with one backend.
broken() {
	[ -e "$tmp/break-$1" ] || (cd scripts && go build -tags "fileproc_$1" -o "$tmp/break-$1" ./break)
	nice "$tmp/break-$1" "${@:2}"
}

run_hostile() {
	local backend
	for backend in linux unix generic; do # a third of the time each
		broken "$backend" hostile -for "$((minutes * 20))s"
	done
	go test -count=1 -run 'AcrossMounts|Replaced|Swapped' . ./tests
	(cd internal/fusetest && go test -count=1 ./...)
	(cd cmd/fileproc && go test -count=1 -run NamesOnATerminal .)
}

run_churn() {
	local -a cold=()
	[ "$(id -u)" != 0 ] || cold=(-cold)
	broken linux churn -for "$((minutes * 30))s" "${cold[@]}"
	if [ -w /dev/shm ]; then # in memory the writers are twenty times as fast
		broken linux churn -for "$((minutes * 30))s" -dir /dev/shm
	else
		skip "the half in memory: no /dev/shm"
	fi
}

# Its time depends on the machine, not on --minutes: about 5 minutes with the million files that scripts/tickets makes.
run_limits() {
	local many=${FILEPROC_MANY:-.data/tickets_flat_1m}
	if [ ! -d "$many" ]; then
		skip "the limits of memory: no $many; (cd scripts && go run ./tickets -layout flat -count 1m -out ../.data) makes it"
		many=
	fi
	broken linux limits -many "$many"
}

for part in "${@:-${parts[@]}}"; do
	if ! declare -F "run_$part" >/dev/null; then
		echo "reliability: no part $part; the parts are ${parts[*]}" >&2
		exit 2
	fi
done
for part in "${@:-${parts[@]}}"; do
	echo "== $part"
	start=$SECONDS
	if [ "$(uname)" = Linux ] || [ "$part" = fuzz ] || [ "$part" = race ]; then
		"run_$part"
	else
		skip "it needs Linux"
	fi
	echo "   $((SECONDS - start)) s"
done
