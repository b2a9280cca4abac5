#!/usr/bin/env bash
# Runs the checks of this repository: by default the most useful ones, which take three minutes on two processors.
# Usage: test.sh [--change | --all]
# --change adds what must pass before a change is merged, but for the speed; .ci/run runs it. --all adds what a nightly run does.
# Needs Go; a check whose other requirements are missing is skipped with the reason.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
case "$#$*" in
0 | 1--change | 1--all) set=${1:-} ;;
*) echo "usage: test.sh [--change | --all]" >&2 && exit 2 ;;
esac

timeout=-timeout=20m
tagged=(fileproc_unix fileproc_generic fileproc_nouring) # build tags that choose what reads directories and files
# Before a change is merged, tests are short, but for the default build, and some run in it alone: those of the core over a file
# system in memory, which is the same code in each build, and the conformance suite in two more modes. Each night, all are whole.
short=-short elsewhere="-skip=^Test(Faults|InFlight|Ordered)|^TestConformance(Cold|WithManyInFlight)$"
[ "$set" != --all ] || { short='' elsewhere=''; }

# in_nested_modules runs a command in every module but the root one, and each night in those that need Apache Beam, too.
in_nested_modules() {
	local mod
	while read -r mod; do
		echo "   ${mod%/go.mod}"
		if [[ $mod = */*beam/* && $set != --all ]]; then
			skip "Beam takes minutes to build; each night"
		else
			(cd "${mod%/go.mod}" && "$@" </dev/null)
		fi
	done < <(find . -mindepth 2 -name go.mod -not -path '*/.*/*' -not -path '*/testdata/*' | sort)
}

formatted() {
	local out
	out=$(gofmt -l .)
	[ -z "$out" ] || { echo "gofmt would change: $out"; return 1; }
}

# brief runs a test command that has -v. It prints failures and skipped parts with the reasons.
brief() {
	"$@" 2>&1 | tee "$tmp/log" | awk '
		/^=== (RUN|NAME|CONT)/ { name = $3 }
		/_test\.go:[0-9]+: / { said[name] = $0 }
		/--- SKIP: / { sub(/^ */, "", said[$3]); print "    " $3 " skipped: " said[$3] }
		/left out: |^ok|^PASS/ { print; fflush() }' || { failures && return 1; }
}

# go_test leaves vet to the step of that name and to cross.sh: it would look at all that is imported, in each build again.
go_test() { brief go test $timeout -vet=off -v "$@"; }

# test_with_tag tests the packages whose code depends on build tags with one tag.
test_with_tag() { go_test -count 1 -tags "$1" $short $elsewhere . ./tests ./internal/content ./internal/sys; }

# run_staticcheck runs it on the default build of every module, and each night on the other builds.
run_staticcheck() {
	local tags
	go -C scripts build -o "$tmp/staticcheck" honnef.co/go/tools/cmd/staticcheck
	"$tmp/staticcheck" ./...
	in_nested_modules "$tmp/staticcheck" ./...
	[ "$set" = --all ] || return 0
	for tags in "${tagged[@]}"; do
		echo "   -tags $tags"
		"$tmp/staticcheck" -tags "$tags" ./...
	done
}

race() {
	local slow
	local -a packages
	if [ "$(go env CGO_ENABLED)" != 1 ]; then
		skip "the race detector needs cgo and a C compiler"
		return
	fi
	# Three packages start no goroutine and have no unsafe code.
	go list ./... | grep -v -e internal/gitignore -e internal/gitrepo -e internal/pattern >"$tmp/packages"
	mapfile -t packages <"$tmp/packages"
	# Each process that a test starts waits at its end, by default a second. These tests take more than half of the time, and have
	# one goroutine, or the same code is under the race detector in other tests.
	slow="Test(Conformance|Faults)(Cold|InTheColdMode|WithManyInFlight|OfEachCall|PanicAtADirectoryThatIsPutAside)"
	slow+="|TestInvariant(1EachCallFails|1RefusedRings|1Limits|1ListingThat|4FewDesc|9BackendsAgree)|TestInFlightFalls"
	slow+="|TestDiskOrder|TestSortUntil|TestEachStepFails|TestLogStaysShort|TestEqualHashes|TestDeletionSparesNewer"
	GORACE=atexit_sleep_ms=20 go_test -race $short ${short:+-skip "$slow"} "${packages[@]}"
}

