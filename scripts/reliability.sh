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
	(cd scripts && go run ./faults -minutes "$minutes")
}

# test_directories prints the directories with tests of the modules that run_race and run_fuzz test.
test_directories() {
	local mod
	for mod in . cache cmd/fileproc; do
		(cd "$mod" && go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.Dir}}{{end}}' ./...) || return
	done
}

# run_fuzz gives each fuzz target of those modules an equal share of the minutes, and 10 s at least. What it finds interesting is
# kept where go test -fuzz keeps it, so a later run goes on from there.
run_fuzz() {
	local dir dirs target file share import status losses=0
	local -a targets=()
	dirs=$(test_directories) # fails if go list does
	while read -r dir; do
		while read -r target; do
			targets+=("$dir $target")
		done < <(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$dir"/*_test.go)
	done <<<"$dirs"
	share=$((minutes * 60 / ${#targets[@]}))
	[ "$share" -ge 10 ] || share=10
	if [ -w /dev/shm ] && [ "$(df --output=avail /dev/shm | tail -n 1)" -gt 1000000 ]; then # KiB; the targets make many small files
		memory=$(mktemp -d /dev/shm/fileproc.XXXXXX)
	fi
	for target in "${targets[@]}"; do
		dir=${target% *} target=${target##* }
		import=$(cd "$dir" && go list)
		file=$tmp/${import//\//_}
		[ -e "$file" ] || (cd "$dir" && go test -c -fuzz=. -o "$file" .)
		status=0
		(cd "$dir" && TMPDIR=${memory:-${TMPDIR:-/tmp}} "$file" -test.run '^$' -test.fuzz "^$target\$" -test.fuzztime "${share}s" \
			-test.fuzzminimizetime 2s -test.fuzzcachedir "$(go env GOCACHE)/fuzz/$import") >"$tmp/fuzz" 2>&1 || status=$?
		awk -v name="${dir#"$PWD"/} $target" -v share="$share" '
			/execs: / { sub(/.*execs: /, ""); execs = $1; sub(/.*interesting: /, ""); interesting = $1 }
			END { printf "   %-45s %4d s %10d executions %5d new interesting\n", name, share, execs, interesting }' "$tmp/fuzz"
		if [ "$status" != 0 ]; then
			cat "$tmp/fuzz" # with the file to repeat
			losses=$((losses + 1))
		fi
	done
	rm -rf "$memory"
	echo "   losses: $losses"
	[ "$losses" = 0 ]
}

# run_race runs the short tests of those modules with 1, 2 and 8 processors, in turn, until the minutes are over. A pass that has
# begun is run to its end. The comparison of 506 calls of grep with rg is left out: it would take longer than all the others.
run_race() {
	local dir file list procs began end=$((SECONDS + minutes * 60))
	local -a dirs passes=([1]=0 [2]=0 [8]=0)
	export GORACE="atexit_sleep_ms=20" # each process that a test starts waits so long at its end, by default a second
	if ! command -v "$(go env CC)" >/dev/null; then
		skip "the race detector needs cgo and a C compiler"
		return
	fi
	list=$(test_directories) # fails if go list does
	mapfile -t dirs <<<"$list"
	for dir in "${dirs[@]}"; do
		file=$tmp/race${dir//\//_}
		(cd "$dir" && CGO_ENABLED=1 go test -race -c -o "$file" .)
	done
	while :; do
		for procs in 1 2 8; do
			began=$SECONDS
			[ "$SECONDS" -lt "$end" ] || break 2
			for dir in "${dirs[@]}"; do
				file=$tmp/race${dir//\//_}
				if ! (cd "$dir" && GOMAXPROCS=$procs "$file" -test.short -test.skip WhatRgPrints -test.timeout 20m) >"$tmp/race" 2>&1; then
					cat "$tmp/race"
					echo "   repeat it in ${dir#"$PWD"/}: GOMAXPROCS=$procs go test -race -short -skip WhatRgPrints ."
					return 1
				fi
			done
			passes[procs]=$((passes[procs] + 1))
			echo "   GOMAXPROCS=$procs: ${#dirs[@]} packages passed in $((SECONDS - began)) s"
		done
	done
	echo "   passes with 1, 2 and 8 processors: ${passes[1]}, ${passes[2]}, ${passes[8]}; losses: 0"
}

# build_break BACKEND builds scripts/break with one backend as $tmp/break-BACKEND.
build_break() {
	local tags=
	[ "$1" = linux ] || tags=fileproc_$1
	(cd scripts && go build -tags "$tags" -o "$tmp/break-$1" ./break)
}

run_hostile() {
	local backend
	for backend in linux unix generic; do # a third of the time each
		build_break "$backend"
		nice "$tmp/break-$backend" hostile -for "$((minutes * 20))s"
	done
	go test -count=1 -run 'AcrossMounts|Replaced|Swapped' . ./tests
	(cd internal/fusetest && go test -count=1 ./...)
	(cd cmd/fileproc && go test -count=1 -run NamesOnATerminal .)
}

run_churn() {
	build_break linux
	local -a cold=()
	[ "$(id -u)" != 0 ] || cold=(-cold)
	nice "$tmp/break-linux" churn -for "$((minutes * 30))s" "${cold[@]}"
	if [ -w /dev/shm ]; then # in memory the writers are twenty times as fast
		nice "$tmp/break-linux" churn -for "$((minutes * 30))s" -dir /dev/shm
	else
		skip "the half in memory: no /dev/shm"
	fi
}

# Its time depends on the machine, not on --minutes: about 5 minutes with the million files that scripts/tickets makes.
run_limits() {
	build_break linux
	local -a many=()
	if [ -d "${FILEPROC_MANY:-.data/tickets_flat_1m}" ]; then
		many=(-many "${FILEPROC_MANY:-.data/tickets_flat_1m}")
	else
		skip "the limits of memory: no .data/tickets_flat_1m; (cd scripts && go run ./tickets -layout flat -count 1m -out ../.data) makes it"
	fi
	"$tmp/break-linux" limits "${many[@]}"
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
