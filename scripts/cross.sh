#!/usr/bin/env bash
# Vets the root module and the command, with their tests, for the platforms that they support, the root module for each build
# tag, and every other module for this platform, all from source. Then it builds the root module and the command for the
# platforms that are named, or without an argument for all. Of platforms with the same files and the same sizes of integers
# (go list -f '{{.GoFiles}}'), one is enough.
# Usage: cross.sh [GOOS/GOARCH]...
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
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
for name; do
	is "$name" "${targets[@]}" || { echo "cross.sh: $name is none of ${targets[*]}" >&2; exit 2; }
done
[ $# -gt 0 ] || set -- "${targets[@]}"
go -C scripts build -o "$tmp/vet" ./vet
export GOGC=off GOMEMLIMIT=2GiB # less time is spent on collecting garbage: 79 s, not 108, on two processors
# As one workspace, the two modules share the time that it takes to load what they import.
printf '%s\nuse (\n\t"%s"\n\t"%s"\n)\n' "$(grep '^go ' go.mod)" "$PWD" "$PWD/cmd/fileproc" >"$tmp/go.work"

# check runs a command in modules, and prints once what is wrong: check "DIR..." [VARIABLE=VALUE]... COMMAND...
check() {
	local dir out
	for dir in $1; do
		out=$(cd "$dir" && env "${@:2}" 2>&1) || { grep -v 'analysis skipped\|failed prerequisites' <<<"$out" | sort -u && return 1; }
	done
}

for name in "${targets[@]}"; do
	beside "vet $name" check . GOWORK="$tmp/go.work" GOOS="${name%/*}" GOARCH="${name#*/}" CGO_ENABLED=0 "$tmp/vet" ./... ./cmd/fileproc/...
done
for tag in fileproc_unix fileproc_generic fileproc_nouring; do
	beside "vet -tags $tag" check . GOFLAGS="$GOFLAGS -tags=$tag" "$tmp/vet" ./...
done
while read -r module; do
	beside "vet ${module%/go.mod}" check "${module%/go.mod}" "$tmp/vet" ./...
done < <(find . -mindepth 2 -name go.mod -not -path '*/.*/*' -not -path '*/testdata/*' -not -path ./cmd/fileproc/go.mod | sort)
for name; do
	beside "build $name" check ". cmd/fileproc" GOOS="${name%/*}" GOARCH="${name#*/}" CGO_ENABLED=0 go build -o "$tmp/${name//\//_}/" ./...
done
all_ended
echo "${#targets[@]} platforms vetted, $# built, in $SECONDS s"
