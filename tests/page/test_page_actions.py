"""The requests of the page: each button, for each role, and across a restart of the coordinator."""
import unittest

from browser import DRAWN, PageTest, ROLES, SETTLE_ROUNDS_MAX

# The page closes its streams after five seconds in the background.
SHORT_MS, LONG_MS = 1000, 6000


class Actions(PageTest):
    def confirm(self, page, button, action):
        page.get_by_role("button", name=button).click()
        page.get_by_role("dialog").get_by_role("button", name=action).click()

    def posts(self):
        return self.coordinator.posts

    def test_each_action_of_a_job_is_sent_after_a_confirmation(self):
        self.serve()
        page = self.open("#/jobs/1")
        page.get_by_role("button", name="Cancel…").click()
        page.get_by_role("button", name="Back").click()
        self.assertEqual(self.posts(), [])
        self.confirm(page, "Checkpoint now…", "Save")
        self.expect(page.get_by_text("more than 18,432 steps", exact=False)).to_be_visible()
        # The end of one dialog does not close the next one.
        self.confirm(page, "Checkpoint now…", "Save")
        page.get_by_role("button", name="Read stacks…").click()
        self.settle(page)
        page.get_by_role("dialog").get_by_role("button", name="Read").click()
        self.expect(page.get_by_role("heading", name="Stacks of attempt 2")).to_be_visible()
        page.get_by_role("button", name="Cancel…").click()
        page.get_by_label("Kill the ranks at once", exact=False).check()
        page.get_by_role("button", name="Cancel the job").click()
        self.expect(page.locator(".badge").get_by_text("cancelled")).to_be_visible()
        self.expect(page.get_by_role("button", name="Cancel…")).to_be_disabled()
        self.assertEqual(self.posts(), [("jobs/1/checkpoint", {}), ("jobs/1/checkpoint", {}), ("jobs/1/stacks", {"rank": -1}), ("jobs/1/cancel", {"force": True})])

    def test_node_is_excluded_and_admitted(self):
        self.serve()
        page = self.open("#/nodes/gpu-0004")
        page.get_by_role("button", name="Exclude…").click()
        page.get_by_label("Reason", exact=True).fill("fan fails")
        page.get_by_label("Hours").fill("1.5")
        page.get_by_label("Running ranks save", exact=False).check()
        page.get_by_role("button", name="Exclude", exact=True).click()
        self.expect(page.get_by_text("user: fan fails, since", exact=False)).to_be_visible()
        self.confirm(page, "Admit…", "Admit")
        self.expect(page.get_by_text("user: fan fails, since", exact=False)).to_have_count(0)
        self.assertEqual(self.posts(), [("nodes/gpu-0004/exclude", {"reason": "fan fails", "seconds": 5400, "evacuate": True}), ("nodes/gpu-0004/admit", {})])

    def test_node_of_a_suspect_is_excluded_from_the_mesh(self):
        self.serve()
        page = self.open("#/incidents/12")
        page.get_by_role("link", name="in the mesh").first.click()
        page.get_by_role("button", name="Exclude node…").click()
        page.get_by_label("Reason", exact=True).fill("holds up others")
        page.get_by_role("button", name="Exclude", exact=True).click()
        self.expect(page.get_by_text("The node is excluded: holds up others")).to_be_visible()
        self.assertEqual(self.posts(), [("nodes/gpu-0003/exclude", {"reason": "holds up others", "seconds": 0, "evacuate": False})])

    def test_refusals_are_shown(self):
        self.serve()
        page = self.open("#/jobs/1")
        self.expect(page.get_by_role("button", name="Cancel…")).to_be_enabled()
        del self.coordinator.data.rows[1]
        self.confirm(page, "Cancel…", "Cancel the job")
        self.expect(page.get_by_role("dialog").get_by_text("no job 1")).to_be_visible()

    def test_roles_decide_which_actions_are_enabled(self):
        self.serve(tokens=ROLES)
        page = self.open("#/jobs/1")
        self.expect(page.get_by_role("heading", name="Log in")).to_be_visible()
        page.get_by_label("Token").fill("wrong")
        page.get_by_role("button", name="Log in").click()
        self.expect(page.get_by_text("the token is not known")).to_be_visible()
        for role in ROLES:
            page.get_by_label("Token").fill(role)
            page.get_by_role("button", name="Log in").click()
            may_cancel, may_exclude = role != "viewer", role == "admin"
            cancel = page.get_by_role("button", name="Cancel…")
            self.expect(cancel).to_be_enabled(enabled=may_cancel)
            self.assertEqual(page.evaluate("document.cookie"), "")
            self.visit(page, "#/nodes/gpu-0011")
            self.expect(page.get_by_text("gpu fault: GPU 3", exact=False).first).to_be_visible()
            self.expect(page.get_by_role("button", name="Exclude…")).to_be_enabled(enabled=may_exclude)
            self.expect(page.get_by_role("button", name="Admit…")).to_be_enabled(enabled=may_exclude)
            self.visit(page, "#/submit")
            self.expect(page.get_by_text("This needs the role submitter", exact=False)).to_have_count(0 if may_cancel else 1)
            page.get_by_role("button", name="Log out", exact=False).click()
            self.expect(page.get_by_role("heading", name="Log in")).to_be_visible()
            page.goto(self.coordinator.url + "#/jobs/1")
        self.assertEqual(self.posts(), [])

    def test_program_is_submitted_from_a_pasted_line(self):
        self.serve()
        page = self.open("#/submit")
        self.expect(page.get_by_text("Command: enter the program", exact=False)).to_be_visible()
        page.get_by_label("Pasted command line").fill("OMP_NUM_THREADS=4 torchrun --nproc-per-node 8 --nnodes=2 train.py --name 'a b'")
        self.expect(page.get_by_label("Command", exact=True)).to_have_value("python3 train.py --name 'a b'")
        self.expect(page.get_by_text('name is ""', exact=False)).to_be_visible()
        page.get_by_label("Name", exact=True).fill("pasted")
        page.get_by_label("User", exact=True).fill("ada")
        self.expect(page.get_by_text('working_directory is ""', exact=False)).to_be_visible()
        page.get_by_label("Working directory").fill("/home/ada")
        self.expect(page.get_by_text('output_directory is ""', exact=False)).to_be_visible()
        submit = page.get_by_role("button", name="Submit", exact=True)
        self.expect(submit).to_be_disabled()
        page.get_by_label("Output folder").fill("/scratch/out")
        self.expect(page.get_by_text("The coordinator would accept this job.")).to_be_visible()
        self.expect(page.locator("form .command-line code")).to_have_text("muster submit --name pasted --nodes 2 --ranks-per-node 8 --restarts 3 --working-directory /home/ada --output /scratch/out --env OMP_NUM_THREADS=4 -- python3 train.py --name 'a b'")
        submit.click()
        self.expect(page.get_by_role("heading", level=1)).to_have_text("pasted")
        (path, body), = self.posts()
        self.assertEqual(path, "jobs")
        self.assertEqual(body["spec"], {"name": "pasted", "user": "ada", "working_directory": "/home/ada", "output_directory": "/scratch/out", "nodes": 2, "ranks_per_node": 8, "gpus_per_rank": -1, "restarts_max": 3, "priority": 0, "spares": 0, "min_nodes": 0,
                                        "hang_after_seconds": 0, "command": ["python3", "train.py", "--name", "a b"], "environment": {"OMP_NUM_THREADS": "4"}})
        self.assertRegex(body["request_id"], r"^[0-9a-f]{32}$")

    def test_config_of_other_programs_becomes_a_command(self):
        self.serve()
        page = self.open("#/submit")
        pasted = page.get_by_label("Pasted command line")
        for line, dialect in (("python3 MaxText/train.py MaxText/configs/base.yml model_name=llama2-7b", "MaxText"), ("--fdl_config=paxml.contrib.gpu.scripts_gpu.configs.Synthetic126M --fdl.MAX_STEPS=100", "Pax"),
                              ("--module=text.gpt.c4_trainer --config=fuji-7B-v2-flash-single-host", "AXLearn")):
            pasted.fill(line)
            self.expect(page.get_by_text(f"This is a config of {dialect}", exact=False)).to_be_visible()
            self.expect(page.get_by_text(f"muster submit {line}", exact=False)).to_be_visible()
        pasted.fill("python3 'train.py")
        self.expect(page.get_by_text("The quote ' is not closed.")).to_be_visible()

    def test_earlier_job_is_submitted_again(self):
        data = self.serve().data
        data.text = lambda ordinary: "/runs/again" if ordinary.startswith("s3://runs") else ordinary
        page = self.open("#/submit?from=2")
        self.expect(page.get_by_text("The train config is that of job 2", exact=False)).to_be_visible()
        self.expect(page.get_by_text("NCCL_DEBUG", exact=False)).to_be_visible()
        page.get_by_label("Name", exact=True).fill("again")
        page.get_by_role("button", name="Submit", exact=True).click()
        self.expect(page.get_by_role("heading", level=1)).to_have_text("again")
        (_, body), = self.posts()
        self.assertEqual(body["spec"]["train_config"]["learning_rate"], 1e-4)
        self.assertEqual(body["spec"]["environment"], {})

    def test_hidden_tabs_leave_the_connections_to_others(self):
        """A browser has six connections for all tabs of a host."""
        self.serve().event_seconds = 0.1
        tabs = []
        for job in range(1, 8):
            tab = self.open(f"#/jobs/{job}/logs", beside=tabs[0] if tabs else None)
            self.expect(tab.get_by_text("live", exact=True)).to_be_visible()
            self.hide(tab, LONG_MS)
            tabs.append(tab)
        self.expect(tabs[-1].get_by_role("heading", level=1)).to_have_text(self.coordinator.data.rows[7]["name"])
        self.wait_for_streams(tab, 0)
        self.show(tabs[0], True)
        self.expect(tabs[0].get_by_text("live", exact=True)).to_be_visible()
        self.wait_for_streams(tab, 2)
        # A tab that is hidden for a moment keeps its streams.
        opened = self.coordinator.streams_opened
        self.hide(tabs[0], SHORT_MS)
        self.show(tabs[0], True)
        tabs[0].clock.run_for(LONG_MS)
        self.expect(tabs[0].get_by_text("live", exact=True)).to_be_visible()
        self.assertEqual((self.coordinator.streams, self.coordinator.streams_opened), (2, opened))

    def show(self, tab, visible):
        """Makes the page believe that its tab is in front, or in the background."""
        tab.evaluate("""(visible) => {
          Object.defineProperty(document, "hidden", { value: !visible, configurable: true });
          document.dispatchEvent(new Event("visibilitychange"));
        }""", visible)

    def hide(self, tab, milliseconds):
        self.show(tab, False)
        tab.clock.run_for(milliseconds)

    def wait_for_streams(self, tab, count):
        for _ in range(SETTLE_ROUNDS_MAX):
            if self.coordinator.streams == count:
                return
            tab.evaluate(DRAWN)
        self.fail(f"{self.coordinator.streams} streams are open, not {count}")

    def test_page_survives_a_restart_of_the_coordinator(self):
        data = self.serve().data
        page = self.open("#/jobs/1")
        self.expect(page.get_by_text("live", exact=True)).to_be_visible()
        self.coordinator.stop()
        self.expect(page.get_by_text("reconnecting…")).to_be_visible()
        self.expect(page.get_by_role("heading", level=1)).to_have_text(data.rows[1]["name"])
        data.rows[1]["state"] = "SUSPECT"
        self.coordinator.start()
        self.expect(page.get_by_text("live", exact=True)).to_be_visible()
        self.expect(page.locator(".badge").get_by_text("suspect")).to_be_visible()
        # The CSRF value is another one now.
        self.confirm(page, "Checkpoint now…", "Save")
        self.expect(page.get_by_text("more than 18,432 steps", exact=False)).to_be_visible()
        self.assertEqual(len(self.posts()), 1)


if __name__ == "__main__":
    unittest.main()
