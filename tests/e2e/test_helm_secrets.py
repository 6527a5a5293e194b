"""The certificate and the tokens that a release creates: created once, kept by upgrades, and never
created without access to the cluster.

Here a stand-in for Kubernetes' API answers helm; test_kubernetes.py uses a real API.
"""
import base64
import contextlib
import http.server
import json
import subprocess
import threading
import unittest

import kube_tools
from helm_case import CHART, HelmCase, merged, yaml

ROLES = ("worker", "viewer", "submitter", "admin")
NAMES = ["demo-muster-coordinator", "demo-muster-coordinator.training", "demo-muster-coordinator.training.svc",
         "demo-muster-coordinator.training.svc.cluster.local", "localhost"]


@contextlib.contextmanager
def api(objects):
    """Yields the address of an API that has only these objects: {(kind's plural, namespace or "",
    name): object}.
    """
    kinds = [{"name": "secrets", "kind": "Secret", "namespaced": True}, {"name": "serviceaccounts", "kind": "ServiceAccount", "namespaced": True},
             {"name": "namespaces", "kind": "Namespace", "namespaced": False}]

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            parts = self.path.split("?")[0].removeprefix("/api/v1").strip("/").split("/")
            if parts == [""]:
                found = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "v1", "resources": [{**kind, "verbs": ["get"]} for kind in kinds]}
            elif len(parts) == 4:
                found = objects.get((parts[2], parts[1], parts[3]))
            else:
                found = objects.get((parts[0], "", parts[-1]))
            body = json.dumps(found or {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}).encode()
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


CLUSTER_OBJECTS = {("serviceaccounts", "training", "default"): {"kind": "ServiceAccount", "apiVersion": "v1", "metadata": {"name": "default"}}}


