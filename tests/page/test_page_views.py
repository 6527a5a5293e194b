"""Each view of the page with the objects of fleet_data."""
import re
import unittest

from browser import DRAWN, PAGES, SETTLE_ROUNDS_MAX, PageTest


class Views(PageTest):
    def rows(self, page, label):
        return page.get_by_role("region", name=f"{label} table", exact=True).locator("tbody tr:not(.spacer)")

    def await_points(self, page, count):
        """Waits until the page has drawn so many more events of the job."""
        self.coordinator.event_seconds = 0.1
        points = self.coordinator.data.points
        sent = len(points) + count
        for _ in range(SETTLE_ROUNDS_MAX):
            if len(points) >= sent:
                break
            page.evaluate(DRAWN)
        self.assertGreaterEqual(len(points), sent)

    def test_fleet_filters_searches_and_sorts_jobs_by_address(self):
        data = self.serve().data
        page = self.open("#/")
        self.expect(page.locator("dl.stats dd").filter(has_text="of 512: 48 free")).to_contain_text("448")
        queued = [row for row in data.rows.values() if row["state"] == "QUEUED"]
        page.get_by_role("button", name=f"queued {len(queued)}").click()
        self.expect(self.rows(page, "Jobs")).to_have_count(len(queued))
        self.assertIn("state=QUEUED", page.url)
        page.reload()
        self.expect(self.rows(page, "Jobs")).to_have_count(len(queued))
        self.expect(self.rows(page, "Jobs").first.get_by_text("free slots", exact=False)).to_be_visible()
        # In the order in which they are placed.
        order = sorted(queued, key=lambda row: (-row["priority"], row["id"]))
        self.assertGreater(len({row["priority"] for row in queued}), 1)
        for place, row in enumerate(order):
            self.expect(self.rows(page, "Jobs").nth(place)).to_contain_text(re.compile(f"^{place + 1}{row['id']}"))
        page.get_by_role("button", name="all 24").click()
        page.get_by_role("searchbox").fill("ADA running")
        self.expect(self.rows(page, "Jobs")).to_have_count(0)
        page.get_by_role("searchbox").fill("llama2 ken")
        self.expect(self.rows(page, "Jobs")).to_have_count(sum("llama2" in row["name"] and row["user"] == "ken" for row in data.rows.values()))
        page.get_by_role("searchbox").fill("")
        page.get_by_role("button", name="Loss").click()
        self.expect(page.get_by_role("columnheader", name="Loss")).to_have_attribute("aria-sort", "descending")
        largest = max(row["loss"] or 0 for row in data.rows.values())
        self.expect(self.rows(page, "Jobs").first.get_by_text(f"{largest:.3f}")).to_be_visible()

    def test_tables_of_a_large_fleet_create_only_visible_rows(self):
        self.serve(jobs=1000, nodes=12_500)
        page = self.open("#/nodes")
        table = page.get_by_role("table")
        self.expect(table).to_have_attribute("aria-rowcount", "12501")
        # So many nodes are loaded every two minutes.
        self.expect(page.get_by_text("12,500 nodes at 20:00:", exact=False)).to_be_visible()
        self.assertLess(self.rows(page, "Nodes").count(), 80)
        page.get_by_role("region", name="Nodes table", exact=True).evaluate("element => { element.scrollTop = element.scrollHeight; }")
        self.expect(page.get_by_role("link", name="gpu-12499")).to_be_visible()
        page.get_by_role("searchbox").fill("xid 79")
        self.expect(table).to_have_attribute("aria-rowcount", "404")
        page.goto(self.coordinator.url + "#/")
        self.expect(page.get_by_role("table")).to_have_attribute("aria-rowcount", "1001")
        self.assertLess(self.rows(page, "Jobs").count(), 80)

    def test_changes_of_the_fleet_appear_without_a_reload(self):
        data = self.serve().data
        page = self.open("#/")
        row = self.rows(page, "Jobs").filter(has_text="llama3-70b-pretrain-24")
        self.expect(row.get_by_text("running", exact=True)).to_be_visible()
        data.rows[24] |= {"state": "SUSPECT", "reason": "no rank has made progress for 9 s"}
        self.expect(row.get_by_text("suspect", exact=True)).to_be_visible()

    def test_job_shows_curves_that_zoom_together(self):
        data = self.serve().data
        page = self.open("#/jobs/1")
        self.expect(page.get_by_role("img", name="Loss: from", exact=False)).to_be_visible()
        self.assertEqual(page.locator(".chart").count(), 6)
        page.get_by_label("Smoothing").select_option("strong")
        self.expect(page.locator(".chart .u-over")).to_have_count(6)
        box = page.locator(".chart .u-over").first.bounding_box()
        page.mouse.move(box["x"] + 60, box["y"] + 40)
        page.mouse.down()
        page.mouse.move(box["x"] + 200, box["y"] + 50, steps=4)
        page.mouse.up()
        reset = page.get_by_role("button", name="Reset zoom")
        self.expect(reset).to_be_enabled()
        reset.click()
        self.expect(reset).to_be_disabled()
        # Live points arrive while another view is shown; the curve begins where it began before.
        largest = max(point["loss"] for point in data.points)
        page.get_by_role("link", name="Mesh", exact=True).click()
        self.await_points(page, 3)
        page.get_by_role("link", name="Overview").click()
        self.expect(page.get_by_role("img", name=f"to {largest:.3f}, last", exact=False).first).to_be_visible()
        for text in ("recomputing after hang", "rank 27 on gpu-0003 holds up 511 ranks", "18,250 steps, 182 steps ago", "+6.4%", "66.3 GiB", "rank 27 on gpu-0003 ended by signal 9"):
            self.expect(page.get_by_text(text, exact=False).first).to_be_visible()

    def test_mesh_names_rank_and_node_by_pointer_and_keys(self):
        self.serve()
        page = self.open("#/jobs/1/mesh")
        canvas = page.get_by_role("application")
        self.expect(canvas).to_be_visible()
        self.expect(page.get_by_role("group", name="Legend: phase").get_by_text("EVAL")).to_be_visible()
        for layout in ("by mesh axes", "by node and switch", "by rank"):
            page.get_by_label("Layout").select_option(layout)
            page.wait_for_function("() => document.querySelector('.mesh-canvas').width > 0")
        canvas.focus()
        page.keyboard.press("ArrowRight")
        self.expect(page.get_by_text("rank 0 on gpu-0000, local rank 0")).to_be_visible()
        page.keyboard.press("ArrowRight")
        self.expect(page.get_by_text("rank 1 on gpu-0000, local rank 1")).to_be_visible()
        self.expect(page.get_by_text("GPUs of the node: 8 × NVIDIA H100 80GB HBM3")).to_be_visible()
        page.keyboard.press("Escape")
        page.get_by_role("button", name="rank 27").click()
        self.expect(page.locator(".rank-details").get_by_text("data 0, pipeline 3, tensor 3")).to_be_visible()
        for _ in range(2):
            page.get_by_role("button", name="Zoom in").click()
        page.get_by_role("button", name="Fit").click()
        box = canvas.bounding_box()
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        self.expect(page.locator(".tip").get_by_text("rank", exact=False).first).to_be_visible()
        page.get_by_role("combobox", name="Colour").select_option("straggler")
        self.expect(page.get_by_role("group", name="Legend: straggler score")).to_contain_text("1.42×")

    def test_rank_chosen_in_the_mesh_does_not_change_the_next_page(self):
        self.serve()
        page = self.open("#/jobs/1/mesh")
        page.get_by_role("application").focus()
        # A slow browser shows the next page later than the address has changed.
        page.clock.install()
        page.keyboard.press("ArrowRight")
        self.expect(page.get_by_text("rank 0 on gpu-0000, local rank 0")).to_be_visible()
        page.evaluate("history.replaceState(null, '', '#/jobs/1/logs')")
        page.clock.run_for(1000)
        self.assertTrue(page.url.endswith("#/jobs/1/logs"), page.url)

    def test_incident_shows_the_ranks_of_a_frame(self):
        self.serve()
        page = self.open("#/incidents/12")
        self.expect(page.get_by_role("heading", level=1)).to_contain_text("rank 27 on gpu-0003 holds up 511 ranks")
        for text in ("87%", "has not entered it", "unnoticed", "64.200", "Cable error", "1m 04s"):
            self.expect(page.get_by_text(text, exact=False).first).to_be_visible()
        page.get_by_role("button", name="muster::trainer::comm::AllReduce::wait()", exact=False).click()
        self.expect(page.locator(".chosen")).to_contain_text("511 ranks: 0-26, 28-511")
        page.get_by_role("link", name="Logs of the attempt").click()
        self.expect(page.get_by_label("Rank")).to_have_value("27")
        page.goto(self.coordinator.url + "#/incidents/999")
        self.expect(page.get_by_text("There is no incident 999", exact=False)).to_be_visible()

    def test_logs_collapse_lines_and_find_text(self):
        self.serve()
        page = self.open("#/jobs/1/logs")
        lines = page.locator(".log .line")
        self.expect(lines.filter(has_text="× 16").filter(has_text="completed step").first).to_be_visible()
        page.get_by_label("Search lines").fill("shard 412")
        self.expect(page.get_by_text("15 lines of 210", exact=False)).to_be_visible()
        with page.expect_download() as download:
            page.get_by_role("button", name="Download").click()
        written = download.value.path().read_text().splitlines()
        self.assertEqual(len(written), 15)
        self.assertIn("[1-15] data: shard 412 of 4096 begins", written[0])
        page.get_by_label("Search lines").fill("")
        page.get_by_label("Rank").fill("3")
        page.get_by_label("Rank").press("Enter")
        self.expect(page.get_by_text("120 lines.", exact=False)).to_be_visible()

    def test_log_of_an_ended_job_has_an_end(self):
        data = self.serve().data
        ended = next(job for job, row in data.rows.items() if row["state"] == "SUCCEEDED")
        page = self.open(f"#/jobs/{ended}/logs")
        self.expect(page.get_by_text("The job has ended")).to_be_visible()
        self.expect(page.get_by_text("210 lines.", exact=False)).to_be_visible()
        opened = self.coordinator.streams_opened
        page.clock.run_for(10_000)
        self.settle(page)
        self.assertEqual(self.coordinator.streams_opened, opened, "the log was opened again")

    def test_requests_to_a_busy_coordinator_are_repeated(self):
        self.serve().busy = {"incidents": 2, "jobs/1/history": 1, "jobs/1/metrics": 1}
        page = self.open("#/incidents")
        self.expect(page.get_by_text("the coordinator is busy", exact=False)).to_be_visible()
        # Retry-After is two seconds.
        for _ in range(2):
            page.clock.run_for(2500)
            self.settle(page)
        self.expect(self.rows(page, "Incidents")).to_have_count(12)
        self.expect(page.get_by_text("the coordinator is busy", exact=False)).to_have_count(0)
        page.goto(self.coordinator.url + "#/jobs/1")
        page.clock.run_for(10_000)
        self.expect(page.get_by_role("img", name="Loss: from", exact=False)).to_be_visible()
        self.expect(page.get_by_role("region", name="Attempts table").locator("tbody tr")).to_have_count(2)

    def test_config_differs_from_another_job(self):
        self.serve()
        page = self.open("#/jobs/1/config")
        table = page.get_by_role("region", name="Config table")
        self.expect(table.get_by_text("optimizer.weight_decay")).to_be_visible()
        field = page.get_by_label("Compare with job")
        field.fill("2")
        # Live figures draw the page again, and the typed number stays.
        self.await_points(page, 3)
        self.expect(field).to_have_value("2")
        field.press("Enter")
        row = table.locator("tr").filter(has_text="learning_rate")
        self.expect(row).to_contain_text("0.0003")
        self.expect(row).to_contain_text("0.0001")
        self.expect(table.get_by_text("optimizer.weight_decay")).to_have_count(0)

    def test_times_are_in_the_viewers_zone(self):
        self.serve()
        page = self.open("#/incidents/12", timezone_id="Asia/Tokyo")
        self.expect(page.get_by_text("30 Nov 2026", exact=False).first).to_be_visible()

    def test_no_view_is_wider_than_a_phone(self):
        self.serve()
        page = self.open("#/", viewport={"width": 360, "height": 740}, has_touch=True)
        for address in PAGES:
            with self.subTest(address):
                self.visit(page, address)
                self.assertLessEqual(page.evaluate("document.documentElement.scrollWidth"), 360)

    def test_everything_is_reached_by_keys(self):
        self.serve()
        page = self.open("#/")
        self.expect(self.rows(page, "Jobs").first).to_be_visible()
        page.keyboard.press("Tab")
        self.expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
        page.keyboard.press("Enter")
        self.expect(page.locator("main")).to_be_focused()
        first = self.rows(page, "Jobs").first.get_by_role("link")
        first.focus()
        page.keyboard.press("ArrowDown")
        self.expect(self.rows(page, "Jobs").nth(1).get_by_role("link")).to_be_focused()
        page.keyboard.press("Enter")
        self.expect(page.get_by_role("heading", level=1)).to_contain_text("moe-64e-capacity-23")
        page.get_by_role("button", name="Checkpoint now…").focus()
        page.keyboard.press("Enter")
        self.expect(page.get_by_role("dialog")).to_be_visible()
        page.keyboard.press("Escape")
        self.expect(page.get_by_role("dialog")).to_have_count(0)
        self.expect(page.get_by_role("button", name="Checkpoint now…")).to_be_focused()
        page.get_by_label("Theme").select_option("dark")
        self.expect(page.locator("html")).to_have_attribute("data-theme", "dark")
        page.reload()
        self.expect(page.locator("html")).to_have_attribute("data-theme", "dark")


if __name__ == "__main__":
    unittest.main()
