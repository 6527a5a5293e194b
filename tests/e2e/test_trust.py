"""A fleet whose coordinator requires TLS and tokens, and the rotation of both while a job runs."""
import hashlib
import json
import os
import pathlib
import re
import signal
import ssl
import stat
import unittest
import urllib.error
import urllib.request

import trust
from harness import BIN, MusterTest, wait_until

TOKENS = {role: f"{role}-token-0123456789abcdef" for role in ("worker", "viewer", "submitter", "admin")}


@unittest.skipIf(trust.why_not(), trust.why_not())
class Trust(MusterTest):
    def setUp(self):
        super().setUp()
        self.authority = trust.Authority(self.dir, "first")
        self.install(self.authority)
        for role, token in TOKENS.items():
            self.write_tokens(role, token)
        self.act_as("admin")

    def install(self, authority):
        certificate, key = authority.sign("coordinator")
        for name, source in (("tls.key", key), ("tls.crt", certificate), ("ca.crt", authority.certificate)):
            trust.replace(self.dir / "tls" / name, source.read_text())

    def write_tokens(self, role, *tokens):
        """Writes the tokens of a role for the coordinator, and the first of them for the role's
        client.
        """
        trust.replace(self.dir / "tokens" / role, "\n".join(tokens) + "\n")
        trust.replace(self.dir / "mine" / role, tokens[0] + "\n")

    def act_as(self, role):
        self.env.update(MUSTER_TLS_CA=str(self.dir / "tls/ca.crt"), MUSTER_TOKEN_FILE=str(self.dir / "mine" / role))

    def start_coordinator(self, extra=(), **kwargs):
        return super().start_coordinator(extra=("--tls-cert", self.dir / "tls/tls.crt", "--tls-key", self.dir / "tls/tls.key", "--token-dir",
                                                self.dir / "tokens", *extra), **kwargs)

    def start_worker(self, coordinator, name="node0", slots=1, extra=(), **kwargs):
        return super().start_worker(coordinator, name, slots, ("--tls-ca", self.dir / "tls/ca.crt", "--token-file",
                                                               self.dir / "mine/worker", *extra), **kwargs)

    def submit(self, name, steps):
        args = self.run_args(name, f"steps={steps}", "log_period=1", "enable_checkpointing=false", ranks=1)
        args[0] = "submit"
        return json.loads(self.muster(*args, "--json", check=0).stdout)["id"]

    def wait_for_step(self, job, step):
        wait_until(lambda: any(r["step"] >= step for r in self.job(job)["ranks"]), 60, f"step {step}")

    def connected(self):
        workers = json.loads(self.muster("list", "--workers", "--json", check=0).stdout)["workers"]
        return [worker["name"] for worker in workers if worker.get("connected")]

    def test_job_completes_for_a_role_that_may_submit(self):
        coordinator = self.start_coordinator()
        worker = self.start_worker(coordinator)
        self.act_as("submitter")
        job = self.submit("trusted", 5)
        wait_until(lambda: self.job(job)["state"] == "SUCCEEDED", 60, "the end")
        self.assertIn("completed step: 4", self.muster("logs", "-f", job, check=0).stdout)
        longer = self.submit("longer", 1_000_000)

        self.act_as("viewer")
        refused = self.muster("update", longer, "--env", "A=b")
        self.assertIn("UpdateJob needs the role submitter, and this token's is viewer", refused.stderr)
        refused = self.muster("cancel", job)
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn("needs the role submitter, and this token's is viewer", refused.stderr)
        self.act_as("submitter")
        self.muster("update", longer, "--env", "A=b", check=0)
        self.muster("cancel", longer, "--force", check=0)
        for token in TOKENS.values():
            self.assertNotIn(token, self.output(coordinator) + self.output(worker))

    def test_people_own_their_jobs_and_each_request_is_recorded(self):
        people = {name: f"{name}-token-0123456789abcdef" for name in ("alice", "bob", "carol")}
        digest = hashlib.sha256(people["bob"].encode()).hexdigest()
        trust.replace(self.dir / "tokens/submitter", f"{people['alice']} user=alice teams=vision,speech\n"
                      f"sha256:{digest} user=bob teams=speech\n{people['carol']} user=carol max_priority=0\n")
        for name, token in people.items():
            trust.replace(self.dir / "mine" / name, token + "\n")
        coordinator = self.start_coordinator()
        self.start_worker(coordinator, slots=2)
        self.act_as("alice")
        self.assertIn("team is sales: the teams of alice's token are vision, speech",
                      self.muster("submit", "--team", "sales", "--", "sleep", "600").stderr)
        job = json.loads(self.muster("submit", "--team", "speech", "--json", "--", "sh", "-c", "echo secret; exec sleep 600", check=0).stdout)["id"]
        wait_until(lambda: "secret" in self.muster("logs", job).stdout, 60, "the output")
        failed = json.loads(self.muster("submit", "--json", "--", "false", check=0).stdout)["id"]
        wait_until(lambda: self.job(failed)["state"] == "FAILED", 60, "the failure")
        self.act_as("carol")
        shown = self.muster("status", job, check=0).stdout
        self.assertIn("by alice (team speech)", shown)
        for command in (("cancel", job), ("logs", job), ("checkpoint", job), ("stacks", job)):
            refused = self.muster(*command)
            self.assertNotEqual(refused.returncode, 0)
            self.assertIn(f"job {job} belongs to alice: only alice, members of speech and admins may", refused.stderr)
            self.assertNotIn("secret", refused.stdout)
        context = ssl.create_default_context(cafile=self.dir / "tls/ca.crt")
        incident = json.loads(self.muster("incident", "list", "--json", check=0).stdout)["incidents"][0]["id"]

        def http(path, body=None):
            request = urllib.request.Request(f"https://127.0.0.1:{coordinator.ports['http_port']}/api/v1/{path}", json.dumps(body).encode() if body is not None else None,
                                             {"Authorization": f"Bearer {people['carol']}", "Content-Type": "application/json"})
            try:
                with urllib.request.urlopen(request, context=context, timeout=20) as answer:
                    return answer.status, answer.read().decode()
            except urllib.error.HTTPError as error:
                return error.code, error.read().decode()

        self.assertEqual(http(f"jobs/{job}")[0], 200)
        for path, body in ((f"jobs/{job}/cancel", {}), (f"jobs/{job}/checkpoint", {}), (f"jobs/{job}/stacks", {}), (f"jobs/{job}/logs", None),
                           (f"jobs/{job}/logs/events", None), (f"incidents/{incident}", None)):
            status, text = http(path, body)
            self.assertEqual(status, 403, f"{path}: {text}")
            self.assertIn("belongs to alice", text)
        self.assertIn("priority is 1: this token is carol's", self.muster("submit", "--priority", "1", "--", "true").stderr)
        self.act_as("bob")
        self.assertIn(f"job {job} belongs to alice: only alice and admins may update it", self.muster("update", job, "--env", "A=b").stderr)
        self.muster("cancel", job, "--force", check=0)
        wait_until(lambda: self.job(job)["state"] == "CANCELLED", 60, "the end")

        coordinator.terminate()
        coordinator.wait(timeout=20)
        path = next(self.dir.rglob("audit.jsonl"))
        self.assertEqual(path.stat().st_mode & 0o777, 0o600)
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        seen = [(line["caller"], line["method"], line["target"], line["code"]) for line in lines]
        for expected in (("alice", "SubmitJob", f"job {job}", "OK"), ("carol", "CancelJob", f"job {job}", "PERMISSION_DENIED"),
                         ("carol", "FollowLogs", f"job {job}", "PERMISSION_DENIED"),
                         ("carol", "CancelJob", f"/api/v1/jobs/{job}/cancel", "PERMISSION_DENIED"),
                         ("carol", "GetIncident", f"/api/v1/incidents/{incident}", "PERMISSION_DENIED"), ("", "Connect", "worker node0", "OK"), ("bob", "CancelJob", f"job {job}", "OK")):
            self.assertIn(expected, seen)
        self.assertNotIn(("alice", "FollowLogs", f"job {job}", "OK"), seen)
        cancelled = next(line for line in lines if line["caller"] == "bob")
        self.assertEqual((cancelled["role"], cancelled["token"]), ("submitter", digest[:8]))
        for token in people.values():
            self.assertNotIn(token, path.read_text())

    @unittest.skipUnless(os.geteuid() == 0, "needs root")
    def test_ranks_run_as_the_owner_of_their_job(self):
        self.dir.chmod(0o711)
        for folder in (BIN, *BIN.resolve().parents, *self.dir.parents):
            status = folder.stat()
            replaceable = status.st_uid != 0 or (status.st_mode & 0o022 and not status.st_mode & stat.S_ISVTX)
            if replaceable or not status.st_mode & stat.S_IXOTH:
                self.skipTest(f"{folder} is not root's alone, or users cannot pass it")
        users = ("daemon", "games", "root", "missing-here")
        trust.replace(self.dir / "tokens/submitter", "".join(f"{user}-token-0123456789abcdef user={user}\n" for user in users)
                      + TOKENS["submitter"] + "\n")
        for user in users:
            trust.replace(self.dir / "mine" / user, f"{user}-token-0123456789abcdef\n")
        (self.dir / "work").mkdir(mode=0o711)
        secret = self.dir / "secret"
        secret.write_text("the-secret-of-root\n")
        secret.chmod(0o600)
        coordinator = self.start_coordinator()
        token = self.dir / "mine/worker"
        token.chmod(0o644)

        def refusal(*flags):
            worker = self.start(BIN / "muster-worker", "--coordinator", coordinator.address, "--work-dir", self.dir / "work/none", "--tls-ca",
                                self.dir / "tls/ca.crt", "--token-file", token, "--run-as-owner", *flags)
            self.assertNotEqual(worker.wait(timeout=20), 0)
            return self.output(worker)

        self.assertIn(f"--token-file={token} (with --run-as-owner): ranks of other users could read it: chmod 600", refusal())
        token.chmod(0o600)
        trainer = self.dir / "open/muster-trainer"
        trainer.parent.mkdir()
        trainer.write_text("#!/bin/sh\n")
        trainer.chmod(0o755)
        trainer.parent.chmod(0o777)
        self.assertIn(f"--trainer={trainer} (with --run-as-owner): other users may write to {trainer.parent}: chmod go-w", refusal("--trainer", trainer))
        self.env["DATABASE_URL"] = "postgres://the-secret-of-root@db"
        self.start_worker(coordinator, extra=("--run-as-owner", "--pass-env", "HF_TOKEN"))
        del self.env["DATABASE_URL"]

        def submit(user, script):
            self.act_as(user)
            return json.loads(self.muster("submit", "--json", "--working-directory", "/", "--", "sh", "-c", script, check=0).stdout)["id"]

        def run(user, script):
            job = submit(user, script)
            wait_until(lambda: self.job(job)["state"] in ("SUCCEEDED", "FAILED"), 60, "the end")
            return job, self.job(job)

        folder = self.dir / "work/node0"
        first, record = run("daemon", f"id -un; id -gn; echo $HOME $USER; cat {secret} {token}; ls {folder}; env; "
                            "d=$(dirname $MUSTER_PROGRESS_PAGE); echo mine > $d/file; cat $d/file; cat /proc/$PPID/environ; "
                            "setsid env -i sh -c 'echo left $$; exec sleep 600' & sleep 0.5")
        self.assertEqual(record["state"], "SUCCEEDED", record)
        output = self.muster("logs", first, check=0).stdout
        self.assertIn("daemon\ndaemon\n/usr/sbin daemon\n", output)
        self.assertIn("mine\n", output)
        self.assertEqual(output.count("Permission denied"), 4, output)
        self.assertNotIn("the-secret-of-root", output)
        self.assertEqual((folder / f"{first}/1").stat().st_mode & 0o777, 0o700)
        left = pathlib.Path("/proc", re.search(r"left (\d+)", output)[1])
        wait_until(lambda: not left.exists(), 20, "the end of the process that the rank has left")

        # Another user reaches nothing of it, and a link in place of the log leads nowhere.
        second, record = run("games", f"cat {folder}/{first}/1/file; d=$(dirname $MUSTER_PROGRESS_PAGE); rm $d/rank-0.log; "
                             f"ln -s {secret} $d/rank-0.log; exit 3")
        self.assertEqual(record["state"], "FAILED")
        for text in (self.muster("logs", second).stdout, json.dumps(record), self.muster("incident", "list", "--json").stdout):
            self.assertNotIn("the-secret-of-root", text)
        for user, why in (("root", "is root, whose jobs this node does not run without --run-root-jobs"), ("missing-here", "missing-here is no user of this node"),
                          ("submitter", "submit it with a token that names its user")):
            _, record = run(user, "true")
            self.assertEqual(record["state"], "FAILED")
            self.assertIn(why, json.dumps(record))
        nodes = json.loads(self.muster("node", "list", "--json", check=0).stdout)["nodes"]
        self.assertEqual([(node["name"], node.get("exclusion")) for node in nodes], [("node0", None)])

        # The worker still reads the stacks of such ranks.
        asleep = submit("daemon", "exec sleep 600")
        wait_until(lambda: "nanosleep" in self.muster("stacks", asleep).stdout, 60, "the stack")
        self.muster("cancel", asleep, "--force", check=0)

        # The trainer, too, writes its checkpoints as the user.
        out = self.dir / "out"
        out.mkdir()
        out.chmod(0o777)
        job = json.loads(self.muster("submit", *self.run_args("trained", "steps=3", ranks=1)[1:], "--no-check", "--json", check=0).stdout)["id"]
        wait_until(lambda: self.job(job)["state"] in ("SUCCEEDED", "FAILED"), 60, "the end")
        self.assertEqual(self.job(job)["state"], "SUCCEEDED", self.job(job))
        self.assertTrue(list(out.rglob("*checkpoint*")), "no checkpoint")
        self.assertEqual({path.owner() for path in out.rglob("*")}, {"daemon"})

    def test_missing_token_or_wrong_certificate_names_the_option(self):
        self.start_coordinator()
        del self.env["MUSTER_TOKEN_FILE"]
        self.assertIn("requires a token: give its file with --token-file", self.muster("list").stderr)
        self.env["MUSTER_TLS_CA"] = str(trust.Authority(self.dir, "stranger").certificate)
        self.assertIn("check that --tls-ca has the CA of its certificate", self.muster("list").stderr)
        self.env["MUSTER_TLS_CA"] = str(self.dir / "none")
        self.assertIn(f"--tls-ca={self.dir}/none", self.muster("list").stderr)
        del self.env["MUSTER_TLS_CA"]
        self.assertIn("--tls-ca", self.muster("list").stderr)
        self.env["MUSTER_TOKEN_FILE"] = str(self.dir / "mine/admin")
        self.assertIn("--token-file needs --tls-ca", self.muster("list").stderr)

    def test_token_rotation_interrupts_no_job(self):
        coordinator = self.start_coordinator()
        worker = self.start_worker(coordinator)
        job = self.submit("rotated", 1_000_000)
        self.wait_for_step(job, 2)
        # The worker gets the new token first, while the coordinator is down.
        trust.replace(self.dir / "mine/worker", "another-worker-token-0123456789\n")
        coordinator.send_signal(signal.SIGKILL)
        coordinator.wait(timeout=10)
        coordinator = self.start_coordinator(listen=coordinator.address)
        wait_until(lambda: "has no such token" in self.output(worker), 30, "the refusal")
        self.assertIsNone(worker.poll(), self.output(worker))
        self.write_tokens("worker", "another-worker-token-0123456789")
        wait_until(lambda: self.connected() == ["node0"], 30, "the worker")
        self.wait_for_step(job, max(r["step"] for r in self.job(job)["ranks"]) + 2)
        record = self.job(job)
        self.assertEqual((record["state"], record.get("faults", [])), ("RUNNING", []), record)
        self.muster("cancel", job, "--force", check=0)

    def test_new_authority_is_adopted_without_a_restart(self):
        coordinator = self.start_coordinator()
        worker = self.start_worker(coordinator)
        wait_until(lambda: self.connected() == ["node0"], 30, "the worker")
        self.install(trust.Authority(self.dir, "second"))
        wait_until(lambda: self.muster("list").returncode == 0, 30, "the new certificate")
        # A new worker, and one that reconnects after its connection broke.
        self.start_worker(coordinator, "node1")
        wait_until(lambda: "node1" in self.connected(), 30, "another worker")
        worker.send_signal(signal.SIGSTOP)
        wait_until(lambda: "node0" not in self.connected(), 40, "the lease's end")
        worker.send_signal(signal.SIGCONT)
        wait_until(lambda: "node0" in self.connected(), 30, "the worker again")

    def test_worker_waits_for_a_half_finished_rotation(self):
        coordinator = self.start_coordinator()
        worker = self.start_worker(coordinator)
        wait_until(lambda: self.connected() == ["node0"], 30, "the worker")
        ca = self.dir / "tls/ca.crt"
        retained = ca.read_text()
        trust.replace(ca, "half of a certif")
        coordinator.send_signal(signal.SIGKILL)
        coordinator.wait(timeout=10)
        coordinator = self.start_coordinator(listen=coordinator.address)
        wait_until(lambda: "there is no certificate in it" in self.output(worker), 30, "the complaint")
        trust.replace(ca, retained)
        wait_until(lambda: self.connected() == ["node0"], 30, "the worker")

    def test_clients_need_a_certificate_with_tls_client_ca(self):
        certificate, key = self.authority.sign("client", "DNS:client")
        coordinator = self.start_coordinator(extra=("--tls-client-ca", self.authority.certificate))
        self.assertNotEqual(self.muster("list").returncode, 0)
        self.env.update(MUSTER_TLS_CERT=str(certificate), MUSTER_TLS_KEY=str(key))
        self.muster("list", check=0)
        self.start_worker(coordinator, extra=("--tls-cert", certificate, "--tls-key", key))
        wait_until(lambda: self.connected() == ["node0"], 30, "the worker")

    def test_coordinator_refuses_contradictory_flags_and_files(self):
        other = trust.Authority(self.dir, "other").sign("other")
        tls = ["--tls-cert", self.dir / "tls/tls.crt", "--tls-key", self.dir / "tls/tls.key"]
        tokens = ["--token-dir", self.dir / "tokens"]
        far = ["--listen", "0.0.0.0:0"]
        (self.dir / "roles").mkdir()
        (self.dir / "roles/boss").write_text("a-token-0123456789abcdef")
        for flags, printed in ((far, "there is no transport security; give --tls-cert"), (far + tls, "callers need no credentials"),
                            (tokens, "--token-dir needs --tls-cert"), (tls[:2], "--tls-cert and --tls-key go together"),
                            ([*tls[:3], other[1]], "the key is not that of --tls-cert"),
                            (["--tls-client-ca", self.authority.certificate], "--tls-client-ca needs --tls-cert"),
                            (tls + ["--token-dir", self.dir / "roles"], "boss is no role"),
                            (tls + tokens + ["--http", "0.0.0.0:0"], "--trusted-network")):
            given = list(map(str, flags))
            for flag in ("--listen", "--http"):
                given += [] if flag in given else [flag, "127.0.0.1:0"]
            process = self.start(BIN / "muster-coordinator", "--state-dir", self.dir / "refused", *given)
            of_files = printed in ("the key is not that of --tls-cert", "boss is no role")
            self.assertEqual(process.wait(timeout=20), 14 if of_files else 2, self.output(process))
            self.assertIn(printed, self.output(process))
        self.assertFalse((self.dir / "refused").exists())


if __name__ == "__main__":
    unittest.main()
