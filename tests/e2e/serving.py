"""A trained model and a server for the tests of `muster serve`."""
import http.client
import json
import pathlib
import re
import shutil
import socket
import subprocess
import tempfile

from harness import BIN, SOURCE, TINY, MusterTest, wait_until

# Repetitive, so that a small model continues it.
TEXT = "".join(f"rank {i % 10} waits for rank {(i + 1) % 10} and then continues.\n" for i in range(3000))
CONTEXT = 128


class ServerTest(MusterTest):
    """Starts servers and sends them requests."""

    def serve_run(self, run, *words):
        """Starts a server of a run and sets self.port."""
        port_file = self.dir / f"port-{len(self.processes)}"
        process = self.start(BIN / "muster", "serve", "--run", run, "--listen", "127.0.0.1:0", "--port-file", port_file, "--threads", "1", *words)
        self.port = int(self.wait_for_file(process, port_file))
        return process

    def request(self, path, body=None, method=None, headers=None):
        """Returns (status, headers, body) of a request; `body` is JSON or bytes."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
            connection.request(method or ("GET" if body is None else "POST"), path, data, headers or {})
            response = connection.getresponse()
            return response.status, dict(response.getheaders()), response.read().decode()
        finally:
            connection.close()

    def complete(self, **fields):
        """Returns the response of a completion that must succeed."""
        status, _, body = self.request("/v1/completions", {"temperature": 0, **fields})
        self.assertEqual(status, 200, body)
        return json.loads(body)

    def metric(self, name):
        found = re.search(rf"^{name} (\S+)$", self.request("/metrics")[2], re.M)
        return float(found[1]) if found else None

    def wait_until_idle(self):
        wait_until(lambda: self.metric("muster_serve_running") == 0 and self.metric("muster_serve_waiting") == 0, 60, "an idle server")
        self.assertEqual(self.metric("muster_serve_cache_free_blocks"), self.metric("muster_serve_cache_blocks"))

    def open(self, body, receive_buffer=None):
        """Sends the request of a completion on a socket, and returns the socket."""
        connection = socket.socket()
        self.addCleanup(connection.close)
        if receive_buffer:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        connection.settimeout(60)
        connection.connect(("127.0.0.1", self.port))
        data = json.dumps(body).encode()
        connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(data) + data)
        return connection


class ServeTest(ServerTest):
    """Trains one model for all tests of the class."""

    @classmethod
    def setUpClass(cls):
        cls.model = pathlib.Path(tempfile.mkdtemp(prefix="muster-serve-"))
        cls.addClassCleanup(shutil.rmtree, cls.model, ignore_errors=True)
        (cls.model / "text.txt").write_text(TEXT)
        for words in (["train-tokenizer", "--text", cls.model / "text.txt", "--vocab-size", "320", "--out", cls.model / "tok"],
                      ["tokenize", "--text", cls.model / "text.txt", "--tokenizer", cls.model / "tok.model", "--out", cls.model / "shards"]):
            subprocess.run([BIN / "muster", *map(str, words)], check=True, capture_output=True, text=True, timeout=170, cwd=cls.model)
        cls.train("speaks", f"dataset_path={cls.model}/shards", "steps=150")
        cls.run_folder = cls.model / "out/speaks"

    @classmethod
    def train(cls, name, *words, folder=None):
        """Trains a run of the same model in `folder`/out."""
        run = ["run", SOURCE / "configs/base.yml", f"run_name={name}", f"base_output_directory={folder or cls.model}/out", *TINY, "vocab_size=320",
               "dataset_type=shards", f"dataset_path={cls.model}/shards", f"tokenizer_path={cls.model}/tok.model", "learning_rate=1e-2",
               "per_device_batch_size=8", f"max_target_length={CONTEXT}", "--ranks", "1"]
        keys = {str(word).split("=")[0] for word in words}
        run = [word for word in run if str(word).split("=")[0] not in keys]
        subprocess.run([BIN / "muster", *map(str, run), *words], check=True, capture_output=True, text=True, timeout=170, cwd=cls.model)

    def serve(self, *words):
        return self.serve_run(self.run_folder, *words)
