"""Three coordinators with a cluster of etcd: no fault of the leader or of etcd stops a rank, loses
a job or runs one twice, while clients submit, cancel and list jobs.
"""
import json
import re
import signal
import subprocess
import sys
import threading
import time
import unittest
import urllib.error
import urllib.request

from etcd_cluster import EtcdCluster, free_ports
from harness import BIN, MusterTest, wait_until
from history import ENDED, SUBMITTED, History, violations
from own_network import OwnNetworkTest

COUNT = 3
LOCKED, STATE, REFUSED, DEPOSED = 10, 13, 15, 16  # coordinator/shell/start_exit.h

# A rank that counts, and shows its number and its pid.
PROGRAM = """
import os, pathlib, sys, time
page = pathlib.Path(sys.argv[1]) / ("rank" + os.environ["RANK"])
for step in range(10 ** 9):
    page.with_suffix(".new").write_text(f"{os.getpid()} {step}")
    page.with_suffix(".new").rename(page)
    print(f"step {step}.", flush=True)
    time.sleep(0.1)
"""


class Clients:
    """Threads that submit, cancel and list jobs, and record what they see."""

    def __init__(self, test):
        self.history = History()
        self.failures = []
        self._test, self._stop = test, threading.Event()
        self._threads = [threading.Thread(target=self._submit, args=(n,)) for n in range(2)] + [threading.Thread(target=self._list)]
        for thread in self._threads:
            thread.start()

    def stop(self):
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _submit(self, thread):
        number = 0
        while not self._stop.wait(0.3):
            number += 1
            name = f"t{thread}-{number}"
            # Every second job waits for nodes that do not exist, until it is cancelled.
            waits = number % 2 == 0
            words = ["--nodes", 9, "--", "true"] if waits else ["--restarts", 0, "--", "sh", "-c", f"echo run >> runs/{name}"]
            operation = self.history.begin("submit", name, lasts=waits)
            done = self._test.muster("submit", "--json", "--name", name, *words)
            if done.returncode != 0:
                self.failures.append((operation.begin, done.stderr))
                continue
            job = json.loads(done.stdout)["id"]
            self.history.end(operation, {(name, job): SUBMITTED})
            if waits and number % 4 == 0:
                operation = self.history.begin("cancel", name)
                done = self._test.muster("cancel", job)
                if done.returncode == 0:
                    self.history.end(operation, {(name, job): ENDED})
                else:
                    self.failures.append((operation.begin, done.stderr))

    def _list(self):
        while not self._stop.wait(0.25):
            self.list()

    def list(self):
        operation = self.history.begin("list")
        done = self._test.muster("list", "--all", "--json")
        if done.returncode != 0:
            self.failures.append((operation.begin, done.stderr))
            return None
        jobs = json.loads(done.stdout)["jobs"]
        self.history.end(operation, {(job["spec"]["name"], job["id"]): ENDED if job["state"] in ("SUCCEEDED", "FAILED", "CANCELLED") else SUBMITTED
                                     for job in jobs if job["spec"]["name"].startswith("t")})
        return {job["spec"]["name"]: job for job in jobs}


