"""The page in a browser, with a real coordinator, workers and jobs: every action with its effect,
faults that the test causes, each role, and a restart.
"""
import concurrent.futures
import json
import os
import re
import signal
import ssl
import sys
import unittest

import trust
from harness import SOURCE, TINY, MusterTest, wait_until
from test_page import TOKENS, Browser, Events

sys.path.insert(0, str(SOURCE / "tests" / "page"))
from browser import BrowserTest  # noqa: E402

PROGRAM = """import os, time
for line in range(1_000_000):
    print("line", line, "of rank", os.environ["RANK"], flush=True)
    time.sleep(0.05)
"""
STEP_SECONDS = 60
VIEWERS = 20


@unittest.skipIf(trust.why_not(), trust.why_not())
class PageInBrowser(BrowserTest, MusterTest):
    def setUp(self):
        super().setUp()
        self.authority = trust.Authority(self.dir, "authority")
        self.certificate, self.key = self.authority.sign("coordinator")
        (self.dir / "tokens").mkdir()
        for role, token in TOKENS.items():
            (self.dir / "tokens" / role).write_text(token + "\n")
        self.env.update(MUSTER_TLS_CA=str(self.authority.certificate), MUSTER_TOKEN_FILE=str(self.dir / "tokens" / "admin"))
        self.coordinator = self.start_coordinator()
        self.port = self.coordinator.ports["http_port"]
        self.url = f"https://localhost:{self.port}/"
        self.context = ssl.create_default_context(cafile=str(self.authority.certificate))

    def start_coordinator(self, **kwargs):
        options = ("--tls-cert", self.certificate, "--tls-key", self.key, "--token-dir", self.dir / "tokens")
        return super().start_coordinator(extra=options, **kwargs)

    def start_worker(self, name, slots):
        options = ("--tls-ca", self.authority.certificate, "--token-file", self.dir / "tokens" / "worker")
        return super().start_worker(self.coordinator, name, slots, options)

    # Jobs ----------------------------------------------------------------------------------------

    def submit(self, name, *settings, ranks):
        """Starts a job of the trainer that trains until it is cancelled. Returns its number."""
        submitted = self.muster("submit", self.base_yml(), f"run_name={name}", f"base_output_directory={self.dir}/out", "dataset_type=synthetic",
                                *TINY, "steps=10000000", "checkpoint_period=10000000", "log_period=5", *settings, "--ranks", ranks, "--json", check=0)
        return json.loads(submitted.stdout)["id"]

    def step(self, job):
        ranks = self.job(job)["ranks"]
        return min((rank["step"] for rank in ranks), default=-1)

    def wait_for_step(self, job, step):
        wait_until(lambda: self.step(job) >= step, STEP_SECONDS, f"step {step} of job {job}")

    def shown(self, *command):
        return json.loads(self.muster(*command, "--json", check=0).stdout)

    # The page ------------------------------------------------------------------------------------

    def log_in(self, role, address="#/"):
        """Opens the page in a new context and logs in."""
        page = self.new_tab(self.url, ignore_https_errors=True)
        page.goto(self.url + address)
        page.get_by_label("Token").fill(TOKENS[role])
        page.get_by_role("button", name="Log in").click()
        self.expect(page.get_by_role("button", name=f"Log out {role}")).to_be_visible()
        self.expect(page.get_by_text("live", exact=True)).to_be_visible()
        return page

    def confirm(self, page, button, action, **fields):
        """Presses a button, fills in the dialog and confirms it."""
        page.get_by_role("button", name=button).click()
        dialog = page.get_by_role("dialog")
        for label, value in fields.items():
            dialog.get_by_label(label, exact=True).fill(value)
        dialog.get_by_role("button", name=action, exact=True).click()
        self.expect(dialog).to_have_count(0)

    def number(self, locator):
        """Returns the first number of a text on the page."""
        return int(re.search(r"\d[\d,]*", locator.first.inner_text())[0].replace(",", ""))

    def grows(self, page, locator):
        """Waits until the number of a text on the page is larger than now."""
        before = self.number(locator)

        def larger():
            page.wait_for_timeout(20)  # lets the browser's events be handled
            return self.number(locator) > before
        wait_until(larger, STEP_SECONDS, f"a number above {before}")

    def figure(self, page, label):
        return page.locator("dl.stats > div").filter(has=page.get_by_text(label, exact=True)).locator("dd")

    def test_a_job_is_followed_and_acted_on(self):
        self.start_worker("node0", 2)
        job = self.submit("followed", ranks=2)
        self.wait_for_step(job, 5)
        page = self.log_in("submitter")
        self.expect(self.figure(page, "Slots in use")).to_contain_text("2")
        row = page.get_by_role("region", name="Jobs table").locator("tbody tr").filter(has_text="followed")
        self.expect(row.get_by_text("running", exact=True)).to_be_visible()
        row.get_by_role("link", name="followed").click()

        # Curves grow by themselves.
        loss = page.get_by_role("img", name="Loss: from")
        self.expect(loss).to_be_visible()
        before = loss.get_attribute("aria-label")
        self.expect(loss).not_to_have_attribute("aria-label", before)
        self.grows(page, self.figure(page, "Step"))

        # Both ranks are in the mesh, and the keyboard chooses one.
        page.get_by_role("link", name="Mesh", exact=True).click()
        page.get_by_role("application").focus()
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowRight")
        self.expect(page.locator(".rank-details")).to_contain_text("rank 1 on node0")
        self.expect(page.get_by_role("group", name="Legend: phase")).to_contain_text("2")
        page.get_by_role("combobox", name="Colour").select_option("step")
        self.expect(page.get_by_role("group", name="Legend: step")).to_be_visible()

        # Logs arrive while one reads them, and are found.
        page.get_by_role("link", name="Logs", exact=True).click()
        self.expect(page.get_by_text("Following")).to_be_visible()
        self.expect(page.locator(".log .line").filter(has_text="completed step").first).to_be_visible()
        self.grows(page, page.locator(".log-note"))
        found = re.search(r"completed step: \d+,", page.locator(".log").inner_text())[0]
        page.get_by_label("Search lines").fill(found)
        self.expect(page.locator(".log .line")).to_have_count(1)
        self.expect(page.locator(".log .line mark")).to_have_text(found)

        # The requested checkpoint is on disk, and the page shows it.
        page.get_by_role("link", name="Overview").click()
        self.confirm(page, "Checkpoint now…", "Save")
        self.expect(page.get_by_text("A checkpoint with more than")).to_be_visible()
        saved = wait_until(lambda: max(self.job(job)["ranks"][0]["checkpoint_step"], 0), STEP_SECONDS, "the checkpoint")
        self.assertTrue((self.dir / "out/followed/checkpoints" / str(saved) / "manifest.json").exists())
        self.expect(self.figure(page, "Newest checkpoint")).to_contain_text(f"{saved:,}")

        self.confirm(page, "Read stacks…", "Read")
        self.expect(page.get_by_role("heading", name="Stacks of attempt 1")).to_be_visible()
        self.expect(page.locator(".frames .frame").first).to_be_visible()
        # The picture hides the frames that all ranks share; both may wait at one place.
        shared = page.get_by_role("button", name="frames that all ranks share")
        if shared.is_visible() and shared.inner_text().startswith("Show"):
            shared.click()
        self.expect(page.locator(".frames .frame").filter(has_text="muster::").first).to_be_visible()

        self.confirm(page, "Cancel…", "Cancel the job")
        self.expect(page.locator(".job-head .badge").get_by_text("cancelled")).to_be_visible()
        self.assertEqual(self.job(job)["state"], "CANCELLED")
        self.expect(page.get_by_role("button", name="Cancel…")).to_be_disabled()

    def test_incidents_name_the_rank_that_stops_or_dies(self):
        self.start_worker("node0", 3)
        job = self.submit("faulty", "restarts_max=2", ranks=3)
        self.wait_for_step(job, 5)
        page = self.log_in("viewer", f"#/jobs/{job}")
        os.kill(self.ranks_of_test()[2], signal.SIGSTOP)
        self.open_incident(page, 1, "hang", "rank 2")
        # The stopped rank has stacks of its own, which one finds by choosing a frame.
        self.expect(page.locator(".frames .frame").first).to_be_visible()
        frames = page.locator(".frames .frame")
        frames.first.click()
        self.expect(page.locator(".chosen")).to_contain_text("3 ranks: 0-2")
        self.expect(page.locator(".suspects li").first).to_contain_text("rank 2")
        # It was stopped before a collective or within one.
        self.expect(page.locator(".collectives tr.marked")).to_contain_text(re.compile("has not entered it|waits in it"))
        self.expect(page.locator(".collectives")).to_contain_text("waits in it")
        self.expect(page.locator(".last-lines summary").first).to_contain_text("rank 2: STEP after step")

        # The job continues; then a rank of its second attempt dies.
        wait_until(lambda: self.job(job)["attempt"] == 2 and self.step(job) >= 5, STEP_SECONDS, "attempt 2")
        page.goto(self.url + f"#/jobs/{job}")
        self.expect(self.figure(page, "Attempt")).to_contain_text("2")
        os.kill(self.ranks_of_test()[1], signal.SIGKILL)
        self.open_incident(page, 2, "rank died", "rank 1")
        self.expect(page.locator(".incident-sentence")).to_contain_text("signal 9")

        # A viewer may not act, also by a request of its own.
        page.goto(self.url + f"#/jobs/{job}")
        for button in ("Checkpoint now…", "Read stacks…", "Cancel…"):
            self.expect(page.get_by_role("button", name=button)).to_be_disabled()
        refused = page.evaluate("""async (job) => {
          const session = await (await fetch("api/v1/session")).json();
          const headers = { "Content-Type": "application/json", "X-Muster-CSRF": session.csrf };
          const answer = await fetch(`api/v1/jobs/${job}/cancel`, { method: "POST", headers, body: "{}" });
          return [answer.status, (await answer.json()).error.message];
        }""", job)
        self.assertEqual(refused[0], 403)
        self.assertIn("submitter", refused[1])
        self.assertNotEqual(self.job(job)["state"], "CANCELLED")

    def open_incident(self, page, number, kind, rank):
        """Waits until the job's view lists the incident, opens it, and compares it with the command
        line.
        """
        page.locator(f"a[href='#/incidents/{number}']").first.click()
        sentence = page.locator(".incident-sentence")
        self.expect(sentence).to_contain_text(rank)
        shown = self.shown("incident", "show", number)
        self.assertEqual((shown["kind"], shown["suspects"][0]["rank"]), (kind, int(rank.split()[1])))
        # The names of functions may follow the verdict.
        wait_until(lambda: self.shown("incident", "show", number)["sentence"] == sentence.inner_text() or page.wait_for_timeout(50), 30, "the same sentence")

    def test_jobs_are_submitted_and_nodes_are_excluded(self):
        self.start_worker("node0", 2)
        self.start_worker("node1", 2)
        (self.dir / "talk.py").write_text(PROGRAM)
        page = self.log_in("admin", "#/submit")
        page.get_by_label("Pasted command line").fill(f"GREETING='good day' torchrun --nproc-per-node 2 {self.dir}/talk.py")
        page.get_by_label("Name", exact=True).fill("no name")
        self.expect(page.locator(".check")).to_contain_text('name is "no name"')
        page.get_by_label("Name", exact=True).fill("pasted")
        page.get_by_label("Output folder").fill(f"{self.dir}/out")
        self.expect(page.locator(".check")).to_contain_text('working_directory is ""')
        page.get_by_label("Working directory").fill(str(self.dir))
        page.get_by_role("button", name="Submit", exact=True).click()
        self.expect(page.get_by_role("heading", level=1)).to_have_text("pasted")
        spec = self.job(1)["spec"]
        self.assertEqual((spec["command"], spec["ranks_per_node"], list(spec["environment"])), (["python3", f"{self.dir}/talk.py"], 2, ["GREETING"]))
        page.get_by_role("link", name="Logs", exact=True).click()
        self.expect(page.locator(".log .line").filter(has_text="of rank 1").first).to_be_visible()

        page.goto(self.url + "#/submit")
        page.get_by_label("Preset").select_option("A test on CPUs with 2 ranks")
        page.get_by_label("Name", exact=True).fill("preset")
        page.get_by_label("Command", exact=True).fill("true")
        page.get_by_label("Working directory").fill(str(self.dir))
        page.get_by_label("Output folder").fill(f"{self.dir}/other")
        page.get_by_role("button", name="Submit", exact=True).click()
        self.expect(page.locator(".job-head .badge").get_by_text("succeeded")).to_be_visible()
        self.assertEqual(self.job(2)["spec"]["ranks_per_node"], 2)

        # A node is excluded, which stops no rank, and admitted.
        node = self.job(1)["placement"][0]["worker"]
        page.goto(self.url + f"#/nodes/{node}")
        self.confirm(page, "Exclude…", "Exclude", Reason="its fan fails")
        self.expect(page.locator(".facts")).to_contain_text("its fan fails")
        self.assertEqual(self.exclusion_of(node)["reason"], "its fan fails")
        self.assertEqual(self.job(1)["state"], "RUNNING")
        self.expect(page.get_by_role("button", name="excluded 1")).to_be_visible()
        self.confirm(page, "Admit…", "Admit")
        self.expect(page.locator(".facts")).not_to_contain_text("its fan fails")
        self.assertIsNone(self.exclusion_of(node))

        # A submitter cancels jobs, but does not exclude nodes.
        other = self.log_in("submitter", f"#/nodes/{node}")
        self.expect(other.locator(".facts")).to_be_visible()
        self.expect(other.get_by_role("button", name="Exclude…")).to_be_disabled()
        other.goto(self.url + "#/jobs/1")
        other.get_by_role("button", name="Cancel…").click()
        other.get_by_label("Kill the ranks at once", exact=False).check()
        other.get_by_role("button", name="Cancel the job").click()
        self.expect(other.locator(".job-head .badge").get_by_text("cancelled")).to_be_visible()
        self.assertEqual(self.job(1)["state"], "CANCELLED")

    def exclusion_of(self, node):
        return next(one for one in self.shown("node", "list")["nodes"] if one["name"] == node).get("exclusion")

    def test_twenty_viewers_outlive_a_restart(self):
        self.start_worker("node0", 2)
        job = self.submit("outlives", ranks=2)
        self.wait_for_step(job, 5)
        page = self.log_in("viewer", f"#/jobs/{job}")
        page.evaluate("window.isSamePage = true")
        cookie = self.cookie("viewer")
        self.watch_at_once(cookie, job)
        self.coordinator.send_signal(signal.SIGKILL)
        self.coordinator.wait(timeout=30)
        self.expect(page.get_by_text("reconnecting…")).to_be_visible()
        # The last state remains on the page.
        self.expect(page.get_by_role("heading", level=1)).to_have_text("outlives")
        self.coordinator = self.start_coordinator(listen=self.coordinator.address, http=f"127.0.0.1:{self.port}")
        self.expect(page.get_by_text("live", exact=True)).to_be_visible()
        self.expect(page.locator(".job-head .badge").get_by_text("running")).to_be_visible()
        self.grows(page, self.figure(page, "Step"))
        self.assertEqual(self.job(job)["attempt"], 1)
        self.watch_at_once(cookie, job)
        self.assertTrue(page.evaluate("window.isSamePage"), "the page was loaded again")
        self.muster("cancel", job, "--force", check=0)
        self.expect(page.locator(".job-head .badge").get_by_text("cancelled")).to_be_visible()

    def cookie(self, role):
        browser = Browser(self.port, self.context)
        self.assertEqual(browser.post("/login", {"token": TOKENS[role]})[0], 200)
        return browser.cookie

    def watch_at_once(self, cookie, job):
        """Opens streams of many viewers; each must see a later step than the first that it got."""
        def watch(stream):
            first = stream.until("job")["ranks"][0]["step"]
            return stream.until("job", lambda data: data["ranks"] and data["ranks"][0]["step"] > first)
        streams = [Events(self.port, f"/events?job={job}", context=self.context, cookie=cookie) for _ in range(VIEWERS)]
        try:
            with concurrent.futures.ThreadPoolExecutor(VIEWERS) as pool:
                self.assertEqual(len(list(pool.map(watch, streams))), VIEWERS)
        finally:
            for stream in streams:
                stream.close()


if __name__ == "__main__":
    unittest.main()
