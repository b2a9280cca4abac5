#!/usr/bin/env bash
# Tests fileprocbeam on runners in processes of their own: Prism, and the job service of Beam's Python SDK. The tests on
# Prism within their own process are those of `go test` in fileprocbeam.
# Needs Go; Python 3 with venv and pip for the second runner, which is installed in ~/.cache/fileproc unless FILEPROCBEAM_PYTHON
# names a Python that has apache-beam. A runner that is not there is skipped with the reason.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd fileprocbeam

version=$(go list -m -f '{{.Version}}' github.com/apache/beam/sdks/v2)
export TMPDIR=$tmp # Beam's runners leave files there
! in_memory tmpfs || export TMPDIR=$memory # on a busy disk, 100,000 files take minutes to be made and removed
service=

cleanup() {
	[ -z "$service" ] || { kill "$service" && wait "$service"; } 2>/dev/null || true
	service=
}

free_port() { # one that was free a moment ago
	local port
	for _ in {1..20}; do
		port=$((20000 + RANDOM % 10000))
		(: <"/dev/tcp/127.0.0.1/$port") 2>/dev/null || { echo "$port"; return; }
	done
	return 1
}

# run_on NAME TESTS COMMAND... starts the job service COMMAND PORT, and runs the tests with the flags TESTS on it.
run_on() {
	local name=$1 port begin=$SECONDS
	local -a tests
	read -ra tests <<<"$2"
	shift 2
	port=$(free_port)
	"$@" "$port" >"$tmp/log" 2>&1 &
	service=$!
	until (: <"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do
		if ! kill -0 "$service" 2>/dev/null || [ $((SECONDS - begin)) -gt 60 ]; then
			echo "$name does not start:"
			tail -n 20 "$tmp/log"
			return 1
		fi
		sleep 0.2
	done
	echo "   $name"
	FILEPROCBEAM_ENDPOINT=localhost:$port "$tmp/test" "${tests[@]}" -test.timeout 10m -test.v >"$tmp/out" 2>&1 || {
		cat "$tmp/out"
		return 1
	}
	grep -E '^--- | files: ' "$tmp/out" || { # -test.run may name tests that are gone
		echo "no test has run"
		return 1
	}
	cleanup
}

prism() { exec "$tmp/prism" -serve_http=false -log_level=error -job_port="$1"; }
python_service() { exec "$python" -m apache_beam.runners.portability.local_job_service_main --port="$1"; }

echo "   building the tests and Prism, which takes minutes with an empty build cache"
go test -c -o "$tmp/test" .
if env "GOBIN=$tmp" go install "github.com/apache/beam/sdks/v2/go/cmd/prism@$version" 2>"$tmp/err"; then
	run_on "Prism $version" -test.run=. prism
else
	skip "Prism cannot be installed: $(tail -n 1 "$tmp/err")"
fi
python=${FILEPROCBEAM_PYTHON:-}
if [ -n "$python" ] || venv "apache-beam==${version#v}"; then
	# Each pipeline takes five seconds longer there, whatever it does.
	run_on "Python's job service ${version#v}" '-test.short -test.run=OneMachine|Failures|BundleFails|KilledWorker|UTF8' python_service
fi
