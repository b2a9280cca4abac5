#!/usr/bin/env bash
# Runs the root module's tests on other platforms, two platforms at a time: 386 natively, arm64 and big-endian s390x under qemu,
# js under node, wasip1 under wazero, and windows under wine, there with the tests of cmd/fileproc too. A platform whose tool is
# missing is skipped with the reason: Debian's packages are qemu-user-static, nodejs, wine with wine64, and gcc-mingw-w64-x86-64.
# Usage: portable.sh [386|arm64|s390x|js|wasip1|windows]...
# Without an argument, all but windows run. For 386 and windows, the variable TESTFLAGS has more flags of go test.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
export CGO_ENABLED=0
timeout="-timeout=30m -vet=off" TESTFLAGS=${TESTFLAGS:-} # cross.sh vets for all of them
wasm=$(go env GOROOT)/lib/wasm

# on reports whether this machine is of a platform, or of an operating system.
on() { [[ $(go env GOHOSTOS)/$(go env GOHOSTARCH) = $1* ]] || { skip "needs $1"; return 1; }; }

# run_windows runs the tests as windows/amd64. It fills two gaps of wine 8: bcryptprimitives.dll is missing, without which no Go
# program starts, and NtSetInformationFile answers STATUS_NOT_IMPLEMENTED to FileDispositionInformationEx. For a Windows
# without that information class package os has another way to remove a file; the overlay makes it take that way here.
run_windows() {
	local os_file status=0 module
	on linux/amd64 && has wine && has x86_64-w64-mingw32-gcc || return 0
	export WINEPREFIX=$tmp/wine WINEDEBUG=-all WINEDLLOVERRIDES="mscoree,mshtml=" LC_ALL=C.UTF-8
	if ! wineboot -i >"$tmp/wineboot" 2>&1 || ! x86_64-w64-mingw32-gcc -Os -s -shared -o "$tmp/prng.dll" scripts/windows/prng.c -ladvapi32; then
		skip "wine cannot be set up: $(tail -n 1 "$tmp/wineboot")"
		return
	fi
	[ -e "$WINEPREFIX/drive_c/windows/system32/bcryptprimitives.dll" ] || cp "$tmp/prng.dll" "$WINEPREFIX/drive_c/windows/system32/bcryptprimitives.dll"
	os_file=$(go env GOROOT)/src/internal/syscall/windows/at_windows.go
	sed 's/^\(\t*\)STATUS_NOT_SUPPORTED:/\1NTStatus(0xC0000002), STATUS_NOT_SUPPORTED:/' "$os_file" >"$tmp/at_windows.go"
	echo "{\"Replace\": {\"$os_file\": \"$tmp/at_windows.go\"}}" >"$tmp/overlay.json"
	echo "   $(wine --version)"
	skip "package watch: wine tells of no change in a directory that has moved; its package events is tested"
	for module in . cmd/fileproc; do
		# One package at a time: tests that look at the time fail when many programs wait for wine's server.
		(cd "$module" && GOOS=windows GOARCH=amd64 go test -p 1 $timeout -short -overlay "$tmp/overlay.json" -exec wine $TESTFLAGS \
			$(GOOS=windows go list ./... | grep -v '/watch$')) || status=1
	done
	GOOS=windows GOARCH=amd64 go test -run - -bench TimesWalkDir -benchtime 15x -overlay "$tmp/overlay.json" -exec wine . | grep ^Bench
	(cd cmd/fileproc && GOOS=windows GOARCH=amd64 go build -o "$tmp/fileproc.exe" .) || status=1
	wine reg add 'HKCU\Software\Wine\Debug' /v RelayInclude /d 'ntdll.NtCreateFile;ntdll.NtQueryInformationFile;ntdll.NtReadFile' /f >/dev/null 2>&1
	wine_calls touch "NtCreateFile 1 NtQueryInformationFile 1 NtReadFile 1" || status=1 # of an empty file
	wine_calls mkdir "NtCreateFile 3 NtQueryInformationFile 3 NtReadFile 0" || status=1
	mkdir "$tmp/fifo" && mkfifo "$tmp/fifo/pipe" && touch "$tmp/fifo/file"
	timeout 60 wine "$tmp/fileproc.exe" hash "Z:${tmp//\//\\}\\fifo" >"$tmp/out" 2>&1
	if [ $? != 2 ] || ! grep -q 'pipe: .*changed' "$tmp/out" || ! grep -q 'file$' "$tmp/out"; then
		echo "   a FIFO is not a failure beside a file: $(cat "$tmp/out")"
		status=1
	fi
	wineserver -k || true
	return "$status"
}

# wine_calls MAKE WANT fails unless hashing takes so many calls more for each file or directory more that MAKE makes. What wine's
# own processes call is counted too, so a wrong count is made again.
wine_calls() {
	local n call try got
	for try in 1 2 3 4 5; do
		for n in 100 200; do
			mkdir -p "$tmp/$1$n" && (cd "$tmp/$1$n" && seq "$n" | xargs "$1" 2>/dev/null) || true
			WINEDEBUG=+relay wine "$tmp/fileproc.exe" hash "Z:${tmp//\//\\}\\$1$n" 2>"$tmp/$n" >/dev/null
		done
		got=
		for call in NtCreateFile NtQueryInformationFile NtReadFile; do
			got+=" $call $((($(grep -ac "Call ntdll.$call(" "$tmp/200") - $(grep -ac "Call ntdll.$call(" "$tmp/100") + 50) / 100))"
		done
		[ "$got" != " $2" ] || return 0
	done
	echo "   $1:$got, want $2"
	return 1
}

emulated() { # GOARCH, qemu's name for the architecture
	on linux && has "qemu-$2-static" || return 0
	GOOS=linux GOARCH=$1 go test $timeout -short -exec "qemu-$2-static" ./...
}

run_386() { ! on linux/amd64 || GOARCH=386 go test $timeout -short $TESTFLAGS ./...; }
run_arm64() { emulated arm64 aarch64; }
run_s390x() { emulated s390x s390x; }
run_js() { ! has node || GOOS=js GOARCH=wasm go test $timeout -short -exec "$wasm/go_js_wasm_exec" . ./tests; }
run_wasip1() {
	go -C scripts build -o "$tmp/wazero" github.com/tetratelabs/wazero/cmd/wazero || return 1
	PATH=$tmp:$PATH GOWASIRUNTIME=wazero GOOS=wasip1 GOARCH=wasm go test $timeout -short -exec "$wasm/go_wasip1_wasm_exec" . ./tests
}

[ $# -gt 0 ] || set -- 386 arm64 s390x js wasip1
for platform; do
	beside "go test as $platform" eval "run_$platform || false" # there a command that fails is not the end
done
all_ended
