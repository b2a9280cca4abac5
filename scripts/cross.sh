#!/usr/bin/env bash
# Builds and vets the root module and the command for the platforms that they support, two at a time. Of platforms with the same
# files and the same sizes of integers (go list -f '{{.GoFiles}}'), one is enough.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export CGO_ENABLED=0 GOFLAGS="${GOFLAGS:-} -buildvcs=false" # a clone owned by another user cannot be stamped

# Not ios, which needs cgo.
targets=(
	linux/{amd64,arm64,386,riscv64,s390x,loong64,mips,mips64le}
	android/arm64
	darwin/arm64
	windows/{amd64,386}
	freebsd/amd64 netbsd/amd64 openbsd/amd64 dragonfly/amd64
	solaris/amd64 illumos/amd64 aix/ppc64 plan9/amd64
	js/wasm wasip1/wasm
)

check() {
	local start=$SECONDS out
	export GOOS=${1%/*} GOARCH=${1#*/}
	if out=$({ go build ./... && go vet ./... && cd cmd/fileproc && go vet ./... && go build -o /dev/null .; } 2>&1); then
		printf 'ok    %-16s %3d s\n' "$1" $((SECONDS - start))
	else
		printf 'FAIL  %s\n%s\n' "$1" "$out"
		return 1
	fi
}
export -f check

if ! printf '%s\n' "${targets[@]}" | xargs -P 2 -n 1 bash -c 'check "$1"' check; then
	echo "cross: some platforms failed"
	exit 1
fi
echo "${#targets[@]} platforms in $SECONDS s"
