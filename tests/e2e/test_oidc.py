"""A coordinator that accepts the tokens of an OpenID Connect issuer, which PyJWT signs."""
import base64
import hashlib
import hmac
import json
import pathlib
import ssl
import time
import unittest
import urllib.error
import urllib.request

import trust
from harness import BIN, MusterTest, wait_until
from python_tools import python_or_skip

CLOCK_SKEW = 30


def encoded(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


@unittest.skipIf(trust.why_not(), trust.why_not())
class Oidc(MusterTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.python = python_or_skip("jwt")

    def setUp(self):
        super().setUp()
        self.authority = trust.Authority(self.dir, "authority")
        self.certificate, self.key = self.authority.sign("coordinator")
        program = self.start(self.python, pathlib.Path(__file__).with_name("oidc_issuer.py"), *self.authority.sign("issuer"), self.dir / "issuer.json")
        self.issuer = json.loads(self.wait_for_file(program, self.dir / "issuer.json"))["address"]
        self.request_of_issuer("add-key", key="first", algorithm="RS256")
        self.settings = {"issuer": self.issuer, "audience": "muster", "ca_file": str(self.authority.certificate),
                         "user_claim": "email", "user_domain": "example.com",
                         "roles": {"users": "submitter", "admins": "admin", "*": "viewer", "machines": "worker"},
                         "teams": {"grp-vision": "vision"}, "nodes": {"machines": ["gpu-*"]}}
        self.env.update(MUSTER_TLS_CA=str(self.authority.certificate), MUSTER_TOKEN_FILE=str(self.dir / "mine"))

    def request_of_issuer(self, path, **body):
        """Returns the answer of the issuer's program to a request of the test."""
        return self.request(f"{self.issuer}/{path}", body=body)[1]

    def sign(self, user, *groups, key="first", algorithm="RS256", **claims):
        now = int(time.time())
        return self.request_of_issuer("sign", key=key, algorithm=algorithm, claims={
            "iss": self.issuer, "aud": "muster", "sub": f"id-of-{user}", "email": f"{user}@example.com", "groups": groups,
            "iat": now, "exp": now + 3600, **claims})

    def start_coordinator(self, **kwargs):
        (self.dir / "oidc.json").write_text(json.dumps(self.settings))
        return super().start_coordinator(extra=("--tls-cert", self.certificate, "--tls-key", self.key, "--oidc", self.dir / "oidc.json"), **kwargs)

    def start_worker(self, coordinator, name):
        trust.replace(self.dir / f"{name}.token", self.sign(name, "machines"))
        return super().start_worker(coordinator, name, 1, ("--tls-ca", self.authority.certificate, "--token-file", self.dir / f"{name}.token"))

    def act_as(self, token):
        trust.replace(self.dir / "mine", token + "\n")

    def submit(self, check=0):
        return self.muster("submit", "--ranks", 1, "--json", "--", "sleep", "1000", check=check)

    def request(self, url, token=None, body=None, headers=None):
        """Returns (code, body, headers)."""
        headers = {"Content-Type": "application/json", **(headers or {}), **({"Authorization": f"Bearer {token}"} if token else {})}
        request = urllib.request.Request(url, json.dumps(body).encode() if body else None, headers)
        try:
            answer = urllib.request.urlopen(request, timeout=30, context=ssl.create_default_context(cafile=self.authority.certificate))
        except urllib.error.HTTPError as error:
            answer = error
        with answer:
            return answer.status, answer.read().decode(), answer.headers

    def page_api(self, coordinator, path, **kwargs):
        return self.request(f"https://127.0.0.1:{coordinator.ports['http_port']}/api/v1/{path}", **kwargs)

    def test_claims_are_people_roles_and_teams(self):
        del self.settings["roles"]["*"]
        coordinator = self.start_coordinator()
        self.start_worker(coordinator, "gpu-1")
        self.act_as(self.sign("ann", "users", "grp-vision"))
        job = json.loads(self.submit().stdout)["id"]
        wait_until(lambda: self.job(job)["state"] == "RUNNING", 60, "it runs")
        shown = self.job(job)
        self.assertEqual((shown["spec"]["owner"], shown["spec"]["team"]), ("ann", "vision"))
        self.act_as(self.sign("bob", "users"))
        self.assertIn("job 1 belongs to ann: only ann, members of vision and admins", self.muster("cancel", job, check=2).stderr)
        self.act_as(self.sign("carl", "others"))
        self.assertIn("carl is in no group that has a role here", self.muster("list", check=1).stderr)
        # The page takes the same tokens.
        ann = self.sign("ann", "users", "grp-vision")
        csrf = json.loads(self.page_api(coordinator, "session")[1])["csrf"]
        code, body, headers = self.page_api(coordinator, "login", body={"token": ann}, headers={"X-Muster-CSRF": csrf})
        self.assertEqual(code, 200, body)
        self.assertEqual((json.loads(body)["user"], json.loads(body)["role"]), ("ann", "submitter"))
        self.assertIn("HttpOnly", headers["Set-Cookie"])
        self.assertEqual(json.loads(self.page_api(coordinator, "session", token=ann)[1])["user"], "ann")
        code, body, _ = self.page_api(coordinator, "jobs", token=self.sign("ann", "users", exp=int(time.time()) - 60))
        self.assertEqual(code, 401)
        self.assertIn("it expired", body)
        self.act_as(ann)
        self.muster("cancel", job, check=0)
        calls = [json.loads(line) for line in (self.dir / "state/audit.jsonl").read_text().splitlines()]
        self.assertTrue(any(call["method"] == "SubmitJob" and call.get("caller") == "ann" for call in calls), calls)

    def test_forged_and_foreign_tokens_are_refused(self):
        self.start_coordinator()
        now = int(time.time())
        claims = {"iss": self.issuer, "aud": "muster", "email": "eve@example.com", "groups": ["admins"], "exp": now + 600}
        # The public key as the secret of an HMAC, and a token without a signature.
        forged = [encoded(json.dumps({"alg": algorithm, "kid": "first"}).encode()) + "." + encoded(json.dumps(claims).encode())
                  for algorithm in ("HS256", "none")]
        mac = encoded(hmac.new(self.request_of_issuer("public-key", key="first").encode(), forged[0].encode(), hashlib.sha256).digest())
        self.request_of_issuer("add-key", key="of a stranger", algorithm="RS256", published=False)
        for token, why in ((self.sign("eve", "admins", key="of a stranger"), "its signature is wrong"),
                           (f"{forged[0]}.{mac}", "its algorithm is HS256"),
                           (f"{forged[1]}.AAAA", "its algorithm is none"),
                           (self.sign("eve", "admins", aud="grafana"), "its audience is grafana, not muster"),
                           (self.sign("eve", "admins", iss="https://evil.example"), "its issuer is https://evil.example"),
                           (self.sign("eve", "admins", exp=now - CLOCK_SKEW - 1), "it expired"),
                           (self.sign("eve", "admins", nbf=now + 600), "it is not valid yet"),
                           (self.sign("eve", "admins", email="eve@example.com.evil.example"), "is not of the domain example.com")):
            self.act_as(token)
            refused = self.muster("list", check=1).stderr
            self.assertIn(why, refused)
            self.assertNotIn(token, refused)
        self.act_as(self.sign("eve", "others"))
        self.muster("list", check=0)
        self.assertIn("needs the role submitter, and this token's is viewer", self.submit(check=2).stderr)

    def test_the_issuer_changes_its_key_and_a_stream_ends_with_its_token(self):
        coordinator = self.start_coordinator()
        self.request_of_issuer("add-key", key="second", algorithm="ES256")
        self.act_as(self.sign("ann", "users", key="second", algorithm="ES256"))
        # The coordinator reads the keys again at most every 5 s.
        wait_until(lambda: self.muster("list").returncode == 0, 60, "the second key")
        job = json.loads(self.submit().stdout)["id"]
        self.act_as(self.sign("ann", "users", key="second", algorithm="ES256", exp=int(time.time()) - CLOCK_SKEW + 4))
        watch = self.start(BIN / "muster", "logs", "-f", job)
        self.assertNotEqual(watch.wait(timeout=60), 0)
        self.assertIn("the token has expired or was removed", self.output(watch))
        self.assertIsNone(coordinator.poll())

    def test_a_workers_token_is_for_its_nodes(self):
        coordinator = self.start_coordinator()
        worker = self.start_worker(coordinator, "cpu-1")
        wait_until(lambda: "it is for the nodes gpu-*" in self.output(worker), 30, "the refusal")
        self.start_worker(coordinator, "gpu-1")
        self.act_as(self.sign("root", "admins"))
        wait_until(lambda: [one["name"] for one in json.loads(self.muster("list", "--workers", "--json", check=0).stdout)["workers"]] == ["gpu-1"],
                   30, "the other worker")


if __name__ == "__main__":
    unittest.main()
