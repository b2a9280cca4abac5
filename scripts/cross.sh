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
# As one workspace, the two modules share the time that it takes to load what they import.
printf '%s\nuse (\n\t"%s"\n\t"%s"\n)\n' "$(grep '^go ' go.mod)" "$PWD" "$PWD/cmd/fileproc" >"$tmp/go.work"

# check runs a command in modules: check LABEL "DIR..." COMMAND...
check() {
	local label=$1 dirs=$2 start=$SECONDS out dir
	shift 2
	for dir in $dirs; do
		if ! out=$(cd "$dir" && "$@" 2>&1); then
			printf 'FAIL  %s, in %s\n%s\n' "$label" "$dir" "$(grep -v 'analysis skipped\|failed prerequisites' <<<"$out" | sort -u)"
			return 1
		fi
	done
	printf 'ok    %-40s %3d s\n' "$label" $((SECONDS - start))
}
export -f check

{
	for name in "${targets[@]}"; do
		printf 'GOWORK=%q GOOS=%s GOARCH=%s CGO_ENABLED=0 check "vet %s" . %q ./... ./cmd/fileproc/...\0' \
			"$tmp/go.work" "${name%/*}" "${name#*/}" "$name" "$tmp/vet"
	done
	for tag in fileproc_unix fileproc_generic fileproc_nouring; do
		printf 'GOFLAGS="$GOFLAGS -tags=%s" check "vet -tags %s" . %q ./...\0' "$tag" "$tag" "$tmp/vet"
	done
	while read -r module; do
		printf 'check "vet %s" %q %q ./...\0' "${module%/go.mod}" "${module%/go.mod}" "$tmp/vet"
	done < <(find . -mindepth 2 -name go.mod -not -path '*/.*/*' -not -path '*/testdata/*' -not -path ./cmd/fileproc/go.mod | sort)
	for name; do
		printf 'GOOS=%s GOARCH=%s CGO_ENABLED=0 check "build %s" ". cmd/fileproc" go build -o %q ./...\0' "${name%/*}" "${name#*/}" "$name" "$tmp/${name//\//_}/"
	done
} | xargs -0 -P 2 -n 1 bash -c || {
	echo "cross: some platforms failed"
	exit 1
}
echo "${#targets[@]} platforms vetted, $# built, in $SECONDS s"