class SeveralCoordinators(MusterTest):
    def set_up_coordinators(self):
        self.etcd = EtcdCluster(self, users=COUNT)
        ports = free_ports(2 * COUNT)
        self.ports, self.http_ports = ports[:COUNT], ports[COUNT:]
        self.env["MUSTER_COORDINATOR"] = ",".join(f"127.0.0.1:{port}" for port in self.ports)
        self.coordinators = [self.start_one(index) for index in range(COUNT)]
        self.leader()

    def start_one(self, index):
        return self.start(BIN / "muster-coordinator", "--listen", f"127.0.0.1:{self.ports[index]}", "--http",
                          f"127.0.0.1:{self.http_ports[index]}", "--state-dir", self.dir / f"state-{index}", "--etcd",
                          self.etcd.endpoints(index), "--port-file", self.dir / f"ports-{index}")

    def restart(self, index):
        self.coordinators[index] = self.start_one(index)
        wait_until(lambda: self.readiness(index)[0] == 503, 30, "the standby")

    def page_of(self, index, path):
        """Returns (status, text); status 0 if nothing listens."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.http_ports[index]}{path}", timeout=5) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def readiness(self, index):
        return self.page_of(index, "/readyz")

    def leader(self, without=()):
        """Waits for a leader and returns its index."""
        def ready():
            return [index for index in range(COUNT) if index not in without and self.readiness(index)[0] == 200]
        return wait_until(ready, 60, "a coordinator that leads: " + "".join(self.output(c)[-500:] for c in self.coordinators))[0]

    def start_workers(self, count):
        for index in range(count):
            self.workers = [*getattr(self, "workers", []), self.start(
                BIN / "muster-worker", "--coordinator", self.env["MUSTER_COORDINATOR"], "--name", f"node{index}", "--slots", 4,
                "--work-dir", self.dir / "work" / f"node{index}", "--http", "127.0.0.1:0", "--sys-root", self.dir / "sys")]
        wait_until(lambda: self.connected() == count, 60, "the workers")

    def connected(self):
        workers = json.loads(self.muster("list", "--workers", "--json", check=0).stdout)["workers"]
        return sum(worker["connected"] for worker in workers)

    def start_ranks(self):
        """Starts a job of a rank on each of two nodes and returns its number."""
        (self.dir / "program.py").write_text(PROGRAM)
        job = json.loads(self.muster("submit", "--json", "--name", "counts", "--nodes", 2, "--restarts", 3, "--", sys.executable, "program.py",
                                     self.dir, check=0).stdout)["id"]
        wait_until(lambda: self.job(job)["state"] == "RUNNING", 60, "the ranks")
        wait_until(lambda: (self.dir / "rank0").exists() and (self.dir / "rank1").exists(), 30, "the ranks' pages")
        return job

    def ranks(self):
        """Returns the pids and the steps of both ranks."""
        pages = [(self.dir / f"rank{rank}").read_text().split() for rank in range(2)]
        return [int(page[0]) for page in pages], [int(page[1]) for page in pages]

    def follow_leader(self, what, begun, without=()):
        """Waits until clients and workers have found the next leader; prints how long that took
        since `begun`, and returns its index.
        """
        index = self.leader(without)
        led = time.monotonic() - begun
        wait_until(lambda: self.connected() == len(self.workers), 60, "the workers' return")
        wait_until(lambda: all(self.clients.history.answered(kind, begun) for kind in ("submit", "list")), 60, "answers to clients")
        print(f"failover after {what}: leads after {led:.1f} s, workers and clients after {time.monotonic() - begun:.1f} s", file=sys.stderr)
        return index

    def expect_end(self, index, code):
        process = self.coordinators[index]
        wait_until(lambda: process.poll() is not None, 30, "the end of the former leader")
        self.assertEqual(process.returncode, code, self.output(process))


class Failover(SeveralCoordinators, OwnNetworkTest):
    def cut_from_etcd(self, index):
        rules = [["OUTPUT", "-p", "tcp", "--dport", str(port), "-j", "DROP"] for port in self.etcd.ports(index)]
        for rule in rules:
            subprocess.run(["iptables", "-I", *rule], check=True)
        return lambda: [subprocess.run(["iptables", "-D", *rule], check=True) for rule in rules]

    def test_no_fault_of_the_leader_or_of_etcd_stops_a_rank_or_loses_a_job(self):
        self.set_up_coordinators()
        self.start_workers(2)
        (self.dir / "runs").mkdir()
        ended = json.loads(self.muster("submit", "--json", "--name", "ended", "--", "echo", "hello", check=0).stdout)["id"]
        wait_until(lambda: self.job(ended)["state"] == "SUCCEEDED", 60, "the first job")
        job = self.start_ranks()
        pids, steps = self.ranks()
        logs = self.start(BIN / "muster", "logs", "-f", job, "--rank", 1)
        self.clients = clients = Clients(self)
        try:
            first = self.leader()
            begun = time.monotonic()
            self.coordinators[first].kill()
            second = self.follow_leader("SIGKILL", begun, (first,))
            lost = self.muster("logs", ended)
            self.assertNotEqual(lost.returncode, 0)
            self.assertIn(f"is on the disk of the coordinator that led when the attempt ended: 127.0.0.1:{self.ports[first]}", lost.stderr)
            self.restart(first)

            begun = time.monotonic()
            self.coordinators[second].send_signal(signal.SIGSTOP)
            third = self.follow_leader("SIGSTOP", begun, (second,))
            self.coordinators[second].send_signal(signal.SIGCONT)
            self.expect_end(second, DEPOSED)
            self.restart(second)

            self.etcd.members[0].kill()
            self.etcd.members[0].wait()
            time.sleep(3)
            begun = time.monotonic()
            third = self.follow_leader("the loss of a member of etcd", begun)
            self.etcd.restart(0)
            wait_until(lambda: self.etcd.is_healthy(0), 30, "the member's return")

            begun = time.monotonic()
            paused = self.etcd.members[self.etcd.leader()]
            paused.send_signal(signal.SIGSTOP)
            third = self.follow_leader("a pause of etcd's leader", begun)
            paused.send_signal(signal.SIGCONT)
            for index, process in enumerate(self.coordinators):
                if process.poll() is not None:
                    self.restart(index)
            wait_until(lambda: all(map(self.etcd.is_healthy, range(3))), 30, "etcd's former leader")

            begun = time.monotonic()
            third = self.leader()
            heal = self.cut_from_etcd(third)
            fourth = self.follow_leader("a partition from etcd", begun, (third,))
            self.expect_end(third, DEPOSED)
            heal()
            self.restart(third)

            self.assertEqual(clients.failures, [], "each call of a client is answered, if late")
            for member in (1, 2):
                self.etcd.members[member].kill()
                self.etcd.members[member].wait()
            self.expect_end(fourth, DEPOSED)
            self.restart(fourth)
            for member in (1, 2):
                self.etcd.restart(member)
            begun = time.monotonic()
            fifth = self.follow_leader("the return of most members of etcd", begun)

            begun = time.monotonic()
            self.coordinators[fifth].send_signal(signal.SIGTERM)
            self.follow_leader("SIGTERM", begun, (fifth,))
            self.expect_end(fifth, 0)
        finally:
            clients.stop()

        self.assertEqual(self.ranks()[0], pids, "the ranks run on")
        self.assertGreater(min(self.ranks()[1]), max(steps))
        now = self.job(job)
        self.assertEqual((now["state"], now["attempt"], now["faults"]), ("RUNNING", 1, []), now)

        submitted = {operation.name for operation in clients.history.operations if operation.kind == "submit" and operation.end}
        def all_ended():
            jobs = clients.list()
            return jobs and all(jobs[name]["state"] == "SUCCEEDED" for name in submitted if int(name.split("-")[1]) % 2) and jobs
        jobs = wait_until(all_ended, 60, "the submitted jobs")
        self.assertGreater(len(submitted), 0)
        self.assertEqual(violations(clients.history.operations), [])
        for path in (self.dir / "runs").iterdir():
            self.assertEqual((path.read_text(), jobs[path.name]["attempt"]), ("run\n", 1), path.name)

        # The reader of the log has each line once, although each leader had to get it again.
        last = self.ranks()[1][1]
        wait_until(lambda: f"step {last}." in logs.out_path.read_text(), 30, "the followed log")
        seen = [int(step) for step in re.findall(r"^step (\d+)\.$", logs.out_path.read_text(), re.M)]
        self.assertEqual(seen, list(range(len(seen))))
        self.muster("cancel", job, check=0)


class Standbys(SeveralCoordinators):
    def test_standby_names_the_leader_and_the_handover_is_clean(self):
        self.set_up_coordinators()
        leader = self.leader()
        standby = (leader + 1) % COUNT
        address = f"127.0.0.1:{self.ports[leader]}"
        wait_until(lambda: address in self.readiness(standby)[1], 30, "the standby's view")
        self.assertEqual(self.page_of(standby, "/healthz"), (200, f"standby of {address}\npage: 127.0.0.1:{self.http_ports[leader]}\n"))
        self.assertEqual(self.readiness(standby)[0], 503)
        self.assertIn("\nmuster_coordinator_leader 0\n", self.page_of(standby, "/metrics")[1])
        self.assertIn("\nmuster_coordinator_leader 1\n", self.page_of(leader, "/metrics")[1])
        self.assertNotIn("grpc_port", json.loads((self.dir / f"ports-{standby}").read_text()))
        self.assertEqual(json.loads((self.dir / f"ports-{leader}").read_text())["grpc_port"], self.ports[leader])
        # Only the leader listens: a list of the other addresses finds no coordinator.
        others = ",".join(f"127.0.0.1:{port}" for index, port in enumerate(self.ports) if index != leader)
        refused = self.muster("list", "--coordinator", others, check=1)
        self.assertIn(f"no coordinator answers at {others}", refused.stderr)
        self.assertEqual(self.muster("open", "--print", check=0).stdout, "http://127.0.0.1:7071/\n")
        self.coordinators[standby].send_signal(signal.SIGTERM)
        self.expect_end(standby, 0)
        self.assertFalse((self.dir / f"ports-{standby}").exists())

    def test_state_of_a_single_coordinator_moves_to_etcd_and_its_ranks_continue(self):
        self.etcd = EtcdCluster(self, members=1)
        port, http_port = free_ports(2)
        single = self.start_coordinator(listen=f"127.0.0.1:{port}")
        self.start_worker(single)
        job = json.loads(self.muster("submit", "--json", "--", "sleep", 600, check=0).stdout)["id"]
        wait_until(lambda: self.job(job)["state"] == "RUNNING", 60, "the job")
        flags = ("--listen", f"127.0.0.1:{port}", "--http", f"127.0.0.1:{http_port}", "--etcd", self.etcd.endpoints())
        move = (BIN / "muster-coordinator", "--state-dir", self.dir / "state", *flags, "--move-state-to-etcd")
        moving = self.start(*(str(word).replace(f":{port}", ":{0}".format(*free_ports(1))) for word in move))
        self.assertEqual(moving.wait(timeout=60), LOCKED, "the state is in use")
        single.terminate()
        single.wait()
        state = self.dir / "state/muster.db"
        ignoring = self.start(*move[:-1])
        self.assertEqual(ignoring.wait(timeout=60), STATE)
        self.assertIn("copy it to etcd by one start with --move-state-to-etcd", self.output(ignoring))
        self.assertEqual(self.start(*move).wait(timeout=60), 0)
        moved = state.with_name("muster.db.in-etcd")
        self.assertFalse(state.exists())
        self.assertEqual(self.start(*move).wait(timeout=60), 0, "a repeated move finds the state in etcd")
        lost = self.start(*move[:-1], "--etcd-prefix", "/other")
        self.assertEqual(lost.wait(timeout=60), STATE)
        self.assertIn(f"has no state under /other/, and {moved} is of a state in etcd", self.output(lost))
        moved.rename(state)
        again = self.start(*move)
        self.assertEqual(again.wait(timeout=60), REFUSED)
        self.assertIn("already has a state under /muster/", self.output(again))
        state.rename(moved)
        without = self.start(*move[:-3])
        self.assertEqual(without.wait(timeout=60), STATE)
        self.assertIn("the state of this coordinator is in etcd", self.output(without))
        self.start(*move[:-1])
        wait_until(lambda: self.muster("list").returncode == 0, 60, "the coordinator")
        wait_until(lambda: self.connected() == 1, 60, "the worker")
        now = self.job(job)
        self.assertEqual((now["state"], now["attempt"], now["faults"]), ("RUNNING", 1, []), now)
        self.muster("cancel", job, check=0)

    def test_state_leaves_a_lost_etcd_and_its_ranks_continue(self):
        self.etcd = EtcdCluster(self, members=1)
        port, http_port = free_ports(2)
        flags = (BIN / "muster-coordinator", "--state-dir", self.dir / "state", "--listen", f"127.0.0.1:{port}", "--http", f"127.0.0.1:{http_port}")
        several = ("--etcd", self.etcd.endpoints())
        leader = self.start(*flags, *several)
        self.env["MUSTER_COORDINATOR"] = f"127.0.0.1:{port}"
        wait_until(lambda: self.muster("list").returncode == 0, 60, "the coordinator")
        self.start(BIN / "muster-worker", "--coordinator", f"127.0.0.1:{port}", "--name", "w0", "--slots", "1", "--work-dir", self.dir / "work",
                   "--http", "127.0.0.1:0")
        wait_until(lambda: self.connected() == 1, 60, "the worker")
        job = json.loads(self.muster("submit", "--json", "--", "sleep", 600, check=0).stdout)["id"]
        wait_until(lambda: self.job(job)["state"] == "RUNNING", 60, "the job")
        last = json.loads(self.muster("submit", "--json", "--nodes", 9, "--", "true", check=0).stdout)["id"]
        self.etcd.members[0].kill()
        self.assertEqual(leader.wait(timeout=60), DEPOSED)
        single = self.start(*flags)
        self.assertEqual(single.wait(timeout=60), STATE)
        self.assertIn("run the last leader once with --leave-etcd", self.output(single))
        leaving = self.start(*flags, *several, "--leave-etcd")
        self.assertEqual(leaving.wait(timeout=60), 0, self.output(leaving))
        self.start(*flags)
        wait_until(lambda: self.muster("list").returncode == 0, 60, "the coordinator")
        wait_until(lambda: self.connected() == 1, 60, "the worker")
        now = self.job(job)
        self.assertEqual((now["state"], now["attempt"], now["faults"]), ("RUNNING", 1, []), now)
        self.assertEqual(self.job(last)["state"], "QUEUED", "acknowledged just before the loss")
        self.muster("cancel", job, check=0)

    def test_wrong_flags_are_named(self):
        def refused(*flags):
            done = subprocess.run([str(BIN / "muster-coordinator"), "--state-dir", str(self.dir / "s"), *map(str, flags)], capture_output=True,
                                  text=True, timeout=60)
            self.assertEqual(done.returncode, 2, done.stderr)
            return done.stderr
        etcd = ("--etcd", "http://127.0.0.1:1")
        self.assertIn("--listen=127.0.0.1:0: one of several coordinators needs a fixed port", refused(*etcd, "--listen", "127.0.0.1:0"))
        self.assertIn("--advertise=here: the port is missing", refused(*etcd, "--advertise", "here"))
        self.assertIn("--etcd", refused("--etcd-prefix", "/x"))
        self.assertIn("--etcd", refused("--etcd", "ftp://a:1"))


if __name__ == "__main__":
    unittest.main()
