"""`muster tokenize` on real files: its report, and equal shards after kill -9 at any moment."""
import gzip
import json
import pathlib
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
        self.assertRegex(limited.stderr, r"File too large \(ulimit -f allows \d+ KiB\)")

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
        self.assertRegex(shown, r"ignored: 1 file, unknown ending: .*README.md\n")
        report = json.loads(self.muster(*self.command("bad", "--bad-documents", "skip", "--json"), check=0).stdout)
        self.assertEqual((report["files"], report["files_ignored"], report["documents_skipped"]), (3, 1, 2))
        self.assertEqual(report["documents"], 40_001)

    def test_every_entry_and_input_is_in_the_report(self):
        elsewhere = self.dir / "elsewhere"
        elsewhere.mkdir()
        (elsewhere / "linked.txt").write_text("rank waits\nrank waits for\n")
        (self.text / "more").symlink_to(elsewhere)
        (self.text / "again.txt").symlink_to(self.text / "part-1.txt")
        (self.text / "circle").symlink_to(self.text)
        (self.text / ".hidden").touch()
        report = json.loads(self.muster(*self.command("all", "--json"), check=0).stdout)
        inputs = {pathlib.Path(entry["path"]).name: entry for entry in report["inputs"]}
        self.assertEqual(sorted(inputs), ["linked.txt", "part-1.txt", "part-2.jsonl.gz"])
        self.assertEqual(inputs["linked.txt"]["documents"], 2)
        for entry in inputs.values():
            self.assertEqual(entry["bytes_read"], entry["bytes"])
        for key in ("documents", "tokens"):
            self.assertEqual(sum(entry[key] for entry in inputs.values()), report[key])
        reasons = {pathlib.Path(entry["path"]).name: entry["reason"] for entry in report["ignored"]}
        self.assertEqual(reasons.pop(".hidden"), "hidden")
        self.assertEqual(reasons, {"again.txt": f"the same file as {self.text}/part-1.txt", "circle": f"the same folder as {self.text}"})
        shown = self.muster(*self.command("all"), check=0).stdout
        self.assertRegex(shown, r"part-1\.txt: 20000 documents, \d+ tokens, \d+ bytes read\n")
        self.assertRegex(shown, r"tokenizer: .*tok\.model, sentencepiece\n")
        (self.text / "gone.txt").symlink_to("nowhere")
        self.assertRegex(self.muster(*self.command("all"), check=2).stderr, r"gone\.txt: it is a symbolic link to nowhere, which does not")
        (self.text / "gone.txt").unlink()
        (self.text / "pointer.txt").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 3\n")
        self.assertIn("pointer.txt: this is a Git LFS pointer: run git lfs pull", self.muster(*self.command("all"), check=2).stderr)

    def test_unread_fields_do_not_matter(self):
        rows = self.dir / "rows.jsonl"
        values = ["NaN", "1e400", "-Infinity", "123456789012345678901234567890", '"\\ud800"', "[1, [NaN]]"]
        rows.write_text("".join(f'{{"score": {value}, "doc": {{"text": "rank waits"}}}}\n' for value in values))
        report = json.loads(self.muster("tokenize", "--text", rows, "--field", "doc.text", "--tokenizer", self.dir / "tok.model", "--out",
                                        self.dir / "rows", "--bad-documents", "stop", "--json", check=0).stdout)
        self.assertEqual((report["documents"], report["documents_repaired"]), (len(values), 0))
        rows.write_text('[{"text": "a"}]\n')
        refused = self.muster("tokenize", "--text", rows, "--tokenizer", self.dir / "tok.model", "--out", self.dir / "rows", check=2)
        self.assertIn("is a JSON array, not JSON lines; jq -c '.[]'", refused.stderr)

    def test_encoding_of_a_tiktoken_file(self):
        golden = pathlib.Path(__file__).resolve().parents[1] / "golden/tokenizers/cl100k_base.tiktoken"
        file = self.dir / "renamed.tiktoken"
        file.write_bytes(golden.read_bytes())
        words = ["tokenize", "--text", self.text / "part-1.txt", "--tokenizer", file, "--out", self.dir / "t"]
        self.assertIn("is a tiktoken file of an unknown encoding (SHA-256 ", self.muster(*words, check=2).stderr)
        shown = self.muster(*words, "--encoding", "o200k_base", check=0).stdout
        self.assertIn("renamed.tiktoken, tiktoken o200k_base (as stated)\n", shown)

    def test_parquet_without_arrow_names_the_packages(self):
        path = self.dir / "a.parquet"
        path.write_bytes(b"PAR1 and no more")
        refused = self.muster("tokenize", "--text", path, "--tokenizer", self.dir / "tok.model", "--out", self.dir / "p", check=2)
        self.assertRegex(refused.stderr, r"a\.parquet .*(install libarrow-dev|Parquet)")


if __name__ == "__main__":
    import unittest
    unittest.main()
