"""Tests what driver.py and driver_test.py do without Spark, in less than a second:

    python3 driver_unit_test.py
"""

import contextlib
import io
import pathlib
import re
import sys
import tempfile
import unittest
from unittest import mock

sys.modules.update({name: mock.MagicMock() for name in ("pyspark", "pyspark.sql")})

import driver
import driver_test


class Names(unittest.TestCase):
    def listed(self, text):
        with tempfile.TemporaryDirectory() as dir:
            program = pathlib.Path(dir, "a program")
            program.write_text(f"#!/bin/sh\n{text}\n")
            program.chmod(0o755)
            return driver.list_names(str(program), "the root")

    def test_arguments(self):
        self.assertEqual(self.listed("""printf '%s\\n' "$1" "$2" "$#" """), ["-list", "the root", "2"])

    def test_only_a_newline_ends_a_name(self):
        self.assertEqual(self.listed(r"printf 'a\302\205b\n\342\200\250\n c\r\n'"), ["a\x85b", "\u2028", " c\r"])
        self.assertEqual(self.listed("true"), [])

    def test_a_listing_that_broke_off(self):
        for text, want in (r"printf 'a\nb'", "the last line is not whole"), (r"printf 'a\n'; exit 3", "exit status 3"):
            with self.assertRaisesRegex(SystemExit, want):
                self.listed(text)


class Answers(unittest.TestCase):
    def test_kind(self):
        for kind in driver.KINDS:
            line = f'{{"path":"a","{kind}":1}}'
            self.assertEqual(driver.kind_of(line), (kind, line))
        for line in '{"path":"a","resu', '{"path":"a"}', '{"path":"a","result":1,"error":""}':
            with self.assertRaises(ValueError):
                driver.kind_of(line)

    @unittest.skipIf(sys.version_info < (3, 11), "Python 3.11 has Java's possessive quantifiers")
    def test_path(self):
        for name in '"a/b.md"', r'"a \"quoted\" \\"', '{"bytes":"eA=="}', f'"{"d/" * 5000}"':
            self.assertEqual(re.match(driver.PATH, f'{{"path":{name},"result":{{"path":"b"}}}}')[1], name)
        self.assertIsNone(re.match(driver.PATH, '{"result":1}'))


class CommandLine(unittest.TestCase):
    def test_all(self):
        flags = "--program p --batch 7 --env A --env B --parquet P --schema S --max-errors 0"
        with mock.patch.object(driver, "process", return_value={"listed": 1}) as process, contextlib.redirect_stdout(io.StringIO()) as out, \
                mock.patch.object(sys, "argv", ["driver.py", *flags.split(), "ROOT", "OUT"]):
            driver.main()
        self.assertEqual(process.call_args.args[1:], ("p", "ROOT", "OUT", 7, ["A", "B"], "P", 0, "S"))
        self.assertEqual(out.getvalue(), '{"listed": 1}\n')


class Equal(unittest.TestCase):
    def test_what_differs(self):
        driver_test.equal("same", [{"a": 1}], [{"a": 1}])
        for got, want, text in (1, 2, "n: 1, want 2"), ({"a": 1}, {"a": 2}, "n: {'a': 1}, want {'a': 2}"), \
                ([{"a": 1}], [{"a": 2}], "1 of 1; missing .*'a': 2.*more .*'a': 1"), (["a", "a"], ["a"], "2 of 1; missing .., more .."):
            with self.assertRaisesRegex(AssertionError, text):
                driver_test.equal("n", got, want)


if __name__ == "__main__":
    unittest.main()
