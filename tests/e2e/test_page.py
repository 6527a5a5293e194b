"""The coordinator's page: its API with a real job, its events across a restart, its roles, and its
description, to which schemathesis holds the answers.
"""
import array
import http.client
import json
import signal
import ssl
import struct
import subprocess
import unittest

import trust
from harness import SOURCE, MusterTest, wait_until
from python_tools import python_or_skip

PROGRAM = """import os, time
print("<script>alert(1)</script> from rank", os.environ["RANK"], flush=True)
time.sleep(120)
"""
TOKENS = {role: f"{role}-token-0123456789abcdef" for role in ("worker", "viewer", "submitter", "admin")}


def connect(port, context, seconds):
    """Returns a connection to the page's port: with HTTPS if there is a TLS context."""
    if context:
        return http.client.HTTPSConnection("localhost", port, timeout=seconds, context=context)
    return http.client.HTTPConnection("127.0.0.1", port, timeout=seconds)


class Browser:
    """Sends requests as a page's script does: with the cookie and the CSRF token of its session."""

    def __init__(self, port, context=None):
        self.port, self.context, self.cookie = port, context, ""

    def request(self, method, path, body=None, headers=None):
        """Returns (status, headers, bytes)."""
        connection = connect(self.port, self.context, 30)
        try:
            sent = {"Cookie": self.cookie} if self.cookie else {}
            connection.request(method, path, None if body is None else json.dumps(body), {**sent, **(headers or {})})
            response = connection.getresponse()
            return response.status, dict(response.getheaders()), response.read()
        finally:
            connection.close()

    def get(self, path):
        status, _, body = self.request("GET", f"/api/v1{path}")
        assert status == 200, (path, status, body)
        return json.loads(body)

    def post(self, path, body, **headers):
        """Returns (status, object)."""
        csrf = self.get("/session")["csrf"]
        status, answered, text = self.request("POST", f"/api/v1{path}", body, {"Content-Type": "application/json", "X-Muster-CSRF": csrf, **headers})
        if "Set-Cookie" in answered:
            self.cookie = answered["Set-Cookie"].split(";")[0]
        return status, json.loads(text)


class Events:
    """A stream of server-sent events."""

    def __init__(self, port, path, last_id=None, context=None, cookie=None):
        self.connection = connect(port, context, 20)
        headers = {"Last-Event-ID": last_id, "Cookie": cookie}
        self.connection.request("GET", f"/api/v1{path}", headers={name: value for name, value in headers.items() if value})
        self.response = self.connection.getresponse()
        assert self.response.status == 200, self.response.read()
        self.last_id = last_id

    def next(self):
        """Returns the next (event, data)."""
        event, data = None, None
        for line in self.response:
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if name == "id":
                self.last_id = value
            elif name == "event":
                event = value
            elif name == "data":
                data = json.loads(value)
            elif not name and event:
                return event, data
        raise AssertionError("the stream has ended")

    def until(self, event, condition=lambda data: True):
        """Returns the data of the next such event, of the next 200."""
        for _ in range(200):
            name, data = self.next()
            if name == event and condition(data):
                return data
        raise AssertionError(f"no {event}")

    def close(self):
        self.connection.close()


