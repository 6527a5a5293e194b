"""Attacks on a coordinator with TLS and tokens, on its workers, and on readers of their output.

docs/threats.md lists each threat with its tests.
"""
import contextlib
import gzip
import http.client
import json
import os
import re
import socket
import ssl
import subprocess
import unittest

import grpc_frames
import trust
from grpc_frames import GrpcConnection, decode, encode, framed
from harness import BIN, SOURCE, MusterTest, wait_until

TOKENS = {role: f"{role}-token-0123456789abcdef" for role in ("worker", "viewer", "submitter", "admin")}
ROLES_OF_METHODS = {
    "viewer": {"ListJobs", "GetJob", "WatchJob", "FollowLogs", "ListWorkers", "GetJobHistory", "ListIncidents", "GetIncident",
               "GetNodeSweep", "ListNodeChecks", "ListShares"},
    "submitter": {"SubmitJob", "CancelJob", "CheckpointJob", "UpdateJob", "DumpJobStacks"},
    "admin": {"ExcludeWorker", "AdmitWorker", "CheckNodes", "BackupState", "TakeProfile", "GetCoordinator"},
    "worker": {"Connect"},
}
MAY = {"viewer": ("viewer", "submitter", "admin"), "submitter": ("submitter", "admin"), "admin": ("admin",), "worker": ("worker",)}
# The memory for some hundred connections, and more: attacks must not multiply it.
GROWTH_BYTES_MAX = 128 << 20
# Its compressed form, 63 KB, fits into the first window of a stream, so it is sent without waiting.
EXPANDED_BYTES = 62 << 20
CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def memory_of(process, field="VmRSS"):
    """Returns a field of the process in bytes. VmHWM is the largest VmRSS so far."""
    with open(f"/proc/{process.pid}/status") as file:
        return int(re.search(rf"{field}:\s+(\d+) kB", file.read())[1]) << 10


