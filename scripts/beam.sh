#!/usr/bin/env bash
# Tests fileprocbeam on runners in processes of their own: Prism, and the job service of Beam's Python SDK. The tests on
# Prism within their own process are those of `go test` in fileprocbeam.
# Needs Go; Python 3 with venv and pip for the second runner. A runner that is not there is skipped with the reason.
# With FILEPROCBEAM_PYTHON, a Python that has apache-beam, nothing is installed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../fileprocbeam"

version=$(go list -m -f '{{.Version}}' github.com/apache/beam/sdks/v2)
tmp=$(mktemp -d)
export TMPDIR=$tmp # Beam's runners leave files there
service=

stop() {
	[ -z "$service" ] || { kill "$service" && wait "$service"; } 2>/dev/null || true
	service=
}
trap 'stop; rm -rf "$tmp"' EXIT

skip() { echo "   skipped: $1"; }

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
	FILEPROCBEAM_ENDPOINT=localhost:$port "$tmp/test" "${tests[@]}" -test.timeout 3m -test.v >"$tmp/out" 2>&1 || {
		cat "$tmp/out"
		return 1
	}
	grep -E '^--- | files: ' "$tmp/out" || { # -test.run may name tests that are gone
		echo "no test has run"
		return 1
	}
	stop
}

prism() { exec "$tmp/prism" -serve_http=false -log_level=error -job_port="$1"; }
python_service() { exec "$python" -m apache_beam.runners.portability.local_job_service_main --port="$1"; }

# find_python sets python to one that has the version of apache-beam that belongs to the Go SDK.
find_python() {
	python=${FILEPROCBEAM_PYTHON:-}
	[ -z "$python" ] || return 0
	if ! command -v python3 >/dev/null; then
		skip "no python3"
	elif ! python3 -m venv "$tmp/venv" >"$tmp/err" 2>&1; then
		skip "python3 cannot make a virtual environment: $(tail -n 1 "$tmp/err")"
	elif ! timeout 300 "$tmp/venv/bin/pip" install -q --disable-pip-version-check --no-cache-dir --no-compile "apache-beam==${version#v}" 2>"$tmp/err"; then
		skip "pip cannot install apache-beam ${version#v}: $(tail -n 1 "$tmp/err")"
	else
		python=$tmp/venv/bin/python
		return 0
	fi
	return 1
}

# building NAME COMMAND... runs COMMAND, and says every half minute that it does: with an empty build cache it takes minutes.
building() {
	local name=$1 ticker status=0 begin=$SECONDS
	shift
	echo "   building $name"
	while sleep 30 >/dev/null 2>&1 && kill -0 $$; do echo "   building $name: $((SECONDS - begin)) s"; done 2>/dev/null &
	ticker=$!
	"$@" || status=$?
	kill "$ticker"
	wait "$ticker" 2>/dev/null || true
	return $status
}

building "the tests" go test -c -o "$tmp/test" .
if building "Prism $version" env "GOBIN=$tmp" go install "github.com/apache/beam/sdks/v2/go/cmd/prism@$version" 2>"$tmp/err"; then
	run_on "Prism $version" -test.run=. prism
else
	skip "Prism cannot be installed: $(tail -n 1 "$tmp/err")"
fi
if find_python; then
	# Each pipeline takes five seconds longer there, whatever it does.
	run_on "Python's job service ${version#v}" '-test.short -test.run=OneMachine|Failures|BundleFails|KilledWorker|UTF8' python_service
fi
