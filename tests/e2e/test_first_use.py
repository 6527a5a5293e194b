"""Training on text: it is tokenized at the first use, once, and found again afterwards."""
import json
import pathlib
import signal
import struct
import time

from harness import BIN, TINY, MusterTest, wait_until


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def varint(value):
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def field(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def example(text):
    feature = field(1, field(1, text.encode()))
    return field(1, field(1, field(1, b"text") + field(2, feature)))


def tfrecords(texts):
    out = b""
    for text in texts:
        data = example(text)
        length = struct.pack("<Q", len(data))
        out += length + struct.pack("<I", masked(length)) + data + struct.pack("<I", masked(data))
    return out


class FirstUse(MusterTest):
    def setUp(self):
        super().setUp()
        self.data = self.dir / "tfds"
        folder = self.data / "c4/en/3.0.1"
        folder.mkdir(parents=True)
        # Metadata of TFDS: neither is text.
        (folder / "dataset_info.json").write_text(json.dumps({"name": "c4", "splits": [{"name": "train"}]}, indent=1))
        (folder / "features.json").write_text("{\n")
        for shard in range(2):
            texts = [f"training text {shard} number {i} of a ring of eight ranks" for i in range(100)]
            (folder / f"c4-train.tfrecord-0000{shard}-of-00002").write_bytes(tfrecords(texts))
        (folder / "c4-validation.tfrecord-00000-of-00001").write_bytes(tfrecords(["zebra quagga"] * 40))
        text = self.dir / "tok.txt"
        text.write_text("".join(f"training text {i} number of a ring of eight ranks zebra quagga\n" for i in range(300)))
        self.muster("train-tokenizer", "--text", text, "--vocab-size", "300", "--fewer-ok", "--out", self.dir / "tok", check=0)

    def words(self, *more):
        vocab = [word for word in TINY if not word.startswith("vocab_size")]
        return [self.base_yml(), *vocab, "vocab_size=512", "steps=4", f"tokenizer_path={self.dir}/tok.model",
                f"base_output_directory={self.dir}/out", "run_name=r", "hardware=cpu", *more]

    def caches(self):
        return sorted(path.parent for path in self.dir.rglob(".muster-tokens/*/index.json"))

    def test_maxtexts_line_tokenises_its_split_once(self):
        line = self.words("dataset_type=tfds", f"dataset_path={self.data}", "dataset_name=c4/en:3.0.1", "eval_interval=2",
                          "eval_steps=1")
        first = self.muster("run", *line, check=0)
        self.assertRegex(first.stderr, r"tokenised .*c4/en/3\.0\.1, split train: 200 documents, [\d,]+ tokens")
        self.assertRegex(first.stderr, r"split validation: 40 documents")
        self.assertIn("eval metrics after step: 1, ", first.stdout)
        caches = self.caches()
        self.assertEqual(len(caches), 2, caches)
        config = json.loads((self.dir / "out/r/config.json").read_text())
        self.assertIn(config["dataset_path"], map(str, caches))
        self.assertNotEqual(config["dataset_path"], config["eval_dataset_path"])
        again = self.muster("run", *line, "run_name=again", check=0)
        self.assertNotIn("tokenised", again.stderr)
        self.assertEqual(self.caches(), caches)
        # The shards have the training text alone.
        report = json.loads(self.muster("tokenize", "--text", self.data, "--tokenizer", self.dir / "tok.model", "--out",
                                        self.dir / "all", "--json", check=0).stdout)
        self.assertEqual((report["documents"], report["split"], report["files_left_out"]), (200, "train", {"validation": 1}))
        self.assertEqual(report["tokens"], json.loads((pathlib.Path(config["dataset_path"]) / "index.json").read_text())["tokens"])

    def test_tokenize_takes_the_named_split(self):
        shown = self.muster("tokenize", "--text", self.data / "c4", "--tokenizer", self.dir / "tok.model", "--out", self.dir / "v",
                            "--split", "validation", check=0).stdout
        self.assertIn("v: 40 documents", shown)
        self.assertIn("split: validation\nleft out: 2 files of the split train", shown)
        refused = self.muster("tokenize", "--text", self.data, "--tokenizer", self.dir / "tok.model", "--out", self.dir / "t",
                              "--split", "test", check=2)
        self.assertIn('has no split "test"; it has train, validation', refused.stderr)

    def test_a_damaged_record_names_its_file(self):
        path = self.data / "c4/en/3.0.1/c4-train.tfrecord-00001-of-00002"
        data = bytearray(path.read_bytes())
        data[40] ^= 1
        path.write_bytes(data)
        refused = self.muster("run", *self.words("dataset_type=c4", f"dataset_path={self.data}"), check=2)
        self.assertRegex(refused.stderr, r"c4-train\.tfrecord-00001-of-00002, record 1 .*checksum of its data differs")

    def test_a_folder_of_shards_is_used_as_it_is(self):
        self.muster("tokenize", "--text", self.data, "--tokenizer", self.dir / "tok.model", "--out", self.dir / "shards", check=0)
        self.muster("run", *self.words("dataset_type=tfds", f"dataset_path={self.dir}/shards"), check=0)
        self.assertEqual(self.caches(), [])

    def test_runs_that_start_together_tokenise_once(self):
        line = self.words("dataset_type=tfds", f"dataset_path={self.data}", "steps=1")
        runs = [self.start(BIN / "muster", "run", *line, f"run_name=r{i}") for i in range(2)]
        for run in runs:
            self.assertEqual(run.wait(timeout=120), 0, self.output(run))
        self.assertEqual(sum("tokenised " in self.output(run) for run in runs), 1)
        self.assertEqual(len(self.caches()), 1)

    def test_a_stopped_run_resumes_its_tokens(self):
        text = self.dir / "corpus"
        text.mkdir()
        # Seconds of work in several files.
        (text / "train.txt").write_text("".join(f"training text {i} of a ring of eight ranks\n" for i in range(2_000_000)))
        line = self.words("dataset_type=hf", f"dataset_path={text}", "steps=1")
        process = self.start(BIN / "muster", "run", *line)
        wait_until(lambda: list(text.rglob("*.mtok*")), what="the first shard")
        time.sleep(0.2)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(timeout=60), 130, self.output(process))
        self.assertIn("stopped after", self.output(process))
        self.assertEqual(self.caches(), [])
        finished = self.muster("run", *line, check=0, timeout=120)
        self.assertIn("tokenised", finished.stderr)


if __name__ == "__main__":
    import unittest
    unittest.main()
