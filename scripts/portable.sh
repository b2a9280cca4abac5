#!/usr/bin/env bash
# Runs the root module's tests on other platforms: 32-bit natively, arm64 and big-endian s390x under qemu, js under node,
# and wasip1 under wazero, two at a time. A platform whose tool is missing is skipped with the reason; as root, qemu is
# installed.
# Usage: portable.sh [386|arm64|s390x|js|wasip1]...
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export CGO_ENABLED=0

wazero_version=v1.12.0
timeout=-timeout=30m
wasm=$(go env GOROOT)/lib/wasm

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

skip() { echo "   skipped: $1"; }

install_qemu() {
	if ! command -v qemu-aarch64-static >/dev/null && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
		{ apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq qemu-user-static; } >/dev/null 2>&1 </dev/null || true
	fi
}

emulated() { # GOARCH, qemu's name for the architecture
	local qemu=qemu-$2-static
	if [ "$(go env GOHOSTOS)" != linux ]; then
		skip "qemu's user mode needs Linux"
		return
	fi
	if ! command -v "$qemu" >/dev/null; then
		skip "no $qemu"
		return
	fi
	GOOS=linux GOARCH=$1 go test "$timeout" -short -exec "$qemu" ./...
}

run() {
	case $1 in
	386)
		if [ "$(go env GOHOSTOS)/$(go env GOHOSTARCH)" != linux/amd64 ]; then
			skip "needs linux/amd64"
			return
		fi
		GOARCH=386 go test "$timeout" -short ./...
		;;
	arm64) emulated arm64 aarch64 ;;
	s390x) emulated s390x s390x ;;
	js)
		if ! command -v node >/dev/null; then
			skip "no node"
			return
		fi
		GOOS=js GOARCH=wasm go test "$timeout" -short -exec "$wasm/go_js_wasm_exec" .
		;;
	wasip1)
		if ! GOBIN=$tmp go install "github.com/tetratelabs/wazero/cmd/wazero@$wazero_version" 2>"$tmp/err"; then
			skip "wazero cannot be installed: $(tail -n 1 "$tmp/err")"
			return
		fi
		PATH=$tmp:$PATH GOWASIRUNTIME=wazero GOOS=wasip1 GOARCH=wasm \
			go test "$timeout" -short -exec "$wasm/go_wasip1_wasm_exec" .
		;;
	*)
		echo "portable: unknown platform $1" >&2
		return 1
		;;
	esac
}

# check prints what run prints only when it is over, since two platforms run at a time.
check() {
	local out status=0
	out=$(run "$1" 2>&1) || status=$?
	printf '== go test as %s\n%s\n   %d s\n' "$1" "$out" "$SECONDS"
	return "$status"
}
export -f check run emulated skip
export wazero_version timeout wasm tmp

[ $# -gt 0 ] || set -- 386 arm64 s390x js wasip1
[[ " $* " != *\ arm64\ * && " $* " != *\ s390x\ * ]] || install_qemu
printf '%s\n' "$@" | xargs -P 2 -n 1 bash -c 'check "$1"' check
