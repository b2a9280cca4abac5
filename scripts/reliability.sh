#!/usr/bin/env bash
# Tries to make fileproc lose, tear or leak something, for as long as it may. Fails at the first loss, and prints what to repeat.
# Usage: reliability.sh [--minutes N] [PART]...   N minutes for each part, 2 by default; all parts by default:
#   faults   each system call with each of its errors, by strace's injection and by seccomp
#   hostile  a process that swaps links, FIFOs, devices and directories; odd mounts and file systems; patterns
#   churn    writers that create, rename, delete, rewrite and replace
#   limits   few descriptors, little memory, one processor, many runs at once, slow consumers, deep chains
#   fuzz     the fuzz targets and the random interleavings
#   race     the suite again and again under the race detector, with 1, 2 and 8 processors
# What a part needs and the machine lacks is skipped with the reason. docs/reliability.md has the figures.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
parts=(faults hostile churn limits fuzz race)
minutes=2
if [ "${1:-}" = --minutes ]; then
	minutes=${2:?--minutes needs a number}
	shift 2
fi
export GOFLAGS="${GOFLAGS:-} -buildvcs=false" # a clone owned by another user cannot be stamped

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

skip() { echo "   skipped: $1"; }

for part in "${@:-${parts[@]}}"; do
	if ! declare -F "run_$part" >/dev/null; then
		echo "no part $part; the parts are ${parts[*]}" >&2
		exit 2
	fi
	echo "== $part"
	start=$SECONDS
	"run_$part"
	echo "   $((SECONDS - start)) s"
done
