"""`muster run -- COMMAND`: foreign programs, started as by torchrun."""
import json
import os
import re
import signal
import unittest

from harness import SOURCE, wait_until
from programs import ProgramTest

# A short form of init_process_group("gloo"): rank 0 listens on MASTER_PORT, and the others connect
# to it.
PEERS_PY = '''
import os, signal, socket, sys, time
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))

def connect():
    deadline = time.monotonic() + 60
    while True:
        try:
            return socket.create_connection(address, timeout=60)
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)

if rank == 0:
    server = socket.create_server(address)
    peers = [server.accept()[0] for _ in range(world - 1)]
else:
    peers = [connect()]

def all_reduce(value):
    """Returns the sum over the ranks. Fails if a peer is lost, as Gloo does."""
    def get(peer):
        data = b""
        while not data.endswith(b"\\n"):
            part = peer.recv(64)
            if not part:
                raise ConnectionError("Connection closed by peer")
            data += part
        return int(data)
    if rank == 0:
        value += sum(get(peer) for peer in peers)
        for peer in peers:
            peer.sendall(b"%d\\n" % value)
        return value
    peers[0].sendall(b"%d\\n" % value)
    return get(peers[0])
'''

class AnyProgram(ProgramTest):
    # ------------------------------------------------------------------ starting

    def test_ranks_find_each_other_as_under_torchrun(self):
        script = self.script("sum.py", PEERS_PY + '''
total = all_reduce(rank)
names = ["LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "NODE_RANK", "NNODES", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_MAX_RESTARTS",
         "TORCHELASTIC_USE_AGENT_STORE", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID"]
assert os.environ["JAX_COORDINATOR_ADDRESS"] == "%s:%d" % address
print("total", total, "of", world, [os.environ[name] for name in names], flush=True)
''')
        result = self.run_program("python3", script, ranks=4)
        self.assertIn("total 6 of 4 ['0', '4', '0', '0', '1', 'muster-1', '3', 'False', '4', '0']\n", result.stdout)
        self.assertIn("python3: 4 ranks\n", result.stderr)
        self.assertIn("SUCCEEDED", result.stderr)

    def test_arguments_environment_and_folder_arrive_unchanged(self):
        script = self.script("words.sh", '#!/bin/sh\nprintf "<%s>" "$@"; echo; pwd; echo "$GREETING"\n')
        script.chmod(0o755)
        result = self.run_program("GREETING=good day", "./words.sh", "--ranks", "a b", "[1,2]", "", "x=1", "--", "ü*")
        self.assertEqual(result.stdout, f"<--ranks><a b><[1,2]><><x=1><--><ü*>\n{self.dir}\ngood day\n")

    def test_program_path_may_have_the_form_of_a_key(self):
        (self.dir / "lr=1").mkdir()
        for path in ("./lr=1/steps=3", "./steps=3", f"{self.dir}/lr=1/run"):
            script = self.script(path, '#!/bin/sh\necho "<$GREETING>" "$@"\n')
            script.chmod(0o755)
            self.assertEqual(self.run_program("GREETING=x=y", path, "steps=4").stdout, "<x=y> steps=4\n")
            self.assertEqual(self.run_program(path).stdout, "<>\n")

    def test_invalid_programs_are_refused(self):
        result = self.run_program("nosuchprogram", "-v", check=2)
        self.assertRegex(result.stderr, r"there is no program nosuchprogram in PATH=\S")
        self.script("plain.sh", "echo")
        result = self.run_program("./plain.sh", check=2)
        self.assertIn("plain.sh cannot be executed: chmod +x, or name its interpreter", result.stderr)
        self.assertFalse((self.dir / "job").exists(), "a job that never began left a folder")
        result = self.muster("run", "--name", "a b", "--", "true", check=2)
        self.assertIn("--name a b: a name has", result.stderr)
        result = self.muster("config", "show", "--", "python3", "train.py", check=2)
        self.assertIn("put your own program behind --", result.stderr)
        result = self.muster("run", "python3", "train.py", check=2)
        self.assertIn("muster run -- python3", result.stderr)

    # ------------------------------------------------------------------ ends

    def test_exit_codes_of_programs_have_no_special_meaning(self):
        for code in (3, 75, 76):  # Muster's trainer: not finite, preempted, peer lost
            result = self.run_program("sh", "-c", f"exit {code}", options=["--restarts", "1"], check=6)
            self.assertIn(f"exited with code {code}", result.stderr)
            self.assertIn("the one restart is used up and made no progress", result.stderr)
            self.run_program("sh", "-c", f"exit {code}", options=["--restarts", "0"], check=code)

    def test_killed_rank_is_restarted_on_another_port(self):
        script = self.script("again.py", PEERS_PY + '''
print("attempt", attempt, "port", address[1], "total", all_reduce(rank), flush=True)
while attempt == 0:
    all_reduce(1)
    time.sleep(0.02)
''')
        run = self.start_program("python3", script, ranks=3)
        wait_until(lambda: "total 3" in self.output(run), 30, "the first attempt's sum")
        os.kill(self.pids_of_ranks()[2], signal.SIGKILL)
        self.assertEqual(run.wait(timeout=60), 0, self.output(run))
        ports = re.findall(r"^attempt (\d) port (\d+) total 3$", run.out_path.read_text(), re.M)
        self.assertEqual([attempt for attempt, _ in ports], ["0", "1"], self.output(run))
        self.assertNotEqual(ports[0][1], ports[1][1])
        self.assertIn("rank 2 on ", self.output(run))

    def test_hanging_program_is_detected_and_restarted(self):
        script = self.script("hangs.py", PEERS_PY + '''
import muster_progress as progress
progress.begin()
ring = progress.group("data", world, 1)
for n in range(1, 41):
    with ring.collective("all-reduce", "gradients", 8):
        all_reduce(n)
    time.sleep(0.02)
    progress.step(n, loss=1 / n, tokens=10)
    if attempt == 0 and n == 20 and rank == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
print("attempt", attempt, "ends", flush=True)
''')
        result = self.run_program("python3", script, ranks=3, options=["--env", f"PYTHONPATH={SOURCE}/progress"])
        self.assertIn("attempt 1 ends\n", result.stdout)
        sentence = re.search(r"fault at step 20: hang: (.*)", result.stderr)
        self.assertTrue(sentence, result.stderr)
        self.assertRegex(sentence[1], r"^rank 1\b")

    # ------------------------------------------------------------------ a fleet

    def test_fleet_runs_programs_on_several_nodes_and_survives_its_coordinator(self):
        coordinator = self.start_coordinator(listen="127.0.0.1:0")
        port = coordinator.address.rsplit(":", 1)[1]
        for name in ("node0", "node1"):
            self.start_worker(coordinator, name, slots=2)
        go = self.dir / "go"
        script = self.script("wide.py", PEERS_PY + f'''
print("node", os.environ["GROUP_RANK"], "of", os.environ["NNODES"], "total", all_reduce(rank), flush=True)
while not os.path.exists({str(go)!r}):
    time.sleep(0.02)
all_reduce(1)
''')
        job = json.loads(self.muster("submit", "--nodes", 2, "--ranks-per-node", 2, "--json", "--", "python3", script, "--lr",
                                     "1", check=0).stdout)
        self.assertEqual(job["spec"]["command"], ["python3", str(script), "--lr", "1"])
        logs = lambda: self.muster("logs", job["id"], "--rank", "all", "--no-merge", check=0).stdout
        wait_until(lambda: logs().count("total 6") == 4, 60, "all four ranks")
        self.assertEqual(sorted(re.findall(r"node (\d) of 2", logs())), ["0", "0", "1", "1"])
        shown = self.muster("status", job["id"], check=0).stdout
        self.assertIn("RUNNING", shown)
        self.assertNotIn("INIT", shown, "a program without a page is in no phase")
        coordinator.kill()
        coordinator.wait()
        self.start_coordinator(listen=f"127.0.0.1:{port}")
        go.touch()
        ended = wait_until(lambda: (j := self.job(job["id"]))["state"] == "SUCCEEDED" and j, 30, "the end")
        self.assertEqual(ended["attempt"], 1)

    def test_program_that_exits_0_on_sigterm_resumes_elsewhere(self):
        attempts = self.dir / "attempts"
        script = self.script("saves.sh", f"""
echo $MUSTER_ATTEMPT >> {attempts}
[ $MUSTER_ATTEMPT = 1 ] || exit 0
trap 'exit 0' TERM
while :; do sleep 0.1; done
""")
        coordinator = self.start_coordinator()
        leaver = self.start_worker(coordinator, "node1", 1)
        job = json.loads(self.muster("submit", "--json", "--", "sh", script, check=0).stdout)["id"]
        wait_until(attempts.exists, 30, "the program's start")
        self.start_worker(coordinator, "node2", 1)
        leaver.send_signal(signal.SIGTERM)
        wait_until(lambda: self.job(job)["state"] == "SUCCEEDED", 60, "the job's end")
        self.assertEqual(attempts.read_text().split(), ["1", "2"])

    def test_missing_program_is_reported_once(self):
        coordinator = self.start_coordinator()
        self.start_worker(coordinator)
        job = json.loads(self.muster("submit", "--json", "--", "nosuchprogram", check=0).stdout)
        ended = wait_until(lambda: (j := self.job(job["id"]))["state"] == "FAILED" and j, 30, "the end")
        self.assertEqual((ended["attempt"], ended["exit_code"]), (1, 127))
        self.assertIn("there is no program nosuchprogram in PATH=", ended["reason"])
        self.assertIn("a program that is missing or cannot be executed is not retried", ended["reason"])


if __name__ == "__main__":
    unittest.main()
