#!/usr/bin/env bash
# Tries to make fileproc lose, tear or leak something. Fails at the first part with a loss, and prints how to repeat that.
# Usage: reliability.sh [--minutes N] [PART]...   N minutes for each part, 2 by default; all parts by default:
#   faults   each system call with each of its errors, by strace's injection and by seccomp
#   hostile  a racer that swaps links, FIFOs, devices and directories; odd mounts and FUSE servers; names on a terminal
#   churn    writers that create, rename, delete, rewrite and replace
#   limits   few descriptors, little memory, many runs at once, slow consumers, deep chains; its time does not depend on N
#   fuzz     the fuzz targets, of which FuzzPool makes random interleavings; at least 10 s each
#   race     the short tests under the race detector, again and again, with 1, 2 and 8 processors
# A part that needs what the machine lacks is skipped with the reason. docs/dev/reliability.md has the figures.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
parts=(faults hostile churn limits fuzz race)
minutes=2
if [ "${1:-}" = --minutes ]; then
	minutes=${2:-}
	shift 2
fi
[[ $minutes =~ ^[1-9][0-9]*$ ]] || { echo "reliability: --minutes needs a number of minutes" >&2; exit 2; }
[ $# -gt 0 ] || set -- "${parts[@]}"

# say TAGS TESTS runs tests of tests/ with build tags, and prints what they say.
say() {
	go test -count=1 -timeout 0 -v -tags "$1" -run "$2" ./tests >"$tmp/log" 2>&1 && grep '_test\.go:' "$tmp/log" || { failures && return 1; }
}

run_faults() {
	has strace || return 0
	strace -qq -e trace=none true 2>/dev/null || { skip "strace may not trace a process here"; return 0; }
	go -C scripts run ./break faults -for "${minutes}m"
}

# run_fuzz gives each fuzz target an equal share of the minutes. What go test finds interesting it keeps, so a later run goes on
# from there.
run_fuzz() {
	local target dir share losses=0 at=$tmp
	local -a targets
	mapfile -t targets < <(grep -rEo --exclude-dir=.data --include='*_test.go' '^func Fuzz[A-Za-z0-9_]+' .)
	share=$((minutes * 60 / ${#targets[@]}))
	[ "$share" -ge 10 ] || share=10
	if in_memory tmpfs; then at=$memory; fi # the targets make many small files
	for target in "${targets[@]}"; do
		dir=${target%/*} target=${target##* }
		echo "   $dir $target, $share s"
		(cd "$dir" && TMPDIR=$at go test -run '^$' -fuzz "^$target\$" -fuzztime "${share}s" -fuzzminimizetime 2s .) >"$tmp/fuzz" 2>&1 ||
			{ cat "$tmp/fuzz" && losses=$((losses + 1)); } # with the file to repeat
		grep 'execs: ' "$tmp/fuzz" | tail -n 1
	done
	echo "   losses: $losses"
	[ "$losses" = 0 ]
}

# run_race leaves out the comparison of 506 calls of grep with rg: it would take longer than all the others.
run_race() {
	local dir procs end=$((SECONDS + minutes * 60))
	local -a race=(go test -race -count=1 -short -skip WhatRgPrints -timeout 20m -p 2)
	export GORACE="atexit_sleep_ms=20" # each process that a test starts waits so long at its end, by default a second
	has "$(go env CC)" || return 0
	while :; do
		for procs in 1 2 8; do
			[ "$SECONDS" -lt "$end" ] || return 0
			for dir in . cache cmd/fileproc; do
				echo "   in $dir: GOMAXPROCS=$procs ${race[*]} ./..."
				(cd "$dir" && CGO_ENABLED=1 GOMAXPROCS=$procs "${race[@]}" ./...) >"$tmp/race" 2>&1 || { cat "$tmp/race" && return 1; }
			done
		done
	done
}

run_hostile() {
	for tag in fileproc_linux fileproc_unix fileproc_generic; do # a third of the time each
		FILEPROC_HOSTILE=$((minutes * 20)) say "$tag" HostileTree
	done
	go test -count=1 -run 'AcrossMounts|Replaced|Swapped' . ./tests
	go -C internal/fusetest test -count=1 ./...
	go -C cmd/fileproc test -count=1 -run NamesOnATerminal .
}

run_churn() {
	go -C scripts build -o "$tmp/break" ./break
	nice "$tmp/break" churn -for "$((minutes * 30))s"
	FILEPROC_WATCHED=$((minutes * 300)) go test -count=1 -timeout 0 -run Histories -v ./watch | grep rounds,
	in_memory tmpfs || { skip "the half in memory: no /dev/shm" && return 0; } # there the writers are twenty times as fast
	nice "$tmp/break" churn -for "$((minutes * 30))s" -dir "$memory"
}

run_limits() {
	FILEPROC_LIMITS=1 FILEPROC_MANY=${FILEPROC_MANY:-$(realpath -e .data/tickets_flat_1m 2>/dev/null || true)} say fileproc_linux 'FewDescriptors|LimitsThatForbid|AChain|LimitsOfMemory'
}

for part; do
	is "$part" "${parts[@]}" || { echo "reliability: no part $part; the parts are ${parts[*]}" >&2; exit 2; }
done
for part; do
	[ "$(uname)" = Linux ] || is "$part" fuzz race || { skip "$part, which needs Linux" && continue; }
	step "$part" "run_$part"
done
