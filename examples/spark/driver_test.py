"""Tests driver.py on a cluster of two executors on this machine. scripts/spark.sh starts it.

    driver_test.py BATCH TREE WORK    # the batch program, a tree of tickets, an empty directory
"""

import contextlib
import io
import itertools
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import threading
import time

import driver
from pyspark import cloudpickle
from pyspark.sql import SparkSession

cloudpickle.register_pickle_by_value(driver)  # executors do not have it, as they would if it were the main program

FEW = 2000  # files, where the number does not matter

def one_machine(root):
    """What one process answers, without Spark: sorted lines."""
    names = subprocess.run([batch, "-list", root], stdout=subprocess.PIPE, check=True).stdout
    return sorted(subprocess.run([batch, root], input=names, stdout=subprocess.PIPE, check=True).stdout.splitlines())


def written(out, kind="*"):
    """The lines of an output."""
    return sorted(line for file in pathlib.Path(out).glob(f"kind={kind}/*.txt") for line in file.read_bytes().splitlines())


def equal(what, got, want):
    if got == want:
        return
    if isinstance(want, list):
        has, wants = set(map(repr, got)), set(map(repr, want))  # a list of dicts has no set of its own
        missing, more = [x for x in want if repr(x) not in has], [x for x in got if repr(x) not in wants]
        got, want = f"{len(got)} of {len(want)}; missing {missing[:3]}, more {more[:3]}", "…"
    raise AssertionError(f"{what}: {got}, want {want}")


def script(name, text):
    """A batch program that lists as the real one does, and answers as the text says."""
    path = work / name
    path.write_text(f'#!/bin/bash\nset -o pipefail\n[ "$1" != -list ] || exec {batch} "$@"\n{text}\n')
    path.chmod(0o755)
    return str(path)


def small_tree():
    """A tree of a few of the tickets."""
    root = work / "few"
    files = (f for f in pathlib.Path(tree).rglob("*.md"))
    for file in itertools.islice(files, FEW):
        copy = root / file.relative_to(tree)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, copy)
    return root


def executors(app):
    """The process IDs of an application's executors."""
    lines = subprocess.run(["ps", "-eo", "pid,args"], stdout=subprocess.PIPE, check=True, text=True).stdout.splitlines()
    return [int(line.split()[0]) for line in lines if "java" in line and "CoarseGrainedExecutorBackend" in line and f"--app-id {app} " in line + " "]


