#!/usr/bin/env python3
"""Serves the page with the objects of fleet_data.py, for tests without a fleet of this size.

Usage: tests/page/fake_coordinator.py [--port N] [--large] [--hostile] [--tokens]
"""
import argparse
import http.server
import json
import mimetypes
import pathlib
import re
import secrets
import socketserver
import sys
import threading
import time
import urllib.parse

import fleet_data

PAGE = pathlib.Path(__file__).resolve().parents[2] / "coordinator" / "page"
CSP = "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'; img-src 'self' data:"
ROLES = ["viewer", "submitter", "admin"]
EVENT_SECONDS = 1.0
RETRY_MS = 500


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def handle_error(self, request, client_address):
        """Ignores connections that the browser has closed; prints other errors."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class FakeCoordinator:
    """A coordinator in this process. `stop` and `start` are a restart: the epoch and the CSRF value
    change, and streams end."""

    def __init__(self, data, tokens=None, port=0):
        self.data = data
        self.tokens = tokens or {}  # role by token; empty: no login
        self.epoch = 1
        self.csrf = secrets.token_hex(8)
        self.posts = []  # (path, body) of accepted requests
        self.requests = 0
        self.in_flight = 0  # requests that are being answered, without streams
        self.event_seconds = EVENT_SECONDS
        self.streams = self.streams_opened = 0
        self.counting = threading.Lock()
        self.busy = {}  # answers with status 503 that are still to be given, by path
        self.paused = False  # events stand still, for pictures
        self.port = port
        self.server = None
        self.start()

    def start(self):
        self.stopping = threading.Event()
        handler = type("Handler", (Handler,), {"coordinator": self})
        self.server = Server(("127.0.0.1", self.port), handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def stop(self):
        self.stopping.set()
        self.server.shutdown()
        self.server.server_close()
        self.epoch += 1
        self.csrf = secrets.token_hex(8)

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}/"


class Refused(Exception):
    def __init__(self, status, code, message):
        super().__init__(message)
        self.status, self.code = status, code


class Handler(http.server.BaseHTTPRequestHandler):
    coordinator = None
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def end_headers(self):
        for name, value in (("Content-Security-Policy", CSP), ("X-Content-Type-Options", "nosniff"), ("Referrer-Policy", "no-referrer")):
            self.send_header(name, value)
        super().end_headers()

    def answer(self, status, body, kind="application/json", headers=()):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def answer_json(self, value, status=200, headers=()):
        self.answer(status, json.dumps(value).encode(), headers=headers)

    def role(self):
        if not self.coordinator.tokens:
            return "admin"
        found = re.search(r"muster=(\w+)", self.headers.get("Cookie", ""))
        return self.coordinator.tokens.get(found[1]) if found else None

    def session(self, role):
        return {"login_required": bool(self.coordinator.tokens), "role": role, "user": "", "teams": [], "csrf": self.coordinator.csrf, "version": "0.9.0", "epoch": self.coordinator.epoch, "unix_ns": self.coordinator.data.now_ns}

    def require(self, role):
        own = self.role()
        if own is None:
            raise Refused(401, "UNAUTHENTICATED", "no login: send a token")
        if ROLES.index(own) < ROLES.index(role):
            raise Refused(403, "PERMISSION_DENIED", f"the role {own} does not permit this: it needs the role {role}")

    def handle_safely(self, act):
        self.is_counted, self.is_stream = True, False
        self.count(1, 1)
        try:
            act()
        except Refused as refused:
            headers = [("Retry-After", "2")] if refused.status == 503 else []
            self.answer_json({"error": {"code": refused.code, "message": str(refused)}}, refused.status, headers)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True
        finally:
            self.end_count()
            if self.is_stream:
                self.count(0, 0, -1)

    def count(self, requests, in_flight, streams=0):
        with self.coordinator.counting:
            self.coordinator.requests += requests
            self.coordinator.in_flight += in_flight
            self.coordinator.streams += streams
            self.coordinator.streams_opened += max(streams, 0)

    def end_count(self):
        if self.is_counted:
            self.is_counted = False
            self.count(0, -1)

    def do_GET(self):
        parts = urllib.parse.urlsplit(self.path)
        query = {name: values[0] for name, values in urllib.parse.parse_qs(parts.query).items()}
        self.handle_safely(lambda: self.get_api(parts.path[len("/api/v1/"):], query) if parts.path.startswith("/api/v1/") else self.get_file(parts.path))

    def get_file(self, path):
        file = (PAGE / path.lstrip("/")).resolve() if path != "/" else PAGE / "index.html"
        if PAGE not in file.parents or not file.is_file():
            raise Refused(404, "NOT_FOUND", f"no such file: {path}")
        kind = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}.get(file.suffix) or mimetypes.guess_type(file.name)[0] or "text/plain"
        self.answer(200, file.read_bytes(), kind)

    def get_api(self, path, query):
        data = self.coordinator.data
        if path == "session":
            return self.answer_json(self.session(self.role()))
        self.require("viewer")
        if self.coordinator.busy.get(path, 0) > 0:
            self.coordinator.busy[path] -= 1
            raise Refused(503, "UNAVAILABLE", "the coordinator is busy")
        if path == "events":
            return self.stream_events(int(query.get("job", 0)))
        if path in ("fleet", "fleet/history"):
            return self.answer_json(data.fleet() if path == "fleet" else data.history())
        if path == "nodes":
            after, limit = query.get("after", ""), int(query.get("limit", 1000))
            later = sorted((node for node in data.nodes if node["name"] > after), key=lambda node: node["name"])
            return self.answer_json({"nodes": later[:limit], "more": len(later) > limit})
        if path.startswith("nodes/"):
            return self.answer_json(self.node(urllib.parse.unquote(path[len("nodes/"):])))
        if path == "incidents":
            job = int(query.get("job", 0))
            return self.answer_json({"incidents": [one for one in reversed(data.incidents) if job in (0, one["job"])][:int(query.get("limit", 100))]})
        if path.startswith("incidents/"):
            number = int(path.split("/")[1])
            if not any(one["id"] == number for one in data.incidents):
                raise Refused(404, "NOT_FOUND", f"no incident {number}")
            return self.answer_json(data.whole_incident(number))
        if path.startswith("jobs/"):
            return self.get_job(path.split("/"), query)
        raise Refused(404, "NOT_FOUND", f"no such path: {path}")

    def get_job(self, parts, query):
        data = self.coordinator.data
        number = self.job_number(parts[1])
        view = "/".join(parts[2:])
        if view == "":
            return self.answer_json(data.job(number))
        if view == "history":
            return self.answer_json(data.attempts(number))
        if view == "metrics":
            return self.answer_json(data.metrics(int(query.get("since_unix_ns", 0))))
        if view == "placement":
            return self.answer_json(data.placement())
        if view == "ranks":
            return self.answer(200, data.rank_columns(), "application/octet-stream")
        if view == "logs/events":
            return self.stream_logs(number, int(query.get("rank", -1)))
        raise Refused(404, "NOT_FOUND", f"no such path: {view}")

    def job_number(self, text):
        if not text.isdigit() or int(text) not in self.coordinator.data.rows:
            raise Refused(404, "NOT_FOUND", f"no job {text}")
        return int(text)

    def node(self, name):
        found = next((node for node in self.coordinator.data.nodes if node["name"] == name), None)
        if found is None:
            raise Refused(404, "NOT_FOUND", f"no worker {name}")
        return found

    # Streams -----------------------------------------------------------------------------------

    def begin_stream(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(f"retry: {RETRY_MS}\n\n".encode())
        self.close_connection = True
        self.is_stream = True
        self.end_count()
        self.count(0, 0, 1)

    def send_event(self, kind, value, number):
        self.wfile.write(f"id: {self.coordinator.epoch}-{number}\nevent: {kind}\ndata: {json.dumps(value)}\n\n".encode())
        self.wfile.flush()

    def stream_events(self, job):
        coordinator, data, stopping = self.coordinator, self.coordinator.data, self.coordinator.stopping
        self.begin_stream()
        self.send_event("snapshot", {"fleet": data.fleet(), "jobs": sorted(data.rows.values(), key=lambda row: -row["id"]), "more": False}, 0)
        if job:
            self.send_event("job", data.job(job), 1) if job in data.rows else self.send_event("gone", {"job": job}, 1)
        seen = {number: dict(row) for number, row in data.rows.items()}
        number = 1
        while not stopping.wait(coordinator.event_seconds):
            if coordinator.paused:
                continue
            number += 1
            data.advance()
            changes = []
            for id_, row in list(data.rows.items()):
                changed = {key: value for key, value in row.items() if seen.get(id_, {}).get(key) != value}
                if changed:
                    changes.append({"id": id_, **changed})
                    seen[id_] = dict(row)
            self.send_event("delta", {"fleet": {"unix_ns": data.now_ns}, "jobs": changes}, number)
            if job in data.rows:
                self.send_event("job", data.job(job), number)
                if job == 1:
                    self.send_event("point", data.add_point(), number)

    def stream_logs(self, job, rank):
        stopping = self.coordinator.stopping
        self.begin_stream()
        for number, chunk in enumerate(self.coordinator.data.log_chunks(rank)):
            self.send_event("log", chunk, number)
        if self.coordinator.data.rows[job]["finished_unix_ns"] > 0:
            return self.send_event("end", {}, 0)
        while not stopping.wait(self.coordinator.event_seconds):
            self.wfile.write(b": still here\n\n")
            self.wfile.flush()

    # Requests ----------------------------------------------------------------------------------

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.handle_safely(lambda: self.post(urllib.parse.urlsplit(self.path).path[len("/api/v1/"):], body))

    def post(self, path, raw):
        coordinator, data = self.coordinator, self.coordinator.data
        if self.headers.get("Content-Type") != "application/json":
            raise Refused(415, "INVALID_ARGUMENT", "the body is not application/json")
        if self.headers.get("X-Muster-CSRF") != coordinator.csrf:
            raise Refused(403, "PERMISSION_DENIED", "CSRF: the header X-Muster-CSRF is not that of /api/v1/session")
        body = json.loads(raw)
        if path == "login":
            role = coordinator.tokens.get(body["token"])
            if role is None:
                raise Refused(401, "UNAUTHENTICATED", "the token is not known")
            return self.answer_json(self.session(role), headers=[("Set-Cookie", f"muster={body['token']}; HttpOnly; SameSite=Strict; Path=/")])
        if path == "logout":
            return self.answer_json(self.session(None), headers=[("Set-Cookie", "muster=; Max-Age=0; Path=/")])
        self.require("admin" if path.startswith("nodes/") else "submitter")
        if path == "jobs/check":
            return self.check(body["spec"])
        coordinator.posts.append((path, body))
        parts = path.split("/")
        if path == "jobs":
            number = max(data.rows) + 1
            data.rows[number] = {**data.row(4), "id": number, "name": body["spec"]["name"], "state": "QUEUED", "reason": "waits for placement"}
            return self.answer_json(data.job(number))
        if parts[0] == "jobs" and parts[2] == "cancel":
            data.rows[self.job_number(parts[1])]["state"] = "CANCELLED"
            return self.answer_json(data.job(int(parts[1])))
        if parts[0] == "jobs" and parts[2] == "checkpoint":
            return self.answer_json({"job": data.job(self.job_number(parts[1])), "after_step": data.step})
        if parts[0] == "jobs" and parts[2] == "stacks":
            return self.answer_json({"job": self.job_number(parts[1]), "attempt": 2, **data.stacks(), "ranks": [data.evidence(0)], "silent_workers": []})
        name = urllib.parse.unquote(parts[1])
        node = self.node(name)
        if parts[2] == "exclude":
            node["exclusion"] = {"cause": "user", "reason": body["reason"], "since_unix_ns": data.now_ns, "until_unix_ns": 0, "times": 1}
        else:
            node.pop("exclusion", None)
        return self.answer_json(node)

    def check(self, spec):
        if not re.fullmatch(r"[A-Za-z0-9._-]{1,128}", spec.get("name", "")):
            raise Refused(400, "INVALID_ARGUMENT", f"spec.name is \"{spec.get('name', '')}\": 1 to 128 letters, digits, \".\", \"_\" or \"-\"")
        for field in ("working_directory", "output_directory") if spec.get("command") else ("output_directory",):
            if not str(spec.get(field, "")).startswith("/"):
                raise Refused(400, "INVALID_ARGUMENT", f"spec.{field} is \"{spec.get(field, '')}\": it must be an absolute path")
        self.answer_json({"ok": True})


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--port", type=int, default=7171)
    parser.add_argument("--large", action="store_true", help="1,000 jobs, 12,500 nodes, 100,000 ranks")
    parser.add_argument("--hostile", action="store_true", help="texts that try to do harm")
    parser.add_argument("--tokens", action="store_true", help="require a login: the tokens are the names of the roles")
    options = parser.parse_args()
    size = {"jobs": 1000, "nodes": 12_500, "mesh": (("data", 1250), ("pipeline", 10), ("tensor", 8))} if options.large else {}
    data = fleet_data.FleetData(hostile=options.hostile, **size)
    coordinator = FakeCoordinator(data, {role: role for role in ROLES} if options.tokens else None, options.port)
    print(f"the page is at {coordinator.url}; end with Ctrl-C", flush=True)
    try:
        while True:
            time.sleep(3600)
    except KeyboardInterrupt:
        coordinator.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
