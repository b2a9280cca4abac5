"""Runs a batch program (see package pipe) over all files below a root, on a Spark cluster.

    spark-submit driver.py --program ./batch ROOT OUT

The program lists ROOT once, here. Spark gives its executors batches of the names and starts the program for each.
What it answers is written to OUT as lines of JSON, in a directory for each kind:

    OUT/kind=result     one line a file: {"path":…,"result":…}
    OUT/kind=error      the files that failed: {"path":…,"error":"…"}
    OUT/kind=skipped    the files that the program left out: {"path":…,"skipped":true}

The driver fails if a batch could not be done, if a name that was listed is not answered exactly once in OUT, or if more files failed
than --max-errors allows.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys

from pyspark import SparkContext
from pyspark.sql import SparkSession, functions

KINDS = "result", "error", "skipped"


def list_names(program, root):
    """The names that the program lists, each as the line that it also reads."""
    listing = subprocess.run([program, "-list", root], stdout=subprocess.PIPE)
    if listing.returncode != 0:
        raise SystemExit(f"{program} -list {root}: exit status {listing.returncode}")
    # Only a newline ends a line; str.splitlines would also split at characters that may be in a name.
    *lines, rest = listing.stdout.decode().split("\n")
    if rest:
        raise SystemExit(f"{program} -list {root}: the last line is not whole")
    return lines


def kind_of(line):
    """The directory of an answer, which must be whole."""
    answer = json.loads(line)
    [kind] = [kind for kind in KINDS if kind in answer]
    return kind, line


# What precedes the rest of an answer is the name, written as in the listing. Without the +, Java needs a piece of its stack
# for each character, which is used up after some 2,000.
PATH = r'^\{"path":("(?:[^"\\]|\\.)*+"|\{"bytes":"[^"]*"\}),'


def process(spark, program, root, out, batch=5000, env=(), parquet=None, max_errors=None, schema=None):
    """Processes all files below root and returns the number of names, of batches, and of answers of each kind. schema has the types of
    the results' columns, such as "id string, words bigint": by default Spark finds them in the JSON, in each run anew."""
    sc: SparkContext = spark.sparkContext
    program = os.path.abspath(program)
    if os.path.isdir(root):
        root = os.path.join(os.getcwd(), root)  # executors have other working directories
    listed = list_names(program, root)
    batches = -(-len(listed) // batch)
    counts = {"listed": len(listed), "batches": batches, **dict.fromkeys(KINDS, 0)}
    if not listed:  # OUT is then empty too, and not what an earlier run has left
        spark.createDataFrame([], "kind string, value string").write.partitionBy("kind").text(out)
        return counts

    command = program
    if not sc.master.startswith("local[") and sc.master != "local":  # executors have the files of addFile in their working directories
        sc.addFile(program)
        command = "./" + os.path.basename(program)
    # The program's environment is this and nothing else. One task has spark.task.cpus processors.
    environment = {name: os.environ[name] for name in env if name in os.environ}
    environment["GOMAXPROCS"] = sc.getConf().get("spark.task.cpus", "1")

    names = sc.parallelize(listed, batches)
    # Without checkCode a batch that broke off would pass for one that is done.
    answers = names.pipe(shlex.join([command, root]), env=environment, checkCode=True)
    # Each batch is written once: what a lost or failed attempt has written is never committed.
    spark.createDataFrame(answers.map(kind_of), "kind string, value string").write.partitionBy("kind").text(out)

    written = spark.read.text(out)
    given = spark.createDataFrame(names.map(lambda line: (line, 1, 1)), "name string, missing int, listed int")
    name = functions.regexp_extract("value", PATH, 1).alias("name")
    answered = written.select(name, functions.lit(-1).alias("missing"), functions.lit(0).alias("listed"))
    sums = [functions.sum(column).alias(column) for column in ("missing", "listed")]
    wrong = given.union(answered).groupBy("name").agg(*sums).where("missing != 0 or listed > 1")
    if some := wrong.take(10):
        for row in some:
            if row.missing:
                print(f"{row.name}: {abs(row.missing)} answers too {'few' if row.missing > 0 else 'many'}", file=sys.stderr)
            else:
                print(f"{row.name}: listed {row.listed} times", file=sys.stderr)
        raise SystemExit(f"{out} is not complete: {wrong.count()} names are not listed and answered exactly once")

    counts.update((row["kind"], row["count"]) for row in written.groupBy("kind").count().collect())
    if max_errors is not None and counts["error"] > max_errors:
        for [line] in written.where("kind = 'error'").select("value").take(10):
            print(line, file=sys.stderr)
        raise SystemExit(f"{counts['error']} files failed, more than --max-errors {max_errors}: see {out}/kind=error")
    if parquet and schema:  # an answer that does not fit is an error, and not a row without a result
        row = functions.from_json("value", f"path string, result struct<{schema}>", {"mode": "FAILFAST"})
        written.where("kind = 'result'").select(row.alias("row")).select("row.*").write.parquet(parquet)
    elif parquet and counts["result"]:
        spark.read.json(os.path.join(out, "kind=result")).write.parquet(parquet)
    return counts


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", metavar="ROOT", help="a directory that every machine has, or what else the program takes, such as the URL of a bucket")
    parser.add_argument("out", metavar="OUT", help="a directory that every machine has, or a URL that Spark can write to; it must not exist")
    parser.add_argument("--program", required=True, help="the batch program, which is copied to the executors")
    parser.add_argument("--batch", type=int, default=5000, metavar="N", help="files in a batch, which is what is done again after a failure (default 5000)")
    parser.add_argument("--env", action="append", default=[], metavar="NAME", help="an environment variable that the program needs; may be repeated")
    parser.add_argument("--parquet", metavar="DIR", help="also write the results to DIR, as Parquet")
    parser.add_argument("--schema", metavar="COLUMNS", help='the types of the columns for --parquet, such as "id string, words bigint" (default what Spark finds in the JSON)')
    parser.add_argument("--max-errors", type=int, metavar="N", help="fail if more than N files fail, for example because a machine does not have the mount (default no limit)")
    args = parser.parse_args()
    spark = SparkSession.builder.appName("fileproc").getOrCreate()
    try:
        print(json.dumps(process(spark, args.program, args.root, args.out, args.batch, args.env, args.parquet, args.max_errors, args.schema)))
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