def test_killed_executor(spark):
    """An executor is killed while its program has answered a part of a batch."""
    reached, killed = work / "reached", work / "killed"
    program = script("killed.sh", f"""
{batch} "$@" | {{
	for ((i = 0; i < 100; i++)); do read -r line && printf '%s\\n' "$line"; done
	[ -e {killed} ] || echo >>{reached}
	while [ ! -e {killed} ]; do sleep 0.1; done
	cat
}}""")
    victims, over, app = [], threading.Event(), spark.sparkContext.applicationId

    def kill():
        until = time.monotonic() + 120
        while time.monotonic() < until and not (reached.exists() and reached.stat().st_size >= 2):  # both executors have one
            if over.wait(0.05):
                return
        victims.extend(executors(app)[:1])
        for pid in victims:
            os.kill(pid, signal.SIGKILL)
        time.sleep(1)  # its orphans write on, which must not count
        killed.touch()

    killer = threading.Thread(target=kill)
    killer.start()
    sc = spark.sparkContext
    sc.setJobGroup("killed", "killed")
    out = work / "out-killed"
    try:
        counts = driver.process(spark, program, tree, str(out), batch=max(len(whole) // 20, 100))
    finally:
        over.set()
        killer.join()
        sc.setJobGroup("others", "others")
    equal("executors killed", len(victims), 1)
    tracker = sc.statusTracker()
    stages = [tracker.getStageInfo(s) for job in tracker.getJobIdsForGroup("killed") for s in tracker.getJobInfo(job).stageIds]
    failed = sum(stage.numFailedTasks for stage in stages if stage)
    if failed < 1:
        raise AssertionError("no task was tried again, so the executor was not killed in the middle")
    equal("lines", written(out), whole)
    equal("results", counts["result"], len(whole))
    return f"{failed} of {counts['batches']} batches done again"


def test_poisoned_files(spark):
    """Files that fail have an output of their own, and no other is lost, whatever they are called."""
    root = work / "poisoned"
    shutil.copytree(few, root)
    (root / "bad.md").write_text("nothing in front")
    with open(root / "large.md", "wb") as f:
        f.truncate(2 << 20)
    content = next(pathlib.Path(few).rglob("*.md")).read_bytes()
    for name in b"new\nline.md", b" \"quoted\".md", b"not UTF-8 \xff.md", b"line\xc2\x85 end.md", b"{\"bytes\":\"eA==\"}.md", b"return\r.md":
        (root / os.fsdecode(name)).write_bytes(content)
    deep = os.open(root, os.O_RDONLY)
    for _ in range(30):  # a path of 6,000 bytes, which no system call takes as a whole
        os.mkdir("d" * 200, dir_fd=deep)
        parent, deep = deep, os.open("d" * 200, os.O_RDONLY, dir_fd=deep)
        os.close(parent)
    with open(os.open("deep.md", os.O_WRONLY | os.O_CREAT, dir_fd=deep), "wb") as f:
        f.write(content)
    os.close(deep)
    out = work / "out-poisoned"
    counts = driver.process(spark, batch, str(root), str(out), batch=500)
    equal("failures", [json.loads(line)["path"] for line in written(out, "error")], ["bad.md", "large.md"])
    equal("lines", written(out), one_machine(str(root)))
    equal("results", counts["result"], FEW + 7)
    return f"{counts['error']} failures, {counts['result']} results"


def test_roots(spark):
    """A root that is relative is the driver's, and an empty one has an output of its own."""
    out, empty = work / "out-relative", work / "empty"
    before = os.getcwd()
    os.chdir(work)
    try:
        counts = driver.process(spark, batch, "few", str(out), batch=500)
    finally:
        os.chdir(before)
    equal("lines", written(out), one_machine(str(few)))
    empty.mkdir()
    equal("names", driver.process(spark, batch, str(empty), str(work / "out-empty"))["listed"], 0)
    try:
        driver.process(spark, batch, str(empty), str(out))
    except Exception as err:
        if "PATH_ALREADY_EXISTS" not in str(err):
            raise
    else:
        raise AssertionError("an output of an earlier run passes for that of an empty root")
    return f"{counts['result']} results"


def test_bucket(spark):
    """A bucket gives what a directory gives."""
    out = work / "out-bucket"
    counts = driver.process(spark, batch, f"file://{few}", str(out), batch=500)
    equal("lines", written(out), one_machine(str(few)))
    return f"{counts['result']} results"


def test_max_errors(spark):
    """More failures than allowed fail the job, as where a machine has an empty directory in place of the mount."""
    program = script("unmounted.sh", f"mkdir -p empty; {batch} empty")
    for allowed in None, FEW, FEW - 1:
        messages = io.StringIO()
        try:
            with contextlib.redirect_stderr(messages):
                counts = driver.process(spark, program, str(few), str(work / f"out-max-{allowed}"), batch=500, max_errors=allowed)
        except SystemExit as err:
            equal("allowed", allowed, FEW - 1)
            if f"{FEW} files failed, more than --max-errors" not in str(err):
                raise
            equal("examples", len(messages.getvalue().splitlines()), 10)
        else:
            equal("errors", counts["error"], FEW)
            if allowed == FEW - 1:
                raise AssertionError("the job does not fail")
    return "3 limits"


def test_schema(spark):
    """The columns of Parquet are those asked for, whatever the results are, and a result that does not fit is an error."""
    schema = "words double, none array<string>, id string"
    want = "struct<path:string,result:struct<words:double,none:array<string>,id:string>>"
    empty = work / "empty-of-results"
    empty.mkdir()
    (empty / "bad.md").write_text("nothing in front")
    for root, rows in (few, FEW), (empty, 0):
        parquet = str(work / f"parquet-{root.name}")
        driver.process(spark, batch, str(root), str(work / f"out-schema-{root.name}"), parquet=parquet, schema=schema)
        table = spark.read.parquet(parquet)
        equal("schema", table.schema.simpleString(), want)
        equal("rows", table.where("result.id is not null and result.words > 0 and path is not null").count(), rows)
    try:
        driver.process(spark, batch, str(few), str(work / "out-unfit"), parquet=str(work / "parquet-unfit"), schema="id int")
    except Exception as err:
        if "MALFORMED" not in str(err):
            raise
    else:
        raise AssertionError("a result that does not fit passes")
    return want


def test_loud_failures(spark):
    """A program that does not keep to the protocol fails the job."""
    for name, text, want in [
        ("loses.sh", f'{batch} "$@" | sed 1d', "not complete: 4 names"),
        ("doubles.sh", f'{batch} "$@" | sed 1p', "not complete: 4 names"),
        ("breaks.sh", f'{batch} "$@" | head -n 100; exit 3', "PIPE_FUNCTION_EXITED"),
        ("halves.sh", f'{batch} "$@" | head -c 1000', "JSONDecodeError"),
    ]:
        messages = io.StringIO()
        try:
            with contextlib.redirect_stderr(messages):
                driver.process(spark, script(name, text), str(few), str(work / f"out-{name}"), batch=500)
        except (Exception, SystemExit) as err:
            if want not in str(err):
                raise AssertionError(f"{name}: it fails with {err}, want {want}") from err
        else:
            raise AssertionError(f"{name}: the job does not fail")
    for name, text, want in [
        ("unlisted.sh", f'printf %s "$({batch} "$@")"', "the last line is not whole"),
        ("listed-twice.sh", f'if [ "$1" = -list ]; then {batch} "$@" | sed 1p; else {batch} "$@"; fi', "not complete: 1 names"),
    ]:
        program = pathlib.Path(script(name, ""))
        program.write_text(f"#!/bin/bash\n{text}\n")
        try:
            with contextlib.redirect_stderr(io.StringIO()):
                driver.process(spark, str(program), str(few), str(work / f"out-{name}"))
        except SystemExit as err:
            if want not in str(err):
                raise
        else:
            raise AssertionError(f"{name}: the job does not fail")
    return "6 programs"


def test_exact(spark):
    """The command line, over all files. It stops Spark."""
    out, parquet = work / "out", work / "parquet"
    sys.argv = ["driver.py", "--program", batch, "--parquet", str(parquet), tree, str(out)]
    printed = io.StringIO()
    stop, rows = SparkSession.stop, []

    def count_and_stop(session):
        SparkSession.stop = stop
        rows.append(session.read.parquet(str(parquet)).select("result.sha256").distinct().count())
        stop(session)

    SparkSession.stop = count_and_stop
    with contextlib.redirect_stdout(printed):
        driver.main()
    counts = json.loads(printed.getvalue())
    equal("lines", written(out), whole)
    equal("counts", counts, {"listed": len(whole), "batches": -(-len(whole) // 5000), "result": len(whole), "error": 0, "skipped": 0})
    equal("rows of Parquet", rows, [len({json.loads(line)["result"]["sha256"] for line in whole})])
    return f"{len(whole)} results"


if __name__ == "__main__":
    batch, tree, work = sys.argv[1:]
    work = pathlib.Path(work)
    few = small_tree()
    whole = one_machine(tree)
    session = SparkSession.builder.appName("driver_test").getOrCreate()
    try:
        for test in test_killed_executor, test_poisoned_files, test_roots, test_bucket, test_max_errors, test_schema, test_loud_failures, test_exact:
            start = time.monotonic()
            detail = test(session)
            print(f"   {test.__name__}: {detail}, {time.monotonic() - start:.0f} s", flush=True)
    finally:
        session.stop()