class Page(MusterTest):
    def start_program(self, ranks=2):
        """Starts a job of a program that only waits. Returns its number."""
        (self.dir / "wait.py").write_text(PROGRAM)
        submitted = self.muster("submit", "--ranks", ranks, "--name", "waits", "--json", "--", "python3", self.dir / "wait.py", check=0)
        return json.loads(submitted.stdout)["id"]

    def test_a_job_is_shown_and_acted_on(self):
        coordinator = self.start_coordinator()
        self.start_worker(coordinator, slots=2)
        browser = Browser(coordinator.ports["http_port"])
        job = self.start_program()
        wait_until(lambda: browser.get(f"/jobs/{job}")["state"] == "RUNNING", 30, "the job runs")
        # The objects are those of --json. Ages differ between two requests.
        shown, printed = browser.get(f"/jobs/{job}?ranks=2"), self.job(job)
        for timed in ("goodput", "ranks"):
            self.assertEqual(type(shown.pop(timed)), type(printed.pop(timed)))
        self.assertEqual(shown, printed)
        nodes = json.loads(self.muster("node", "list", "--json", check=0).stdout)["nodes"]
        self.assertEqual(browser.get("/nodes")["nodes"][0].keys(), nodes[0].keys())
        wait_until(lambda: browser.get("/fleet")["slots"]["used"] == 2, 10, "used slots")
        events = Events(coordinator.ports["http_port"], f"/jobs/{job}/logs/events")
        self.addCleanup(events.close)
        text = "".join(events.until("log")["text"] for _ in range(2))
        self.assertIn("<script>alert(1)</script>", text)
        status, dump = browser.post(f"/jobs/{job}/stacks", {})
        self.assertEqual((status, [rank["rank"] for rank in dump["ranks"]]), (200, [0, 1]))
        status, answer = browser.post(f"/jobs/{job}/checkpoint", {})
        self.assertEqual((status, answer["error"]["code"]), (409, "FAILED_PRECONDITION"))
        self.assertEqual(self.muster("open", job, "--print", "--http", "127.0.0.1:1234", check=0).stdout, f"http://127.0.0.1:1234/#/jobs/{job}\n")
        self.assertEqual(browser.post(f"/jobs/{job}/cancel", {"force": True})[0], 200)
        wait_until(lambda: browser.get(f"/jobs/{job}")["state"] == "CANCELLED", 30, "the end of the job")
        self.assertEqual(events.until("end"), {})

    def test_ranks_are_columns(self):
        coordinator = self.start_coordinator()
        self.start_worker(coordinator, slots=2)
        browser = Browser(coordinator.ports["http_port"])
        job = self.start_program()
        wait_until(lambda: browser.get(f"/jobs/{job}")["state"] == "RUNNING", 30, "the job runs")
        _, headers, body = browser.request("GET", f"/api/v1/jobs/{job}/ranks")
        (length,) = struct.unpack_from("<I", body)
        header = json.loads(body[4:4 + length])
        columns = {column["name"]: column for column in header["columns"]}
        life = array.array("B", body[columns["life"]["offset"]:][:2])
        self.assertEqual((list(life), header["ranks"]), ([1, 1], 2))
        self.assertEqual(browser.request("GET", f"/api/v1/jobs/{job}/ranks", headers={"If-None-Match": headers["ETag"]})[0], 304)

    def test_viewers_survive_a_restart(self):
        coordinator = self.start_coordinator(listen="127.0.0.1:0")
        port = coordinator.ports["http_port"]
        self.start_worker(coordinator, slots=2)
        events = Events(port, "/events")
        self.assertEqual(events.until("snapshot")["jobs"], [])
        job = self.start_program()
        row = events.until("delta", lambda data: data.get("jobs"))["jobs"][0]
        self.assertEqual((row["id"], row["name"]), (job, "waits"))
        last_id = events.last_id
        events.close()
        again = Events(port, "/events", last_id)
        self.addCleanup(again.close)
        self.assertEqual(self.muster("cancel", job, "--force").returncode, 0)
        again.until("delta", lambda data: any(one.get("state") == "CANCELLED" for one in data.get("jobs", [])))
        last_id = again.last_id
        coordinator.send_signal(signal.SIGKILL)
        coordinator.wait(timeout=30)
        self.start_coordinator(listen=coordinator.address, http=f"127.0.0.1:{port}")
        restarted = Events(port, "/events", last_id)
        self.addCleanup(restarted.close)
        event, data = restarted.next()
        self.assertEqual((event, [one["id"] for one in data["jobs"]]), ("snapshot", [job]))

    def test_many_viewers_do_not_keep_others_out(self):
        coordinator = self.start_coordinator()
        port = coordinator.ports["http_port"]
        viewers = [Events(port, "/events") for _ in range(128)]
        for viewer in viewers:
            self.addCleanup(viewer.close)
        status, headers, body = Browser(port).request("GET", "/api/v1/events")
        self.assertEqual((status, json.loads(body)["error"]["code"]), (429, "RESOURCE_EXHAUSTED"))
        self.assertIn("Retry-After", headers)
        self.assertEqual(self.page(coordinator, "/readyz")[0], 200)
        viewers[0].until("snapshot")
        viewers[0].response.close()
        viewers[0].close()

        def has_room():
            status, _, _ = Browser(port).request("HEAD", "/api/v1/events")
            return status == 200
        wait_until(has_room, 30, "room for another viewer")

    def test_the_description_holds(self):
        """Sends generated requests, valid ones and others, and compares the answers with the
        description.
        """
        python = python_or_skip("schemathesis")
        coordinator = self.start_coordinator()
        self.start_worker(coordinator, slots=2)
        self.start_program()
        port = coordinator.ports["http_port"]
        csrf = Browser(port).get("/session")["csrf"]
        # Streams have no end, so a test of their answers is above.
        command = [python, "-m", "schemathesis.cli", "run", SOURCE / "proto/openapi.json", "--url", f"http://127.0.0.1:{port}", "--header", f"X-Muster-CSRF: {csrf}",
                   "--checks", "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,negative_data_rejection",
                   "--phases", "examples,coverage,fuzzing", "--exclude-path-regex", "/(events|stacks)$", "--max-examples", "20", "--generation-deterministic",
                   "--request-timeout", "30", "--generation-with-security-parameters", "false", "--no-color"]
        result = subprocess.run(list(map(str, command)), cwd=self.dir, env=self.env, capture_output=True, text=True, timeout=500)
        self.assertEqual(result.returncode, 0, result.stdout[-8000:] + result.stderr[-2000:])
        self.assertIsNone(coordinator.poll())


