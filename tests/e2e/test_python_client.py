"""The Python client against a real coordinator and workers, and its functions on ranks."""
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import unittest

import trust
from harness import BIN, SOURCE, MusterTest, wait_until
from python_tools import python_or_skip

# The package is before all others, which the interpreter has.
PRELUDE = "import asyncio, json, os, signal, sys\nsys.path.insert(0, {site!r})\nimport muster\n"


def package_without_programs(folder):
    """Builds the wheel's Python package, and returns the folder with it."""
    env = {**os.environ, "PYTHON": python_or_skip("grpc_tools")}
    made = subprocess.run([SOURCE / "deploy/wheel.sh", "--pure", "--out", folder], capture_output=True, text=True, env=env, timeout=120)
    assert made.returncode == 0, made.stderr
    wheel, = pathlib.Path(folder).glob("muster_train-*-py3-none-any.whl")
    shutil.unpack_archive(wheel, pathlib.Path(folder) / "site", "zip")
    return pathlib.Path(folder) / "site"


class PythonClient(MusterTest):
    @classmethod
    def setUpClass(cls):
        cls.client_python = python_or_skip("grpc")
        folder = tempfile.mkdtemp(prefix="muster-python-")
        cls.addClassCleanup(shutil.rmtree, folder, ignore_errors=True)
        cls.site = package_without_programs(folder)

    def setUp(self):
        super().setUp()
        self.env["PATH"] = f"{BIN}:{self.env['PATH']}"

    def script(self, text):
        path = self.dir / "script.py"
        path.write_text(PRELUDE.format(site=str(self.site)) + text)
        return path

    def python(self, text, *arguments, check=0):
        """Runs a script to its end; it checks the results itself. Returns its output."""
        ended = subprocess.run([self.client_python, self.script(text), *map(str, arguments)], capture_output=True, text=True, env=self.env,
                               cwd=self.dir, timeout=100)
        self.assertEqual(ended.returncode, check, ended.stdout + ended.stderr)
        return ended.stdout + ended.stderr

    def test_jobs_logs_and_the_incident_of_a_killed_rank(self):
        coordinator = self.start_coordinator()
        self.start_worker(coordinator)
        self.python('''
client = muster.Client()
job = client.submit_program(["sh", "-c", "echo rank $RANK: $SECRET; exec sleep 100"], ranks=2, restarts=0, name="sleeps", env={"SECRET": "s3"})
assert (job.spec.name, job.spec.nodes * job.spec.ranks_per_node, job.spec.command[0]) == ("sleeps", 2, "sh")
killed = 0
for job in client.watch(job.id):
    if job.state is muster.JobState.RUNNING and not killed:
        lines = {}
        for line in client.logs(job.id, rank=None, follow=True):
            lines[line.rank] = line
            if len(lines) == 2:
                break
        assert lines[1].text == "rank 1: s3" and lines[1].time is not None, lines
        killed = {rank.rank: rank.pid for rank in client.job(job.id).ranks}[1]
        os.kill(killed, signal.SIGKILL)
assert job.state is muster.JobState.FAILED and job.state.has_ended
assert "rank 1 on node0 was killed by signal 9" in job.incident.sentence, job.incident
try:
    client.wait(job.id)
    raise AssertionError("no error")
except muster.JobFailed as error:
    assert str(error) == job.incident.sentence and error.job.id == job.id
incident = client.incident(job.incident.id)
assert incident.suspects[0].rank == 1 and incident.kind == "rank died", incident
assert any(evidence.rank == 1 and "rank 1: s3" in evidence.last_lines for evidence in incident.evidence), incident.evidence
assert [found.id for found in client.incidents(job.id)] == [incident.id]
assert [(a.attempt, a.incident_id) for a in client.history(job.id)] == [(1, incident.id)]
assert [line.text for line in client.logs(job.id, rank=0)] == ["rank 0: s3"]
assert [(w.name, w.slots, w.connected) for w in client.workers()] == [("node0", 4, True)]
assert [found.id for found in client.jobs()] == [job.id] and client.jobs(active_only=True) == []
values = {(sample.name, sample.labels.get("state")): sample.value for sample in client.metrics(sys.argv[1])}
assert values["muster_jobs", "failed"] == 1, values
''', f"127.0.0.1:{coordinator.ports['http_port']}")

    def test_asyncio_follows_updates_and_cancels(self):
        self.start_worker(self.start_coordinator())
        self.python('''
async def main():
    async with muster.AsyncClient() as client:
        jobs = await asyncio.gather(*(client.submit_program(["sh", "-c", f"echo first {n}; exec sleep 100"], name=f"job{n}") for n in range(2)))
        async for job in client.watch(jobs[0].id):
            if job.state is muster.JobState.RUNNING:
                break
        updated = await client.update(jobs[0].id, command=["sh", "-c", "echo second"], now=True)
        assert updated.revisions[-1].change.startswith("-- sh"), updated.revisions
        assert (await client.wait(jobs[0].id)).revision == 2
        for attempt, text in ((1, "first 0"), (2, "second")):
            assert [line.text async for line in client.logs(jobs[0].id, attempt=attempt, follow=True)] == [text]
        ended = asyncio.ensure_future(client.wait(jobs[1].id, check=False))
        await client.cancel(jobs[1].id)
        assert (await ended).state is muster.JobState.CANCELLED
        for call, error, text in ((client.cancel(jobs[1].id), muster.FailedPrecondition, "ended"), (client.job(99), muster.NotFound, "99"),
                                  (client.checkpoint(jobs[1].id), muster.FailedPrecondition, "ended")):
            try:
                await call
                raise AssertionError(error)
            except error as refused:
                assert text in str(refused), refused
asyncio.run(main())
''')

    def test_watch_and_logs_survive_a_restart_of_the_coordinator(self):
        coordinator = self.start_coordinator()
        self.start_worker(coordinator)
        listen = coordinator.address
        go = self.dir / "go"
        job = self.python('''
job = muster.Client().submit_program(["sh", "-c", "echo before; until [ -e go ]; do sleep 0.1; done; echo after"], name="waits")
print(job.id)
''').strip()
        watcher = self.start(self.client_python, self.script('''
client = muster.Client()
for job in client.watch(int(sys.argv[1])):
    print(job.state, flush=True)
print([line.text for line in client.logs(job.id)], flush=True)
'''), job)
        wait_until(lambda: "RUNNING" in watcher.out_path.read_text(), 60, "the running job")
        coordinator.send_signal(signal.SIGKILL)
        coordinator.wait()
        self.start_coordinator(listen=listen)
        go.write_text("")
        self.assertEqual(watcher.wait(timeout=90), 0, self.output(watcher))
        self.assertIn("SUCCEEDED\n['before', 'after']", watcher.out_path.read_text())
        self.assertIn(f"no coordinator answers at {listen}", watcher.err_path.read_text())

    def test_errors_are_those_of_the_command(self):
        self.start_worker(self.start_coordinator())
        refused = self.muster("submit", "base.yml", "model_nam=llama2-tiny", "run_name=x", check=2).stderr
        message = refused.partition("muster: error: ")[2].strip()
        self.assertIn("did you mean model_name?", message)
        self.python('''
def refused(error, call):
    try:
        call()
    except error as found:
        return str(found)
    raise AssertionError(f"no {error}")

message, = sys.argv[1:]
text = refused(muster.InvalidArgument, lambda: muster.Client().submit("base.yml", {"model_nam": "llama2-tiny", "run_name": "x"}))
assert text == message, text
for address, why in (("here", "the port is missing"), ("::1:7070", "an IPv6 address needs brackets"), (":7070", "the host is missing"),
                     ("a b:7070", "the host is not a name"), ("a:x", "port 'x' is not a number from 0 to 65535")):
    text = refused(muster.InvalidArgument, lambda: muster.Client(address))
    assert text == f"--coordinator={address}: {why}; expected host:port, for example 127.0.0.1:7070", text
gone = muster.Client("127.0.0.1:1")
for call in (gone.workers, lambda: list(gone.logs(1)), lambda: gone.cancel(1)):
    text = refused(muster.Unavailable, call)
    assert text == ("no coordinator answers at 127.0.0.1:1 (Connection refused); start muster-coordinator, or name another address with "
                    "--coordinator"), text
''', message)

    def test_one_of_several_coordinators_leads(self):
        coordinator = self.start_coordinator()
        stopped = self.start_coordinator("stopped")
        stopped.send_signal(signal.SIGSTOP)  # its host still accepts connections
        self.env["MUSTER_COORDINATOR"] = f"127.0.0.1:1,{stopped.address},{coordinator.address}"
        http = f"127.0.0.1:{coordinator.ports['http_port']}"
        self.python('''
http, = sys.argv[1:]
client = muster.Client()
job = client.submit_program(["true"], name="listed")
assert [found.spec.name for found in client.jobs()] == ["listed"]
assert client.metrics(http)
async def run():
    async with muster.AsyncClient() as client:
        assert (await client.job(job.id)).spec.name == "listed"
        await client.cancel(job.id)
        async for last in client.watch(job.id):
            pass
        assert last.state is muster.JobState.CANCELLED
asyncio.run(run())
for text, why in (("a:1,b", "--coordinator=b: the port is missing"), ("a:1,a:1", "--coordinator=a:1: this address is in the list twice")):
    try:
        muster.Client(text)
        raise AssertionError(text)
    except muster.BadInput as error:
        assert why in str(error), error
''', http)
        stopped.send_signal(signal.SIGCONT)

    def test_read_without_an_answer_is_repeated_at_the_next_leader(self):
        leader, following = (self.start_coordinator(name) for name in ("leader", "following"))
        following.send_signal(signal.SIGSTOP)
        self.env["MUSTER_COORDINATOR"] = f"{leader.address},{following.address}"
        self.python('''
import glob, os, signal
leader, following = map(int, sys.argv[1:])
def stands_still(pid):
    return all(open(path).read().rpartition(")")[2].split()[0] == "T" for path in glob.glob(f"/proc/{pid}/task/*/stat"))
client = muster.Client()
client.submit_program(["true"], name="of-the-leader")
assert len(client.jobs()) == 1
os.kill(leader, signal.SIGSTOP)
while not stands_still(leader):
    pass
os.kill(following, signal.SIGCONT)
assert client.jobs() == []
''', leader.pid, following.pid)
        leader.send_signal(signal.SIGCONT)

    def test_tls_and_tokens(self):
        if trust.why_not():
            self.skipTest(trust.why_not())
        authority = trust.Authority(self.dir, "first")
        certificate, key = authority.sign("coordinator")
        for role in ("worker", "submitter"):
            trust.replace(self.dir / "tokens" / role, f"{role}-token-0123456789abcdef\n")
        trust.replace(self.dir / "wrong", "wrong-token-0123456789abcdef\n")
        files = ("--tls-ca", authority.certificate, "--token-file", self.dir / "tokens/worker")
        coordinator = self.start_coordinator(extra=("--tls-cert", certificate, "--tls-key", key, "--token-dir", self.dir / "tokens"))
        self.start_worker(coordinator, extra=files)
        self.env.update(MUSTER_TLS_CA=str(authority.certificate), MUSTER_TOKEN_FILE=str(self.dir / "tokens/submitter"))
        wrong = self.muster("list", "--token-file", self.dir / "wrong", check=1).stderr.partition("muster: error: ")[2].strip()
        self.python('''
wrong, folder = sys.argv[1:]
job = muster.Client().submit_program(["true"], name="trusted")
assert muster.Client().wait(job.id).state is muster.JobState.SUCCEEDED
try:
    muster.Client(token_file=folder + "/wrong").jobs()
    raise AssertionError("no error")
except muster.Unauthenticated as error:
    assert str(error) == wrong, error
for arguments, text in ((dict(tls_ca=""), "--token-file needs --tls-ca: "), (dict(tls_ca=folder + "/none"), "/none: No such file or directory"),
                        (dict(token_file=os.devnull), "there is no token in it"), (dict(tls_cert="x"), "--tls-cert and --tls-key go together"),
                        (dict(tls_ca=folder + "/wrong"), "there is no certificate in it; PEM is expected")):
    try:
        muster.Client(**arguments).jobs()
        raise AssertionError(text)
    except muster.BadInput as error:
        assert text in str(error), error
''', wrong, self.dir)

    def test_functions_run_on_ranks(self):
        self.start_worker(self.start_coordinator())
        self.python('''
def square(first, *, add):
    print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"])
    return (first + int(os.environ["RANK"])) ** 2 + add

def fail(rank):
    if os.environ["RANK"] == str(rank):
        raise ValueError(f"{rank} is bad")
    return 1

assert muster.run(square, (1,), {"add": 5}, ranks=3) == [6, 9, 14]
assert muster.Client().run(square, (1,), {"add": 5}, ranks=2, folder=".") == [6, 9]
assert not [name for name in os.listdir(".") if name.startswith("muster-square")]
for run in (lambda: muster.run(fail, (1,), ranks=2, quiet=True), lambda: muster.Client().run(fail, (1,), ranks=2, folder=".")):
    try:
        run()
        raise AssertionError("no error")
    except muster.RunFailed as error:
        assert error.rank == 1 and isinstance(error.__cause__, ValueError) and str(error.__cause__) == "1 is bad"
        assert "rank 1 on " in str(error) and "exited with code 1: ValueError: 1 is bad" in str(error), error
        assert os.path.isdir(error.folder)
        __import__("shutil").rmtree(error.folder)
try:
    muster.run(os._exit, (7,), quiet=True)
    raise AssertionError("no error")
except muster.RunFailed as error:
    assert error.exit_code == 7 and "exited with code 7" in str(error) and error.__cause__ is None, error
try:
    muster.run(square, ranks=0)
    raise AssertionError("no error")
except muster.InvalidArgument as error:
    assert "--ranks" in str(error)
''')

    def test_types_are_complete(self):
        config = SOURCE / "python" / "pyproject.toml"
        checked = subprocess.run([self.client_python, "-m", "mypy", "--strict", "--config-file", config, "--cache-dir", self.dir / "cache", "muster"],
                                 capture_output=True, text=True, cwd=self.site, timeout=150)
        self.assertEqual(checked.returncode, 0, checked.stdout + checked.stderr)


if __name__ == "__main__":
    unittest.main()
