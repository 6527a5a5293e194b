#!/usr/bin/env python3
"""Object stores for tests, in front of a folder and built from their Go modules: Versity's gateway
for s3://, and fake-gcs-server for gs://.

`python3 tests/e2e/store_tools.py` builds what is missing; its exit status is 1 if something cannot
be built.
"""
import base64
import http.server
import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request

import kube_tools

VERSION = "v1.8.0"
MODULE = f"github.com/versity/versitygw/cmd/versitygw@{VERSION}"
USER, PASSWORD = "muster-test", "only-for-tests"
GCS_VERSION = "v1.54.0"
GCS_MODULE = f"github.com/fsouza/fake-gcs-server@{GCS_VERSION}"


def gateway():
    """Returns the program's path. Building it takes 2 to 4 minutes on two cores."""
    target = kube_tools.CACHE / f"bin-versitygw-{VERSION}" / "versitygw"
    return kube_tools.once("versitygw", target, lambda: kube_tools.go("install", "-ldflags=-s -w", MODULE, GOBIN=str(target.parent)))


def gcs_server():
    """Returns the program's path. Building it takes 1 to 2 minutes on two cores."""
    target = kube_tools.CACHE / f"bin-fake-gcs-server-{GCS_VERSION}" / "fake-gcs-server"
    return kube_tools.once("fake-gcs-server", target, lambda: kube_tools.go("install", "-ldflags=-s -w", GCS_MODULE, GOBIN=str(target.parent)))


class Server:
    """A server on loopback. Its buckets are the folders of `folder`."""

    def __init__(self, folder):
        self.folder = folder
        self.process = None
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]

    def start(self):
        self.process = subprocess.Popen(self.command(), env={"PATH": os.environ["PATH"], **self.own_environment()},
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 20
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                if time.monotonic() > deadline or self.process.poll() is not None:
                    raise
                time.sleep(0.05)

    def kill(self):
        self.process.kill()
        self.process.wait()


class S3Server(Server):
    def command(self):
        return [gateway(), "--port", f"127.0.0.1:{self.port}", "posix", self.folder]

    def put(self, name, data, bucket="bucket"):
        """Stores an object."""
        path = self.folder / bucket / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    def own_environment(self):
        return {"ROOT_ACCESS_KEY": USER, "ROOT_SECRET_KEY": PASSWORD}

    def environment(self):
        """Returns the variables with which Amazon's clients find the server."""
        return {"AWS_ACCESS_KEY_ID": USER, "AWS_SECRET_ACCESS_KEY": PASSWORD, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}"}


class GcsServer(Server):
    """An emulator of Google Cloud Storage. It accepts requests with and without a token."""

    def command(self):
        url = f"http://127.0.0.1:{self.port}"
        return [gcs_server(), "-scheme", "http", "-host", "127.0.0.1", "-port", str(self.port), "-external-url", url,
                "-public-host", f"127.0.0.1:{self.port}", "-filesystem-root", self.folder, "-log-level", "error"]

    def put(self, name, data, bucket="bucket"):
        """Stores an object. A file in the folder is none: it has no metadata."""
        query = urllib.parse.urlencode({"uploadType": "media", "name": name})
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/upload/storage/v1/b/{bucket}/o?{query}", data, method="POST")
        with urllib.request.urlopen(request, timeout=20):
            pass

    def own_environment(self):
        return {}

    def environment(self):
        """Returns the variable with which Google's clients find an emulator."""
        return {"STORAGE_EMULATOR_HOST": f"127.0.0.1:{self.port}"}

    def environment_with_tokens(self, credentials):
        """Returns variables with which the server is used as Google's: with a token for the service
        account in the file `credentials`.
        """
        return {"RCLONE_GCS_ENDPOINT": f"http://127.0.0.1:{self.port}/storage/v1/", "GOOGLE_APPLICATION_CREDENTIALS": str(credentials)}


class TokenServer:
    """Google's token endpoint on loopback: it gives tokens to the service account `ACCOUNT` only,
    and counts them in `tokens`. Signatures are not verified.
    """
    ACCOUNT = "muster-test@project.iam.gserviceaccount.com"

    def __init__(self):
        self.tokens = 0
        owner = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):  # noqa: N802 (the name is http.server's)
                form = urllib.parse.parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                known = owner.issuer(form["assertion"][0]) == owner.ACCOUNT
                owner.tokens += known
                body = json.dumps({"access_token": "token", "token_type": "Bearer", "expires_in": 3600} if known else
                                  {"error": "invalid_grant", "error_description": "Invalid grant: account not found"}).encode()
                self.send_response(200 if known else 400)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @staticmethod
    def issuer(assertion):
        """Returns the account that a signed JSON web token names."""
        part = assertion.split(".")[1]
        return json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))["iss"]

    def write_key(self, path, account):
        """Writes a service account's key file, whose tokens this server gives."""
        key = subprocess.run(["openssl", "genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"], check=True,
                             capture_output=True, text=True).stdout
        path.write_text(json.dumps({"type": "service_account", "project_id": "project", "private_key_id": "1", "private_key": key,
                                    "client_email": account, "client_id": "1",
                                    "token_uri": f"http://127.0.0.1:{self.server.server_port}/token"}))

    def close(self):
        self.server.shutdown()
        self.server.server_close()


def main():
    return kube_tools.report((("versitygw", gateway), ("fake-gcs-server", gcs_server)))


if __name__ == "__main__":
    sys.exit(main())
