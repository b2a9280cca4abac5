#!/usr/bin/env bash
# Tests examples/spark on a Spark cluster of two executors on this machine, which listens on 127.0.0.1 alone. Without Java 17,
# python3 or pyspark, which is installed in ~/.cache/fileproc unless python3 has it, the test is skipped with the reason.
# Usage: spark.sh [files], by default 100k. PYTHON names another python3, SPARK_SECONDS another limit for the tests than 1800.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
export CGO_ENABLED=0
pyspark_version=4.0.1
files=${1:-100k}
seconds=${SPARK_SECONDS:-1800}
python=${PYTHON:-python3}

[[ $tmp != *[[:space:]]* ]] || { skip "JAVA_TOOL_OPTIONS and Spark's scripts would divide $tmp"; exit; }

# ours prints the IDs of the processes that have $tmp in their arguments, or as their directory: all that Spark starts.
ours() {
	pgrep -f "$tmp" || true
	{ find /proc/[0-9]*/cwd -prune -lname "$tmp*" 2>/dev/null || true; } | cut -d / -f 3
}

cleanup() {
	local pids
	pids=$(ours)
	# shellcheck disable=SC2086 # several numbers
	[ -z "$pids" ] || kill -9 $pids 2>/dev/null || true
}
trap 'exit 1' INT TERM

has java "$python" pgrep ps timeout || exit 0
java=$(java -XshowSettings:properties -version 2>&1 | awk '$1 == "java.specification.version" { print $3 }' || true)
[[ $java =~ ^[0-9]+$ ]] && [ "$java" -ge 17 ] || { skip "Spark needs Java 17, and this is ${java:-another}"; exit; }
if [ "$("$python" -c 'import pyspark; print(pyspark.__version__)' 2>/dev/null)" != "$pyspark_version" ]; then
	venv "pyspark==$pyspark_version" || exit 0
fi

mkdir "$tmp/work" "$tmp/home" "$tmp/local"
(cd examples/spark && go build -o "$tmp/batch" .)
(cd scripts && go run ./tickets -layout nested3 -count "$files" -out "$tmp/tickets" >/dev/null)

# Workers write below SPARK_HOME.
ln -s "$("$python" -c 'import pyspark, os; print(os.path.dirname(pyspark.__file__))')"/* "$tmp/home"
export SPARK_HOME=$tmp/home SPARK_LOCAL_DIRS=$tmp/local SPARK_LOCAL_IP=127.0.0.1 SPARK_CONF_DIR=$tmp/conf
export PYSPARK_PYTHON=$python PYSPARK_DRIVER_PYTHON=$python PYTHONDONTWRITEBYTECODE=1
# Programs this short spend most of their time in the compiler of the JVM and in its garbage collector.
export JAVA_TOOL_OPTIONS="-Djava.io.tmpdir=$tmp -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
mkdir "$SPARK_CONF_DIR"
cat >"$SPARK_CONF_DIR/spark-defaults.conf" <<CONF
spark.master                  local-cluster[2,1,1024]
spark.ui.enabled              false
spark.sql.shuffle.partitions  4
CONF
status=0
timeout -k 10 "$seconds" "$python" examples/spark/driver_test.py "$tmp/batch" "$tmp/tickets/tickets_nested3_$files" "$tmp/work" 2>"$tmp/log" &
wait $! || status=$? # a signal interrupts wait alone
if [ "$status" != 0 ]; then
	tail -n 60 "$tmp/log"
	echo "driver_test.py: exit status $status; 124 and 137 say that it has not ended within $seconds s: SPARK_SECONDS sets another limit"
	exit 1
fi
for ((i = 0; i < 100; i++)); do # executors end soon after the application
	[ -n "$(ours)" ] || exit 0
	sleep 0.1
done
echo "processes are left:"
ps -o pid,args -p "$(ours | paste -sd,)"
exit 1