# Permission checks do not apply to root, and a newcomer's clone may have a path with a space and files that nobody else may read.
# The tests are built here, with the same build cache, and run in a copy.
as_another_user() {
	local dir="${memory:-$tmp}/another user"
	[ "$(id -u)" = 0 ] || { skip "only root can become another user, and this user is not root" && return; }
	has setpriv || return 0
	mkdir -p "$dir"/{bin,clone,home,mod,tmp}
	tar --exclude=./.git -cf - . | tar -C "$dir/clone" -xf -
	# Tests that call the go command need what the root module imports.
	GOMODCACHE=$dir/mod GOPROXY="file://$(go env GOMODCACHE)/cache/download,$(go env GOPROXY)" go mod download
	chown -R 65534:65534 "$dir"
	chmod a+x "$tmp" # of beside
	if ! setpriv --reuid 65534 --regid 65534 --clear-groups test -x "$dir/clone"; then
		skip "another user cannot reach the temporary directory"
		return
	fi
	set -- go_test -count 1 -exec "'$PWD/scripts/another_user.sh' '$PWD' '$dir'" $short ./...
	"$@"
	in_nested_modules "$@"
}

# random_repositories compares with git in other repositories each night.
random_repositories() {
	FILEPROC_REPOSITORIES=1000 FILEPROC_PROJECTS=20 FILEPROC_SEED=$(date +%Y%j) go_test -count 1 -run 'RandomRepositories|RealProjects' ./tests
}

# spark_driver tests what the driver does without Spark.
spark_driver() { has python3 || return 0; python3 -B examples/spark/driver_unit_test.py; }

# Each night they run on the machine's disk. GOTMPDIR is where the tests' directories are, if it is set.
[ "$set" = --all ] || ! in_memory ext4 || export TMPDIR=$memory GOTMPDIR=$memory
step "gofmt" formatted
step "go vet" go vet ./...
if [ -z "$set" ]; then
	step "go test" go_test ./...
	echo "passed in $SECONDS s; scripts/test.sh --all runs every check"
	exit
fi
[ "$set" = --all ] || tagged=(fileproc_unix fileproc_generic) # tests of the default build have DisableURing, too
beside "go test -race" race # the longest first
beside "go test" go_test ./...
# In 32 bits a system call takes ten times as long as elsewhere, and these tests make most of them, the same ones on each platform.
beside "tests as 386" env TESTFLAGS="$elsewhere${short:+|^TestInvariant(1RefusedRings|4Few|6NothingIsLeftAfterThou|9Back)|^TestHistories}" scripts/portable.sh 386
beside "go test, nested modules" in_nested_modules go_test $short ./...
for tags in "${tagged[@]}"; do
	beside "go test -tags $tags" test_with_tag "$tags"
done
beside "go test as another user" as_another_user
beside "staticcheck" run_staticcheck
beside "Spark's driver, without Spark" spark_driver
all_ended
if [ "$set" = --change ]; then
	step "vet for every platform, two more builds" scripts/cross.sh darwin/arm64 windows/amd64
	echo "passed in $SECONDS s; scripts/test.sh --all runs every check"
	exit
fi
step "vet and builds for every platform" scripts/cross.sh
# The longest first. None of them measures; the benchmarks at the end are only run, and alone.
beside "mutants" env TMPDIR="$tmp" go -C scripts run ./mutants
beside "mistakes by syntax" env TMPDIR="$tmp" go -C scripts run ./mutants -sample 300 -with ./tests \
	-since "$(git describe --tags --abbrev=0 2>/dev/null || git rev-list --max-parents=0 HEAD | tail -n 1)" . ./incremental ./watch
beside "random repositories" random_repositories
beside "Spark" scripts/spark.sh
beside "Beam" scripts/beam.sh
# arm64 and s390x are run by hand, because qemu's user mode sometimes spins forever in Go programs.
beside "tests on two more platforms" scripts/portable.sh js wasip1
beside "ports of other programs" go -C examples/ports run . -do test,compare
all_ended
step "benchmarks, small sets, 10 iterations each" go test "$timeout" -short -run '^$' -bench . -benchtime 10x .
echo "all passed in $SECONDS s"
