"""A hang from the first silence to its report, and stacks on demand and at intervals."""
import json
import os
import pathlib
import re
import signal
import sys
import unittest

from harness import BIN, TINY, MusterTest, forbid_tracing, wait_until
from python_tools import python_or_skip


class Incident(MusterTest):
    def submit(self, name, *settings, ranks=4):
        self.muster("submit", self.base_yml(), f"run_name={name}", f"base_output_directory={self.dir}/out", "dataset_type=synthetic",
                    *TINY, "steps=1000000", "enable_checkpointing=false", *settings, "--ranks", ranks, check=0)

    def steps_of(self, job):
        return [rank["step"] for rank in self.job(job)["ranks"]]

    def wait_for_steps(self, job, steps=5, ranks=4):
        wait_until(lambda: len(self.steps_of(job)) == ranks and min(self.steps_of(job)) >= steps, 60, f"{steps} steps of job {job}")

    def incidents(self, *job):
        return json.loads(self.muster("incident", "list", *job, "--json", check=0).stdout)["incidents"]

    def test_a_stopped_rank_is_named(self):
        coordinator = self.start_coordinator()
        self.start_worker(coordinator)
        self.assertIn("there is no incident 1", self.muster("incident", "show", 1, check=2).stderr)
        self.submit("hung", "restarts_max=1")
        self.wait_for_steps(1)
        os.kill(self.ranks_of_test()[2], signal.SIGSTOP)
        wait_until(lambda: self.incidents(1), 60, "an incident")
        self.assertEqual(self.incidents(2), [])
        # Function names may arrive a little later than the verdict.
        shown = wait_until(lambda: (lambda i: i if " in " in i["suspects"][0]["source"] else None)(
            json.loads(self.muster("incident", "show", 1, "--json", check=0).stdout)), 60, "names of places")
        self.assertEqual((shown["kind"], shown["job"], shown["attempt"]), ("hang", 1, 1))
        self.assertEqual(shown["suspects"][0]["rank"], 2, shown["suspects"])
        self.assertIn("rank 2", shown["sentence"])
        stopped = [rank for rank in shown["ranks"] if rank["rank"] == 2]
        self.assertEqual([rank["process_state"] for rank in stopped], ["T"])
        text = self.muster("incident", "show", 1, check=0).stdout
        for expected in ("incident 1: hang", "rank 2 on node0", "what happened", "stacks of main threads", "suspect)", "stopped (T)"):
            self.assertIn(expected, text)
        _, drawn = self.on_terminal(BIN / "muster", "incident", "show", 1)
        widest = max(len(line) for line in drawn.decode().replace("\x1b[31m", "").replace("\x1b[0m", "").splitlines())
        self.assertLessEqual(widest, 90, drawn.decode())  # the rest are other colours
        self.assertIn("muster incident show 1", self.output(coordinator))
        # Once, even if its record is written several times.
        self.assertEqual(self.output(coordinator).count("incident 1: "), 1)
        self.assertEqual(self.samples(coordinator)['muster_job_incidents_total{job_id="1",kind="hang",name="hung"}'], 1)
        # The job continues in another attempt and retains the incident.
        wait_until(lambda: self.job(1)["attempt"] == 2 and self.job(1)["state"] == "RUNNING", 60, "attempt 2")
        newest = self.incidents(1)[0]["id"]
        self.assertEqual(self.job(1)["incident"]["id"], newest)
        self.assertIn(f"newest incident: {newest}: ", self.muster("status", 1).stdout)
        self.assertNotEqual(self.ranks_of_test().get(2), stopped[0]["pid"])

    def test_incidents_outlive_the_coordinator(self):
        coordinator = self.start_coordinator()
        worker = self.start_worker(coordinator)
        self.submit("killed", "restarts_max=0", ranks=2)
        self.wait_for_steps(1, ranks=2)
        os.kill(self.ranks_of_test()[1], signal.SIGKILL)
        wait_until(lambda: self.job(1)["state"] == "FAILED", 30, "the end")
        before = self.muster("incident", "show", 1, "--json", check=0).stdout
        self.assertEqual(json.loads(before)["kind"], "rank died")
        self.assertEqual(json.loads(before)["suspects"][0]["rank"], 1)
        # The traces of the dead rank, and the state of the other one when it was stopped.
        self.assertEqual([rank["rank"] for rank in json.loads(before)["ranks"]], [1, 0])
        for rank in json.loads(before)["ranks"]:
            self.assertEqual(rank["page_problem"], "")
            self.assertGreaterEqual(rank["step"], 5)
            # The page of the dead rank may have been in the middle of a change.
            self.assertTrue(rank["groups"] or rank["rank"] == 1, rank)
        # The rank may have reported the loss of its peer before it was stopped.
        self.assertIn("completed step: ", "\n".join(json.loads(before)["ranks"][1]["last_lines"]))
        self.assertRegex(self.muster("incident", "show", 1).stdout, r"rank 1, pid \d+: (STEP|DATA) after step \d+")
        for process in (worker, coordinator):
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=20)
        self.start_coordinator()
        self.assertEqual(self.muster("incident", "show", 1, "--json", check=0).stdout, before)
        self.assertEqual(self.job(1)["incident"]["id"], 1)

    def test_stacks_of_a_running_job(self):
        coordinator = self.start_coordinator()
        self.start_worker(coordinator)
        self.assertIn("there is no job 1", self.muster("stacks", 1, check=2).stderr)
        self.submit("sampled")
        self.wait_for_steps(1)
        text = self.muster("stacks", 1, check=0).stdout
        self.assertIn("job 1, attempt 1: 4 ranks", text)
        self.assertIn("muster::", text)
        dump = json.loads(self.muster("stacks", 1, "--rank", 3, "--json", check=0).stdout)
        self.assertEqual([rank["rank"] for rank in dump["ranks"]], [3])
        mains = [one for one in dump["classes"] if one["thread"] == "main"]
        self.assertEqual([one["ranks"] for one in mains], [[[3, 3]]])
        self.assertIn("thread ", self.muster("stacks", 1, "--threads", check=0).stdout)
        self.assertIn("rank", self.muster("stacks", 1, "--rank", 4, check=2).stderr)
        watching = self.start(BIN / "muster", "stacks", 1, "--watch", "0.1", "--json")
        wait_until(lambda: len(watching.out_path.read_text().splitlines()) >= 3, 60, "three samples")
        before = max(self.steps_of(1))
        wait_until(lambda: max(self.steps_of(1)) > before, 30, "it trains on")
        self.assertEqual(self.job(1)["attempt"], 1)
        # On a busy machine heartbeats may be late, which is reported.
        self.assertEqual([i for i in self.incidents() if i["kind"] != "worker lost"], [], "a sample is no incident")
        self.muster("cancel", 1, "--force", check=0)
        self.assertEqual(watching.wait(timeout=60), 0, self.output(watching))
        for line in watching.out_path.read_text().splitlines():
            json.loads(line)
        self.assertIn("already ended", self.muster("stacks", 1, check=2).stderr)

    def test_dumps_of_programs_on_demand(self):
        # Acts as CUDA's driver is documented to: a write to its pipe requests a core file.
        script = self.dir / "train.py"
        script.write_text(
            "import os\n"
            "pid = str(os.getpid())\n"
            "pipe, core = (os.environ[name].replace('%p', pid) for name in ('CUDA_COREDUMP_PIPE', 'CUDA_COREDUMP_FILE'))\n"
            "os.mkfifo(pipe)\n"
            "while True:\n"
            "    with open(pipe) as request:\n"
            "        request.read()\n"
            "    with open(core, 'w') as file:\n"
            "        file.write('where each warp stands')\n")
        coordinator = self.start_coordinator()
        self.start_worker(coordinator)
        self.muster("submit", "--ranks", 2, "--", sys.executable, script, check=0)
        wait_until(lambda: len(list(self.dir.rglob("cuda-core-*.pipe"))) == 2, 60, "both pipes")
        self.assertNotIn("dump of its program", self.muster("stacks", 1, check=0).stdout)
        self.assertEqual([path for path in self.dir.rglob("cuda-core-*") if path.suffix != ".pipe"], [])
        text = self.muster("stacks", 1, "--rank", 1, "--dumps", check=0).stdout
        self.assertRegex(text, r"rank 1: a dump of its program: /.*/cuda-core-1-\d+ \(22 bytes\)")
        self.assertNotIn("rank 0", text)
        self.assertIn("excludes", self.muster("stacks", 1, "--dumps", "--watch", check=2).stderr)
        self.assertEqual(self.job(1)["attempt"], 1)

    def test_stacks_of_a_python_program(self):
        self.env["PATH"] += os.pathsep + str(pathlib.Path(python_or_skip("py-spy")).parent)
        script = self.dir / "train.py"
        script.write_text("import time\ndef load():\n    time.sleep(1000)\ndef step():\n    load()\nstep()\n")
        coordinator = self.start_coordinator()
        self.start_worker(coordinator)
        self.muster("submit", "--ranks", 2, "--", sys.executable, script, check=0)
        # When both sleep, their stacks are equal.
        text = wait_until(lambda: (lambda shown: shown if "2 ranks: 0-1" in shown and "load" in shown else None)(
            self.muster("stacks", 1).stdout), 60, "Python's frames")
        for frame in ("train.py:3 load", "train.py:5 step", "train.py:6 <module>"):
            self.assertIn(frame, text)

    def test_ranks_report_their_stacks_if_ptrace_is_refused(self):
        coordinator = self.start_coordinator()
        self.start_worker(coordinator, preexec_fn=forbid_tracing)
        self.submit("untraceable")
        self.wait_for_steps(1)
        # No tables describe how to leave generated code, so such a stack ends there.
        complete = set()
        def dump_stacks():
            dump = json.loads(self.muster("stacks", 1, "--threads", "--json", check=0).stdout)
            self.assertEqual([rank["stack_problem"] for rank in dump["ranks"]], [""] * 4, dump["ranks"])
            for rank in dump["ranks"]:
                self.assertIn("ptrace is not permitted", rank["stack_note"])
                self.assertIn("reported on a signal", rank["stack_note"])
            for one in dump["classes"]:
                if one["thread"] == "main" and "_start" in one["frames"][-1]["text"]:
                    complete.update(rank for first, last in one["ranks"] for rank in range(first, last + 1))
            return complete == {0, 1, 2, 3}
        wait_until(dump_stacks, 60, "a stack from _start of each rank")
        before = max(self.steps_of(1))
        wait_until(lambda: max(self.steps_of(1)) > before, 30, "it trains on")
        self.assertEqual(self.job(1)["attempt"], 1)
        self.muster("cancel", 1, "--force", check=0)

    def test_run_reports_a_hang_and_stores_its_incident(self):
        run = self.start_run("hung", "steps=1000000", "enable_checkpointing=false", "restarts_max=0")
        self.wait_for_step(run, 5)
        os.kill(self.ranks_of_test()[1], signal.SIGSTOP)
        self.assertEqual(run.wait(timeout=90), 1, self.output(run))
        printed = run.err_path.read_text()
        self.assertRegex(printed, r"hang: .*rank 1.* \(muster incident show 1 --coordinator 127\.0\.0\.1:\d+\)")
        retained = pathlib.Path(re.search(r"incident 1 is in (\S+)/incident-1\.txt", printed).group(1))
        self.assertTrue(retained.is_relative_to(self.dir / "out/hung"), retained)
        self.assertIn("rank 1 on local", (retained / "incident-1.txt").read_text())
        self.assertEqual(json.loads((retained / "incident-1.json").read_text())["suspects"][0]["rank"], 1)

    def test_incident_survives_a_killed_run(self):
        """A rank that does not wait for others is reported at once and stopped later. The report
        does not wait for the stop.
        """
        run = self.start_run("hung", "steps=1000000", "enable_checkpointing=false")
        self.wait_for_step(run, 5)
        os.kill(self.ranks_of_test()[1], signal.SIGSTOP)
        folder = wait_until(lambda: list(self.dir.glob("out/hung/muster/*/incident-1.txt")), 60, "the incident's file")[0].parent
        run.send_signal(signal.SIGINT)
        run.send_signal(signal.SIGINT)
        self.assertEqual(run.wait(timeout=30), 130, self.output(run))
        self.assertIn("rank 1 on local", (folder / "incident-1.txt").read_text())
        self.assertIn("incident 1 is in", self.output(run))

    def test_periodic_traces(self):
        traces = ["steps=1000000", "enable_checkpointing=false", "collect_stack_trace=True", "stack_trace_interval_seconds=1"]
        run = self.start_run("console", *traces, ranks=2)
        wait_until(lambda: "muster: stacks of rank 0, pid" in self.output(run), 60, "a trace of rank 0")
        wait_until(lambda: "muster: stacks of rank 1, pid" in self.output(run), 60, "a trace of rank 1")
        self.assertIn("thread main", self.output(run))
        self.wait_for_step(run, 5)
        run.send_signal(signal.SIGINT)
        run.wait(timeout=30)
        self.env["MUSTER_STACK_TRACE_DIR"] = str(self.dir / "debugging")
        run = self.start_run("agent", *traces, "stack_trace_to_cloud=True", ranks=2)
        file = self.dir / "debugging/stack_traces_job1_attempt1_local.jsonl"
        wait_until(lambda: file.exists() and file.read_text().count("\n") >= 4, 60, "two traces of two ranks")
        records = [json.loads(line) for line in file.read_text().splitlines()[:4]]
        self.assertEqual({record["rank"] for record in records}, {0, 1})
        self.assertTrue(all(record["verb"] == "stacktraceanalyzer" for record in records))
        self.assertIn("thread main", records[0]["message"])
        self.assertNotIn("muster: stacks of rank", self.output(run))
        run.send_signal(signal.SIGINT)
        run.wait(timeout=30)


if __name__ == "__main__":
    unittest.main()
