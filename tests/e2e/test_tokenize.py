"""`muster tokenize` on real files: its report, and equal shards after kill -9 at any moment."""
import gzip
import json
import random
import shutil
import signal
import subprocess
import time

from harness import BIN, MusterTest, wait_until

KILLS = 12


def corpus(lines, seed):
    words = random.Random(seed)
    return "".join("".join(words.choice(["rank ", "waits ", "for ", "the ", "ring ", "of ", "eight "])
                           for _ in range(words.randrange(3, 40))) + "\n" for _ in range(lines))


class Tokenize(MusterTest):
    def setUp(self):
        super().setUp()
        self.text = self.dir / "text"
        self.text.mkdir()
        (self.text / "part-1.txt").write_text(corpus(20_000, 1))
        rows = "".join(json.dumps({"id": i, "text": line}) + "\n" for i, line in enumerate(corpus(20_000, 2).split("\n")))
        (self.text / "part-2.jsonl.gz").write_bytes(gzip.compress(rows.encode()))
        self.muster("train-tokenizer", "--text", self.text / "part-1.txt", "--vocab-size", "300", "--fewer-ok", "--out",
                    self.dir / "tok", check=0)

    def command(self, out, *more):
        return ["tokenize", "--text", self.text, "--tokenizer", self.dir / "tok.model", "--out", self.dir / out,
                "--shard-tokens", "20000", *more]

    def shards(self, out):
        return len(list((self.dir / out).glob("*.mtok*")))

    def files(self, out):
        return {path.name: path.read_bytes() for path in (self.dir / out).iterdir()}

    def test_file_size_limit_is_an_error_like_a_full_disk(self):
        limited = subprocess.run(["bash", "-c", 'ulimit -f 8; exec "$0" "$@"', BIN / "muster", *self.command("small")],
                                 capture_output=True, text=True, timeout=60)
        self.assertEqual(limited.returncode, 2, limited.stderr)
        self.assertIn("File too large", limited.stderr)

    def test_killed_runs_resume_to_the_same_shards(self):
        self.muster(*self.command("whole", "--threads", "1"), check=0)
        expected = self.files("whole")
        self.assertGreater(len(expected), 10)
        moments = random.Random(5)
        killed = 0
        for _ in range(KILLS):
            # Kill it some shards after the previous kill, independent of this machine's speed.
            before = self.shards("killed")
            wanted = before + moments.randrange(max(1, len(expected) - before))
            process = subprocess.Popen([BIN / "muster", *map(str, self.command("killed"))], stdout=subprocess.DEVNULL,
                                       stderr=subprocess.DEVNULL)
            while process.poll() is None and self.shards("killed") < wanted:
                time.sleep(0.0005)
            time.sleep(0.005 * moments.random())
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                killed += 1
            process.wait()
            # The run ended before the kill: repeat from the beginning.
            if (self.dir / "killed/index.json").exists() and not (self.dir / "killed/.tokenize.journal").exists():
                shutil.rmtree(self.dir / "killed")
        self.assertGreater(killed, 0, "nothing was killed; the runs are too short")
        report = json.loads(self.muster(*self.command("killed", "--json"), check=0).stdout)
        files = self.files("killed")
        self.assertEqual(sorted(files), sorted(expected))
        for name, content in files.items():
            self.assertTrue(content == expected[name], f"{name} differs")
        self.assertEqual(report["tokens"], json.loads(expected["index.json"])["tokens"])

    def test_ctrl_c_prints_where_it_stopped_and_how_to_resume(self):
        more = corpus(20_000, 3)
        for index in range(8):  # more than a second of work after the first shards
            (self.text / f"part-{3 + index}.txt").write_text(more)
        process = self.start(BIN / "muster", *self.command("stopped", "--threads", "1"))
        wait_until(lambda: self.shards("stopped") > 3, what="a shard")
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(timeout=60), 130)
        self.assertRegex(self.output(process), r"error: stopped after \d+ of \d+ bytes of the input \(\d+\.\d%\) "
                                               r"\(\d+ shards are finished and kept: the same command resumes after them\)")
        self.assertRegex(self.muster(*self.command("stopped"), check=0).stdout, r"resumed: \d+ shards of an interrupted run kept")

    def test_report_names_bad_documents(self):
        (self.text / "part-3.jsonl").write_bytes(b'{"text": "fine"}\n{"text": \n{"text": "caf\xe9"}\n')
        (self.text / "README.md").write_text("not a part of it")
        refused = self.muster(*self.command("bad"), check=2)
        self.assertIn("part-3.jsonl:2 (byte 17) is not JSON", refused.stderr)
        self.assertIn("the same command resumes", refused.stderr)
        shown = self.muster(*self.command("bad", "--bad-documents", "skip"), check=0).stdout
        self.assertRegex(shown, r"resumed: \d+ shards of an interrupted run kept\n")
        self.assertRegex(shown, r"skipped: 2 documents\n  .*part-3.jsonl:2 \(byte 17\) is not JSON: .*\n")
        self.assertRegex(shown, r"ignored: 1 file: .*README.md\n")
        report = json.loads(self.muster(*self.command("bad", "--bad-documents", "skip", "--json"), check=0).stdout)
        self.assertEqual((report["files"], report["files_ignored"], report["documents_skipped"]), (3, 1, 2))
        self.assertEqual(report["documents"], 40_001)

    def test_parquet_without_arrow_names_the_packages(self):
        path = self.dir / "a.parquet"
        path.write_bytes(b"PAR1 and no more")
        refused = self.muster("tokenize", "--text", path, "--tokenizer", self.dir / "tok.model", "--out", self.dir / "p", check=2)
        self.assertRegex(refused.stderr, r"a\.parquet .*(install libarrow-dev|Parquet)")


if __name__ == "__main__":
    import unittest
    unittest.main()
