#!/usr/bin/env bash
# Profiles the time, the memory and, with strace, the system calls of one case: bench_profile.sh [SET [MODE]], such as
# flat_100k frontmatter. The profiles and their binary are left in .benchmarks.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
set=${1:-flat_100k} mode=${2:-frontmatter}
out=.benchmarks/profile-$set-$mode
run=("$out/bench.test" -test.run '^$' -test.bench "^BenchmarkProcess$/^layout=${set%_*}$/^files=${set#*_}$/^mode=$mode$" -test.benchtime 10x)
mkdir -p "$out"
go test -c -o "$out/bench.test" .
"${run[@]}" -test.cpuprofile "$out/cpu.pprof"
"${run[@]}" -test.memprofile "$out/mem.pprof" -test.memprofilerate 1
go tool pprof -top -nodecount 25 "$out/bench.test" "$out/cpu.pprof"
go tool pprof -top -nodecount 25 -sample_index alloc_space "$out/bench.test" "$out/mem.pprof"
! command -v strace >/dev/null || GODEBUG=asyncpreemptoff=1 strace -f -c "${run[@]}"