class Secrets(HelmCase):
    def setUp(self):
        super().setUp()
        self.values = {"tls": {"mode": "chart", "secretName": ""}, "tokens": {"secretName": ""}}

    def render_with_lookup(self, objects, values=None, *more):
        """Returns helm's output when it can read `objects`."""
        with api(objects) as address:
            config = self.dir / "api"
            config.write_text(json.dumps({
                "apiVersion": "v1", "kind": "Config", "current-context": "t", "users": [], "clusters": [{"name": "t", "cluster": {"server": address}}],
                "contexts": [{"name": "t", "context": {"cluster": "t", "user": ""}}]}))
            config.chmod(0o600)
            return self.run_helm("template", "demo", CHART, "--namespace", "training", "--kube-version", kube_tools.KUBERNETES_VERSION,
                                 "--dry-run=server", "--kubeconfig", config, *more, values=merged(self.values, values or {}))

    def release_secrets(self, objects, values=None):
        """Returns the release's Secrets by name."""
        result = self.render_with_lookup(objects, values)
        self.assertEqual(result.returncode, 0, result.stderr)
        return {document["metadata"]["name"]: document for document in yaml.safe_load_all(result.stdout) if document and document["kind"] == "Secret"}

    def with_these(self, secrets):
        return {**CLUSTER_OBJECTS, **{("secrets", "training", name): secret for name, secret in secrets.items()}}

    def openssl(self, *arguments, text):
        return subprocess.run(["openssl", *map(str, arguments)], input=text, capture_output=True, text=True, timeout=20, check=True).stdout

    def value(self, secret, key):
        return base64.b64decode(secret["data"][key]).decode()

    def names_of(self, secret):
        shown = self.openssl("x509", "-noout", "-ext", "subjectAltName", text=self.value(secret, "tls.crt"))
        return [name.strip().split(":", 1)[1] for name in shown.splitlines()[1].split(",")]

    def verify(self, secret, authorities):
        (self.dir / "authorities").write_text(authorities)
        (self.dir / "certificate").write_text(self.value(secret, "tls.crt"))
        self.assertIn("OK", self.openssl("verify", "-purpose", "sslserver", "-x509_strict", "-CAfile", self.dir / "authorities",
                                         self.dir / "certificate", text=""))

    def test_release_creates_a_certificate_and_a_token_for_each_role(self):
        secrets = self.release_secrets(CLUSTER_OBJECTS)
        self.assertEqual(sorted(secrets), ["demo-muster-tls", "demo-muster-tokens"])
        schemas = self.schemas()
        self.assertEqual([schemas.errors(secret) for secret in secrets.values()], [[], []])
        tls, tokens = secrets["demo-muster-tls"], secrets["demo-muster-tokens"]
        self.assertEqual((tls["type"], sorted(tls["data"])), ("kubernetes.io/tls", ["ca.crt", "tls.crt", "tls.key"]))
        self.assertEqual(self.names_of(tls), [*NAMES, "127.0.0.1"])
        self.verify(tls, self.value(tls, "ca.crt"))
        self.openssl("x509", "-noout", "-checkend", 9 * 365 * 86400, text=self.value(tls, "tls.crt"))
        public = self.openssl("x509", "-noout", "-pubkey", text=self.value(tls, "tls.crt"))
        self.assertEqual(self.openssl("pkey", "-pubout", text=self.value(tls, "tls.key")), public)
        given = {role: self.value(tokens, role) for role in ROLES}
        self.assertEqual(sorted(tokens["data"]), sorted(ROLES))
        self.assertEqual(len(set(given.values())), len(ROLES))
        for token in given.values():
            self.assertRegex(token, r"^[A-Za-z0-9]{48}$")
        self.assertNotEqual(self.release_secrets(CLUSTER_OBJECTS), secrets, "two clusters with one key")

    def test_upgrade_keeps_existing_and_creates_missing_secrets(self):
        before = self.release_secrets(CLUSTER_OBJECTS)
        self.assertEqual(self.release_secrets(self.with_these(before)), before)
        # A renewed token has two lines, and a deleted role is created again.
        renewed = json.loads(json.dumps(before))
        tokens = renewed["demo-muster-tokens"]["data"]
        tokens["submitter"] = base64.b64encode(b"new-one-0123456789\nold-one-0123456789\n").decode()
        del tokens["viewer"]
        after = self.release_secrets(self.with_these(renewed))["demo-muster-tokens"]["data"]
        self.assertEqual({role: after[role] for role in ROLES if role != "viewer"}, tokens)
        self.assertNotIn(after["viewer"], before["demo-muster-tokens"]["data"].values())

    def test_changed_names_create_a_certificate_that_both_authorities_verify(self):
        first = self.release_secrets(CLUSTER_OBJECTS)["demo-muster-tls"]
        values = {"tls": {"extraNames": ["muster.example.com", "10.1.2.3"]}}
        second = self.release_secrets(self.with_these({"demo-muster-tls": first}), values)["demo-muster-tls"]
        self.assertEqual(self.names_of(second), [*NAMES, "muster.example.com", "127.0.0.1", "10.1.2.3"])
        both = self.value(second, "ca.crt")
        self.assertEqual(both.count("BEGIN CERTIFICATE"), 2)
        self.verify(first, both)
        self.verify(second, both)
        self.assertEqual(self.release_secrets(self.with_these({"demo-muster-tls": second}), values)["demo-muster-tls"], second)
        third = self.release_secrets(self.with_these({"demo-muster-tls": second}))["demo-muster-tls"]
        self.assertEqual(self.value(third, "ca.crt").count("BEGIN CERTIFICATE"), 2, "the newest two")

    def test_namespace_may_be_created_by_the_same_install(self):
        other = {("namespaces", "", "default"): {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "default"}}}
        self.assertEqual(len(self.release_secrets(other)), 2)

    def test_nothing_is_created_without_access_to_a_cluster(self):
        # Each sync of Argo CD renders like this, with the cluster's kinds in --api-versions.
        for values, more in (({}, ()), ({}, ("--api-versions", "v1/Secret")), ({"tls": {"mode": "certManager"}}, ()),
                             ({"tls": {"mode": "chart"}, "tokens": {"secretName": "mine"}}, ()),
                             ({"tls": {"mode": "secret", "secretName": "mine"}}, ())):
            with self.subTest(values):
                result = self.run_helm("template", "demo", CHART, "--kube-version", kube_tools.KUBERNETES_VERSION, *more, values=merged(self.values, values))
                self.assertNotEqual(result.returncode, 0)
                self.assertIn("set tls.mode to secret or certManager and name tokens.secretName, or query the cluster with --dry-run=server", result.stderr)
        self.assertIn("no cluster can be queried", self.render_with_lookup({}).stderr)

    def test_named_secrets_are_used_unchanged(self):
        values = {"tls": {"mode": "secret", "secretName": "mine"}, "tokens": {"secretName": "theirs"}}
        self.assertEqual(self.release_secrets({}, values), {})
        self.assertEqual(list(self.release_secrets(CLUSTER_OBJECTS, {"tls": {"mode": "certManager"}})), ["demo-muster-tokens"])
        self.assertEqual(self.release_secrets({}, {"tls": {"mode": "off"}}), {})


if __name__ == "__main__":
    unittest.main()