@unittest.skipIf(trust.why_not(), trust.why_not())
class Threats(MusterTest):
    def setUp(self):
        super().setUp()
        self.authority = trust.Authority(self.dir, "authority")
        self.certificate, self.key = self.authority.sign("coordinator")
        for role, token in TOKENS.items():
            trust.replace(self.dir / "tokens" / role, token + "\n")
        self.context = self.client_context()

    def client_context(self, pair=None, alpn="h2"):
        context = ssl.create_default_context(cafile=self.authority.certificate)
        if alpn:
            context.set_alpn_protocols([alpn])
        if pair:
            context.load_cert_chain(*pair)
        return context

    def start_coordinator(self, pair=None, extra=(), **kwargs):
        certificate, key = pair or (self.certificate, self.key)
        process = super().start_coordinator(extra=("--tls-cert", certificate, "--tls-key", key, "--token-dir", self.dir / "tokens", *extra), **kwargs)
        self.env.update(MUSTER_TLS_CA=str(self.authority.certificate), MUSTER_TOKEN_FILE=str(self.dir / "tokens/admin"))
        return process

    def start_worker(self, coordinator, name="node0", slots=1, **kwargs):
        return super().start_worker(coordinator, name, slots, ("--tls-ca", self.authority.certificate, "--token-file", self.dir / "tokens/worker"),
                                    **kwargs)

    def connect(self, coordinator, pair=None):
        return GrpcConnection(coordinator.ports["grpc_port"], self.client_context(pair) if pair else self.context)

    def call(self, coordinator, method, data=b"", role=""):
        with self.connect(coordinator) as connection:
            return connection.call(method, data, TOKENS.get(role, role))

    def submit(self, coordinator, fields, role="submitter"):
        """Submits a program without a client's checks: `fields` replace those of a valid job.
        Returns (status, message).
        """
        valid = f'name: "x" user: "u" nodes: 1 ranks_per_node: 1 output_directory: "{self.dir}/out" working_directory: "/" command: "true"'
        # A parser merges two messages in a row, and the later field counts.
        request = b"".join(encode("SubmitJobRequest", f"spec {{ {text} }}") for text in (valid, fields))
        return self.call(coordinator, "Muster/SubmitJob", request, role)

    def registration(self, worker):
        version = self.muster("--version", check=0).stdout.split()[-1]
        return encode("WorkerMessage", f'register {{ worker: "{worker}" incarnation: 7 version: "{version}" host: "h" slots: 1 '
                                       'rendezvous_address: "127.0.0.1:1" }')

    def http_connection(self, process, context=None):
        connection = socket.create_connection(("127.0.0.1", process.ports["http_port"]), timeout=30)
        self.addCleanup(connection.close)
        return context.wrap_socket(connection, server_hostname="127.0.0.1") if context else connection

    def exchange(self, process, request, context=None):
        """Sends bytes to the HTTP port. Returns all that the server answers."""
        connection, answer = self.http_connection(process, context), b""
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            connection.sendall(request)
        try:  # the server may have answered before it had read everything
            while part := connection.recv(65536):
                answer += part
        except (ConnectionError, ssl.SSLError):
            pass
        connection.close()
        return answer

    def assert_serves(self, coordinator):
        self.assertIsNone(coordinator.poll(), self.output(coordinator))
        self.muster("list", check=0)
        self.assertEqual(self.page(coordinator, "/readyz")[0], 200)

    # ------------------------------------------------------------------ certificates and tokens

    def is_admitted(self, coordinator, pair):
        """Returns on which of the ports (gRPC, HTTP) a client gets an answer with its
        certificate.
        """
        try:
            with self.connect(coordinator, pair) as connection:
                grpc = connection.call("Muster/ListJobs", token=TOKENS["viewer"])[0] == grpc_frames.OK
        except (ConnectionError, ssl.SSLError):
            grpc = False
        page = http.client.HTTPSConnection("127.0.0.1", coordinator.ports["http_port"], timeout=20, context=self.client_context(pair, alpn=None))
        try:
            page.request("GET", "/api/v1/jobs", headers={"Authorization": f"Bearer {TOKENS['viewer']}"})
            return grpc, page.getresponse().status == 200
        except (ConnectionError, ssl.SSLError, http.client.BadStatusLine):
            return grpc, False
        finally:
            page.close()

    def test_expired_foreign_and_withdrawn_certificates_of_clients(self):
        authorities = self.dir / "clients.crt"
        trust.replace(authorities, self.authority.certificate.read_text())
        coordinator = self.start_coordinator(extra=("--tls-client-ca", authorities))
        valid = self.authority.sign("client", "DNS:client")
        self.assertEqual(self.is_admitted(coordinator, valid), (True, True))
        stranger = trust.Authority(self.dir, "stranger")
        for name, pair in (("none", None), ("expired", self.authority.sign("expired", "DNS:client", days=-1)),
                           ("of another authority", stranger.sign("client", "DNS:client"))):
            with self.subTest(name):
                self.assertEqual(self.is_admitted(coordinator, pair), (False, False))
        # There are no revocation lists: a certificate ends with its authority.
        trust.replace(authorities, stranger.certificate.read_text())
        wait_until(lambda: self.is_admitted(coordinator, valid) == (False, False), 60, "the authority's end")

    def test_clients_refuse_expired_and_foreign_certificates_of_a_coordinator(self):
        for name, hosts, days in (("expired", "IP:127.0.0.1", -1), ("elsewhere", "DNS:other.example,IP:127.0.0.2", 1)):
            coordinator = self.start_coordinator(self.authority.sign(name, hosts, days), state=name)
            refused = self.muster("list")
            self.assertNotEqual(refused.returncode, 0, name)
            self.assertIn("certificate", refused.stderr)
            coordinator.kill()
            coordinator.wait()

    def test_each_method_requires_its_role(self):
        coordinator = self.start_coordinator()
        methods = [f"{service}/{name}" for file in ("admin.proto", "muster.proto")
                   for service, body in re.findall(r"^service (\w+) \{(.*?)^\}", (SOURCE / "proto/muster/v1" / file).read_text(), re.S | re.M)
                   for name in re.findall(r"^\s*rpc (\w+)\(", body, re.M)]
        self.assertEqual({method.split("/")[1] for method in methods}, set().union(*ROLES_OF_METHODS.values()))
        for method in methods:
            needed = next(role for role, names in ROLES_OF_METHODS.items() if method.split("/")[1] in names)
            for role in ("", "unknown-token-0123456789", *TOKENS):
                status, _ = self.call(coordinator, method, role=role)
                expected = (grpc_frames.UNAUTHENTICATED if role not in TOKENS else None if role in MAY[needed]
                            else grpc_frames.PERMISSION_DENIED)
                if expected is None:
                    self.assertNotIn(status, (None, grpc_frames.UNAUTHENTICATED, grpc_frames.PERMISSION_DENIED), (method, role))
                else:
                    self.assertEqual(status, expected, (method, role))
        # Two tokens in one call are none, whatever their order.
        with self.connect(coordinator) as connection:
            connection.start("Muster/ListJobs", TOKENS["admin"], [("authorization", f"Bearer {TOKENS['viewer']}")])
            connection.half_close()
            self.assertEqual(connection.end()[0], grpc_frames.UNAUTHENTICATED)

    def test_requests_cannot_be_replayed_as_early_data(self):
        coordinator = self.start_coordinator()
        for port in ("grpc_port", "http_port"):
            command = ["openssl", "s_client", "-connect", f"127.0.0.1:{coordinator.ports[port]}", "-tls1_3", "-alpn", "h2", "-ign_eof", "-CAfile",
                       str(self.authority.certificate)]
            shown = subprocess.run(command, input=b"GET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n", capture_output=True, timeout=60).stdout
            self.assertIn(b"Verify return code: 0 (ok)", shown)
            self.assertEqual(set(re.findall(rb"Max Early Data: (\d+)", shown)), {b"0"}, port)

    # ------------------------------------------------------------------ names

    def test_names_lead_nowhere(self):
        outside = self.dir / "outside"
        outside.write_text("the-secret\n")
        coordinator = self.start_coordinator()
        wait_until(lambda: self.page(coordinator, "/readyz")[0] == 200, 30, "the coordinator")
        before = {path for path in self.dir.rglob("*") if "state/" not in str(path)}
        for name in ("../../outside", "..", ".", "a/b", "/etc/passwd", "a\\000b", "a\\n", "\\033[2J", "x" * 129, "\\303\\244"):
            with self.subTest(name):
                status, text = self.submit(coordinator, f'name: "{name}"')
                self.assertEqual(status, grpc_frames.INVALID_ARGUMENT, text)
                self.assertIn("spec.name is", text)
                self.assertNotRegex(text, CONTROLS)
                with self.connect(coordinator) as connection:
                    connection.start("Fleet/Connect", TOKENS["worker"])
                    connection.send_message(self.registration(name))
                    self.assertEqual(connection.end()[0], grpc_frames.INVALID_ARGUMENT)
                status, _ = self.call(coordinator, "Muster/ExcludeWorker", encode("ExcludeWorkerRequest", f'worker: "{name}" reason: "r"'), "admin")
                self.assertIn(status, (grpc_frames.INVALID_ARGUMENT, grpc_frames.NOT_FOUND))
        self.assertEqual(self.submit(coordinator, 'working_directory: "../outside"')[0], grpc_frames.INVALID_ARGUMENT)
        self.assertEqual(self.submit(coordinator, 'output_directory: "outside"')[0], grpc_frames.INVALID_ARGUMENT)
        self.assertEqual(self.submit(coordinator, "")[0], grpc_frames.OK)
        plain = self.client_context(alpn=None)
        deep = "../" * 12
        for path in (f"/{deep}etc/passwd", f"/vendor/{deep}etc/passwd", "/%2e%2e/%2e%2e/outside", "/..%2foutside", "/.%00/outside", f"//{self.dir}/outside",
                     "/api/v1/jobs/../../outside", "/api/v1/jobs/..%2f..%2foutside/logs", "/api/v1/jobs/1/logs?rank=../../outside", "/api/v1/runs/..%2foutside",
                     "/api/v1/incidents/..%2f..%2foutside", "/api/v1/nodes/..%2foutside", f"/metrics/{deep}outside"):
            with self.subTest(path):
                request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {TOKENS['admin']}\r\nConnection: close\r\n\r\n"
                answer = self.exchange(coordinator, request.encode(), plain)
                self.assertRegex(answer, rb"^HTTP/1.1 400 " if "?" in path else rb"^HTTP/1.1 4(00|04) ")
                self.assertNotIn(b"root:", answer)
                self.assertNotIn(b"the-secret", answer)
        self.assertEqual({path for path in self.dir.rglob("*") if "state/" not in str(path)}, before)
        self.assertEqual(sorted(path.name for path in (self.dir / "state/logs").rglob("*") if path.is_file()), [])
        self.assert_serves(coordinator)

    # ------------------------------------------------------------------ streams and requests

    def test_hostile_streams_on_the_grpc_port(self):
        coordinator = self.start_coordinator()
        self.assert_serves(coordinator)
        silent = socket.create_connection(("127.0.0.1", coordinator.ports["grpc_port"]), timeout=30)
        self.addCleanup(silent.close)
        before = memory_of(coordinator)
        half_open = []
        for number in range(150):
            connection = self.connect(coordinator)
            self.addCleanup(connection.__exit__)
            half_open.append(connection)
            if number % 3 == 0:
                connection.start("Muster/SubmitJob", TOKENS["submitter"])  # the message never comes
            elif number % 3 == 1:
                connection.start("Muster/SubmitJob", TOKENS["submitter"])
                connection.send(grpc_frames.DATA, 0, framed(bytes(1 << 20))[:5000])  # nor its rest
            else:
                connection.send(grpc_frames.HEADERS, 0, b"\0")  # nor the rest of the headers
        with self.subTest("a message that expands"), self.connect(coordinator) as connection:
            peak = memory_of(coordinator, "VmHWM")
            connection.start("Muster/SubmitJob", TOKENS["submitter"], [("grpc-encoding", "gzip")])
            bomb = framed(gzip.compress(bytes(EXPANDED_BYTES)), compressed=True)
            for at in range(0, len(bomb), grpc_frames.FRAME_BYTES_MAX):
                connection.send(grpc_frames.DATA, 0, bomb[at:at + grpc_frames.FRAME_BYTES_MAX])
            connection.half_close()
            self.assertEqual(connection.end()[0], grpc_frames.UNIMPLEMENTED)
            self.assertLess(memory_of(coordinator, "VmHWM") - peak, EXPANDED_BYTES // 2)
        for token, expected in (("", grpc_frames.UNAUTHENTICATED), (TOKENS["viewer"], grpc_frames.PERMISSION_DENIED)):
            with self.subTest("the refusal does not wait for a message of 4 GiB"), self.connect(coordinator) as connection:
                connection.start("Muster/SubmitJob", token)
                connection.send(grpc_frames.DATA, 0, b"\0\xff\xff\xff\xff" + bytes(10_000))
                self.assertEqual(connection.end()[0], expected)
        with self.subTest("megabytes of headers"), self.connect(coordinator) as connection:
            try:
                connection.start("Muster/ListJobs", TOKENS["admin"], [(f"x-{number}", "a" * 8000) for number in range(500)])
                connection.half_close()
            except OSError:
                pass  # the coordinator has ended the connection
            self.assertNotEqual(connection.end()[0], grpc_frames.OK)
        with self.subTest("no protobuf"):
            self.assertNotIn(self.call(coordinator, "Muster/SubmitJob", b"\xff" * 1000, "submitter")[0], (None, grpc_frames.OK))
            with self.connect(coordinator) as connection:
                connection.start("Fleet/Connect", TOKENS["worker"])
                connection.send_message(b"\xff" * 1000)
                self.assertEqual(connection.end(), (grpc_frames.INVALID_ARGUMENT, "a message cannot be parsed"))
        self.assert_serves(coordinator)
        self.assertLess(memory_of(coordinator) - before, GROWTH_BYTES_MAX)
        self.assertEqual(silent.recv(1), b"", "a connection without a handshake stays open")

    def test_answers_that_expand(self):
        with grpc_frames.FakeServer(bytes(EXPANDED_BYTES), compressed=True) as server:
            self.env["MUSTER_COORDINATOR"] = server.address
            command = subprocess.Popen([BIN / "muster", "list"], env=self.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            _, status, usage = os.wait4(command.pid, 0)
            command.returncode = os.waitstatus_to_exitcode(status)
            self.assertNotEqual(command.returncode, 0)
            self.assertEqual(server.calls, 1)
            self.assertLess(usage.ru_maxrss << 10, EXPANDED_BYTES)
            # A worker connects again after each refusal.
            worker = self.start(BIN / "muster-worker", "--coordinator", server.address, "--name", "node0", "--slots", 1,
                                "--work-dir", self.dir / "work", "--http", "127.0.0.1:0", "--sys-root", self.dir / "sys")
            wait_until(lambda: server.calls > 2, 30, "two calls of the worker")
            self.assertIsNone(worker.poll(), self.output(worker))
            self.assertLess(memory_of(worker, "VmHWM"), EXPANDED_BYTES)

    def test_floods_on_the_http_ports(self):
        coordinator = self.start_coordinator()
        worker = self.start_worker(coordinator)
        plain = self.client_context(alpn=None)
        for process, context in ((coordinator, plain), (coordinator, None), (worker, None)):
            before = memory_of(process)
            many = b"GET /healthz HTTP/1.1\r\n" + b"".join(b"X-%d: a\r\n" % number for number in range(200_000))
            for request, status in ((many, b"431"), (b"GET /" + b"a" * 2_000_000, b"431"), (b"GET / HTTP/1.1\r\nX: " + b"a" * 2_000_000, b"431"),
                                    (b"\0\xff\r\n\r\n", b"400")):
                self.assertRegex(self.exchange(process, request, context), b"^HTTP/1.1 " + status)
            # Slow clients: half a request each, or half a handshake.
            for number in range(400):
                slow = self.http_connection(process)
                slow.sendall(b"\x16\x03\x01" if context and number % 2 else b"GET /healthz HTT")
            self.assertEqual(self.page(process, "/healthz")[0], 200)
            self.assertLess(memory_of(process) - before, GROWTH_BYTES_MAX)
        # A request that two servers would read differently is one request, or none.
        hidden = b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"
        request = (b"POST /api/v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
                   b"0\r\n\r\n" % (5 + len(hidden)))
        self.assertEqual(self.exchange(coordinator, request + hidden, plain).count(b"HTTP/1.1 "), 1)
        body = b"POST /api/v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 99999999999\r\n\r\n"
        self.assertRegex(self.exchange(coordinator, body, plain), rb"^HTTP/1.1 413 ")
        self.assert_serves(coordinator)
        self.assertIsNone(worker.poll())

    # ------------------------------------------------------------------ jobs

    def test_texts_of_a_job_are_never_commands(self):
        coordinator = self.start_coordinator()
        self.start_worker(coordinator)
        for variable in ("RANK", "MUSTER_PROGRESS_PAGE", "MASTER_ADDR", "A=B", "A B", "", "1A", "BASH_FUNC_x%%", "a\\nb"):
            with self.subTest(variable):
                status, text = self.submit(coordinator, f'environment {{ key: "{variable}" value: "v" }}')
                self.assertEqual(status, grpc_frames.INVALID_ARGUMENT, text)
        for variable in ("LD_PRELOAD", "LD_AUDIT", "GLIBC_TUNABLES"):
            trainer = (f'spec {{ name: "x" user: "u" nodes: 1 ranks_per_node: 1 output_directory: "/tmp" train_config_json: "{{}}" '
                       f'environment {{ key: "{variable}" value: "v" }} }}')
            status, text = self.call(coordinator, "Muster/SubmitJob", encode("SubmitJobRequest", trainer), "submitter")
            self.assertEqual(status, grpc_frames.INVALID_ARGUMENT)
            self.assertIn("the loader", text)
        self.assertEqual(self.submit(coordinator, 'command: "a\\000b"')[0], grpc_frames.INVALID_ARGUMENT)
        self.assertEqual(self.submit(coordinator, 'environment { key: "A" value: "a\\000b" }')[0], grpc_frames.INVALID_ARGUMENT)
        injected = f"$(touch {self.dir}/injected); `touch {self.dir}/injected` | touch {self.dir}/injected\n&& touch {self.dir}/injected\nB=injected"
        program = "import os, sys; print(ascii(sys.argv[1:]), ascii(os.environ['A']), 'B' in os.environ)"
        folder = self.dir / "$(touch injected)"
        folder.mkdir()
        job = json.loads(self.muster("submit", "--json", "--env", f"A={injected}", "--name", "-rf", "--working-directory", folder, "--", "python3", "-c", program,
                                     injected, "--coordinator", "-x", check=0).stdout)["id"]
        wait_until(lambda: self.job(job)["state"] in ("SUCCEEDED", "FAILED"), 60, "the end")
        self.assertEqual(self.muster("logs", job, check=0).stdout, f"{ascii([injected, '--coordinator', '-x'])} {ascii(injected)} False\n")
        self.assertEqual(list(self.dir.rglob("injected")), [])

    def test_hostile_rank(self):
        coordinator = self.start_coordinator()
        worker = self.start_worker(coordinator)
        program = self.dir / "hostile.py"
        program.write_text(HOSTILE_PROGRAM)
        before = memory_of(coordinator), memory_of(worker)
        job = json.loads(self.muster("submit", "--json", "--restarts", 0, "--env", f"PYTHONPATH={SOURCE / 'progress'}", "--", "python3", program, check=0).stdout)["id"]
        wait_until(lambda: self.job(job)["state"] in ("SUCCEEDED", "FAILED"), 60, "the end")
        self.assertEqual(self.job(job)["state"], "FAILED")
        incidents = wait_until(lambda: json.loads(self.muster("incident", "list", "--json", check=0).stdout)["incidents"], 30, "the incident")
        for command in (("logs", job), ("status", job), ("list",), ("incident", "list"), ("incident", "show", incidents[0]["id"])):
            with self.subTest(command):
                _, written = self.on_terminal(BIN / "muster", *command)
                text = re.sub("\x1b\\[[0-9;]*m", "", written.decode(errors="replace").replace("\r\n", "\n"))
                self.assertNotRegex(text, CONTROLS)
                if command != ("incident", "list"):
                    self.assertIn("gnp.exe", text)
        text = self.page(coordinator, "/metrics")[1]
        self.assertNotRegex(text, CONTROLS)
        self.assertNotRegex(text, r"(?m)^(# )?forged")
        for process, old in ((coordinator, before[0]), (worker, before[1])):
            self.assertIsNone(process.poll())
            self.assertLess(memory_of(process) - old, GROWTH_BYTES_MAX)
        self.muster("submit", "--follow", "--", "true", check=0)

    # ------------------------------------------------------------------ a worker in other hands

    def test_hostile_worker(self):
        coordinator = self.start_coordinator()
        self.start_worker(coordinator)
        job = json.loads(self.muster("submit", "--json", "--env", "SECRET_OF_ALICE=x", "--", "sh", "-c", "echo true words; exec sleep 600", check=0).stdout)["id"]
        wait_until(lambda: self.muster("logs", job).stdout == "true words\n", 60, "the output")

        # It cannot take the name of a node that is connected.
        with self.connect(coordinator) as twin:
            twin.start("Fleet/Connect", TOKENS["worker"])
            twin.send_message(self.registration("node0"))
            self.assertEqual(twin.end()[0], grpc_frames.ALREADY_EXISTS)

        with self.connect(coordinator) as evil:
            evil.start("Fleet/Connect", TOKENS["worker"])
            evil.send_message(self.registration("evil"))
            registered = decode("CoordinatorMessage", evil.read_message())
            self.assertIn("registered {", registered)
            self.assertNotIn("SECRET_OF_ALICE", registered)
            rank = f"job_id: {job} attempt: 1 rank: 0"
            for message in (f'rank_exited {{ report_id: 1 {rank} exit_code: 1 detail: "forged" }}', f'log {{ {rank} offset: 0 data: "forged" }}',
                            f"heartbeat {{ ranks {{ {rank} step: 99 loss: 1 }} }}", f"stack_report {{ job_id: {job} attempt: 1 dump_id: 1 }}",
                            "symbols { dump_id: 1 }", "node_checked { check_id: 1 }"):
                evil.send_message(encode("WorkerMessage", message))
            answers = []
            while not any("report_ack {" in answer for answer in answers) or not any("log_ack {" in answer for answer in answers):
                message = evil.read_message()
                self.assertIsNotNone(message, (answers, evil.trailers))
                answers.append(decode("CoordinatorMessage", message))
            self.assertNotIn("SECRET_OF_ALICE", "".join(answers))
            record = self.job(job)
            self.assertEqual((record["state"], record["attempt"], record.get("faults", [])), ("RUNNING", 1, []))
            self.assertNotEqual(record["ranks"][0]["step"], 99)
            self.assertEqual(self.muster("logs", job, check=0).stdout, "true words\n")
            self.assertNotIn("forged", self.muster("incident", "list", "--json", check=0).stdout)
            evil.send_message(self.registration("evil"))
            self.assertEqual(evil.end()[0], grpc_frames.INVALID_ARGUMENT)
        self.muster("cancel", job, "--force", check=0)


# It writes what harms terminals and pages into its output and its last words, a line of a megabyte,
# and noise into its progress page.
HOSTILE_PROGRAM = r"""
import os, random, sys, time
import muster_progress
harm = "\x1b[2J\x1b]0;title\x07\x1b]52;c;aGFybQ==\x07\x9b31m\x00\x08\x7f\u202egnp.exe\u2066 <script>hacked()</script>\n# forged\nforged_metric 1\n"
for _ in range(50):
    sys.stdout.write(harm)
sys.stdout.buffer.write(b"\xff\xfe\xc3\x28" + b"x" * (1 << 20) + b"\n")
sys.stdout.flush()
muster_progress.begin()
path, noise = os.environ["MUSTER_PROGRESS_PAGE"], random.Random(3)
for _ in range(30):  # for more than a second, in which the worker reads it
    with open(path, "r+b") as page:
        start = noise.choice((0, 64, 512))  # 0: also where its identity is
        page.seek(start)
        page.write(noise.randbytes(os.path.getsize(path) - start))
    time.sleep(0.05)
sys.stderr.write(harm + "RuntimeError: " + harm.replace("\n", " "))
sys.stderr.flush()
time.sleep(3)  # a busy worker reads the lines later than the exit
os._exit(3)
"""


if __name__ == "__main__":
    unittest.main()