@unittest.skipIf(trust.why_not(), trust.why_not())
class PageRoles(MusterTest):
    def setUp(self):
        super().setUp()
        self.authority = trust.Authority(self.dir, "authority")
        certificate, key = self.authority.sign("coordinator")
        (self.dir / "tokens").mkdir()
        for role, token in TOKENS.items():
            (self.dir / "tokens" / role).write_text(token + "\n")
        self.coordinator = self.start_coordinator(extra=("--tls-cert", certificate, "--tls-key", key, "--token-dir", self.dir / "tokens"))
        self.context = ssl.create_default_context(cafile=str(self.authority.certificate))

    def browser(self, role=None):
        browser = Browser(self.coordinator.ports["http_port"], self.context)
        if role:
            status, session = browser.post("/login", {"token": TOKENS[role]})
            self.assertEqual((status, session["role"]), (200, role))
        return browser

    def test_each_role_may_do_what_it_may_by_grpc(self):
        allowed = {"viewer": [], "submitter": ["/jobs/9/cancel"], "admin": ["/jobs/9/cancel", "/nodes/n/admit"]}
        for role, paths in allowed.items():
            browser = self.browser(role)
            self.assertEqual(browser.get("/jobs")["jobs"], [])
            for path in ("/jobs/9/cancel", "/nodes/n/admit"):
                status, answer = browser.post(path, {})
                self.assertEqual(status == 403, path not in paths, (role, path, answer))
            self.assertEqual(browser.post("/logout", {})[1]["role"], None)
            self.assertEqual(browser.request("GET", "/api/v1/jobs")[0], 401)

    def test_strangers_get_nothing(self):
        browser = self.browser()
        self.assertEqual(browser.get("/session")["role"], None)
        for path in ("/fleet", "/jobs", "/jobs/1", "/jobs/1/logs", "/events", "/nodes", "/incidents", "/jobs/1/ranks"):
            status, _, body = browser.request("GET", f"/api/v1{path}")
            self.assertEqual((status, json.loads(body)["error"]["code"]), (401, "UNAUTHENTICATED"), path)
        for token in ("wrong-0123456789abcdef", TOKENS["worker"]):
            self.assertEqual(browser.post("/login", {"token": token})[0], 401)
        self.assertEqual(browser.cookie, "")
        status, headers, _ = browser.request("GET", "/api/v1/session")
        self.assertEqual((status, headers["X-Content-Type-Options"]), (200, "nosniff"))

    def test_a_program_uses_a_bearer_token(self):
        browser = self.browser()
        headers = {"Authorization": f"Bearer {TOKENS['submitter']}", "Content-Type": "application/json"}
        self.assertEqual(browser.request("POST", "/api/v1/jobs/9/cancel", {}, headers)[0], 404)
        self.assertEqual(browser.request("POST", "/api/v1/nodes/n/admit", {}, headers)[0], 403)

    def test_a_stream_ends_after_its_token_is_removed(self):
        connection = http.client.HTTPSConnection("localhost", self.coordinator.ports["http_port"], timeout=30, context=self.context)
        self.addCleanup(connection.close)
        connection.request("GET", "/api/v1/events", headers={"Authorization": f"Bearer {TOKENS['viewer']}"})
        response = connection.getresponse()
        self.assertEqual(response.status, 200)
        (self.dir / "tokens" / "viewer").unlink()
        # The next ping finds it; the stream then ends.
        text = response.read().decode()
        self.assertIn("the coordinator has no such token", text.split("event: end\n")[1])

    def test_another_site_cannot_post(self):
        browser = self.browser("admin")
        self.assertEqual(browser.post("/jobs/9/cancel", {}, Origin="https://evil.example")[0], 403)
        self.assertEqual(browser.post("/jobs/9/cancel", {}, **{"Sec-Fetch-Site": "cross-site"})[0], 403)
        status, _, body = browser.request("POST", "/api/v1/jobs/9/cancel", {}, {"Content-Type": "application/json"})
        self.assertEqual(status, 403, body)

    def test_plain_requests_are_sent_to_https_and_probes_are_answered(self):
        plain = Browser(self.coordinator.ports["http_port"])
        status, headers, _ = plain.request("GET", "/api/v1/jobs?limit=1")
        self.assertEqual((status, headers["Location"]), (307, f"https://127.0.0.1:{plain.port}/api/v1/jobs?limit=1"))
        self.assertEqual(self.page(self.coordinator, "/readyz")[0], 200)
        self.assertEqual(self.browser().request("GET", "/healthz")[0], 200)
        cookie = self.browser("viewer").cookie
        self.assertTrue(cookie.startswith(f"__Host-muster-{plain.port}="), cookie)
        self.assertNotIn(TOKENS["viewer"], cookie)


if __name__ == "__main__":
    unittest.main()
