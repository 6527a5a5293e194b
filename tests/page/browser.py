"""A browser for the tests of the page: the distribution's Chromium, driven by Playwright."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "e2e"))
from python_tools import python_or_skip  # noqa: E402

import fake_coordinator  # noqa: E402
import fleet_data  # noqa: E402

PAGES = ["#/", "#/nodes", "#/nodes/gpu-0011", "#/incidents", "#/incidents/12", "#/jobs/1", "#/jobs/1/mesh", "#/jobs/1/mesh?rank=27",
         "#/jobs/1/logs", "#/jobs/1/config", "#/jobs/1/config?with=2", "#/submit"]
# The title of each view, and an element that exists once its data has arrived.
CONTENT = {
    "": ("Fleet", ".goodput-plot rect.productive"),
    "nodes": ("Nodes", "tbody tr:not(.spacer)"),
    "nodes/N": ("Nodes", ".facts dd, .notice.warn"),
    "incidents": ("Incidents", "tbody tr:not(.spacer)"),
    "incidents/N": ("Incident", ".frames .frame"),
    "jobs/N": ("Job", ".chart canvas"),
    "mesh": ("Job", ".mesh-legend b"),
    "logs": ("Job", ".log .line"),
    "config": ("Job", ".config tbody tr"),
    "submit": ("Submit", "#command, #name"),
}
# Two frames: what was rendered in the first is on the screen.
DRAWN = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
SETTLE_ROUNDS_MAX = 200
QUIET_ROUNDS = 2
BROWSER_OPTIONS = ["--no-sandbox"]
TIMEOUT_MS = 90_000
ROLES = {role: role for role in fake_coordinator.ROLES}


def chromium_or_skip():
    """Returns the path of Chromium; skips the test if there is none."""
    found = os.environ.get("MUSTER_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    if not found:
        raise unittest.SkipTest("no Chromium: install the distribution's package chromium, or name a browser in MUSTER_CHROMIUM")
    return found


def playwright_or_skip():
    """Returns Playwright's synchronous API and axe's class, after installing them if necessary."""
    python = python_or_skip("playwright")
    where = subprocess.run([python, "-c", "import pathlib, playwright; print(pathlib.Path(playwright.__file__).parents[1])"], capture_output=True, text=True, check=True)
    sys.path.insert(0, where.stdout.strip())
    from playwright import sync_api
    return sync_api


class BrowserTest(unittest.TestCase):
    """Opens pages in a browser that all tests of a class share: each test has contexts of its own.

    A test fails if the page reports an error, throws, or sends a request to another host.
    """

    # Answers of the API; files are checked by their status.
    expected_console = re.compile(r"Failed to load resource|net::ERR_")

    @classmethod
    def setUpClass(cls):
        executable = chromium_or_skip()
        api = playwright_or_skip()
        cls.expect = staticmethod(api.expect)
        cls.expect.set_options(timeout=TIMEOUT_MS)
        playwright = api.sync_playwright().start()
        cls.addClassCleanup(playwright.stop)
        cls.browser = playwright.chromium.launch(executable_path=executable, args=BROWSER_OPTIONS)
        cls.addClassCleanup(cls.browser.close)

    def setUp(self):
        super().setUp()
        self.problems = []

    def new_tab(self, url, beside=None, **context):
        """Opens an empty tab for pages of the address `url`: in a new context, or beside a tab."""
        options = {"viewport": {"width": 1440, "height": 900}, "timezone_id": "UTC", "locale": "en-GB"}
        opened = beside.context if beside else self.browser.new_context(**options | context)
        if not beside:
            opened.set_default_timeout(TIMEOUT_MS)
            self.addCleanup(opened.close)
        page = opened.new_page()
        page.on("console", lambda message: self.problems.append(message.text) if message.type == "error" and not self.expected_console.search(message.text) else None)
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("dialog", lambda dialog: (self.problems.append(f"a dialog: {dialog.message}"), dialog.dismiss()))
        page.on("request", lambda request: None if request.url.startswith((url, "blob:", "data:")) else self.problems.append(f"a request to {request.url}"))
        page.on("response", self.check_file)
        return page

    def check_file(self, response):
        if response.status >= 400 and "/api/" not in response.url:
            self.problems.append(f"{response.status} {response.url}")

    def tearDown(self):
        super().tearDown()
        self.assertEqual(self.problems, [])


class PageTest(BrowserTest):
    """Serves the page from fleet_data in this process."""

    def serve(self, tokens=None, **size):
        self.coordinator = fake_coordinator.FakeCoordinator(fleet_data.FleetData(**size), tokens)
        self.addCleanup(self.coordinator.stop)
        return self.coordinator

    def open(self, address="#/", beside=None, **context):
        """Opens an address of the page in a new tab, and returns the tab."""
        page = self.new_tab(self.coordinator.url, beside, **context)
        # Ages are those of the data.
        page.clock.install(time=fleet_data.NOW_NS / 1e9)
        page.goto(self.coordinator.url + address)
        page.wait_for_selector("main h1, form.login", state="attached")
        return page

    def visit(self, page, address):
        """Opens another address in the same tab and waits until it shows the coordinator's data."""
        page.goto(self.coordinator.url + address)
        self.wait_for_content(page, address)

    def wait_for_content(self, page, address):
        """Waits until the view of the address shows the coordinator's data and stands still."""
        view = address.split("?")[0].strip("#/").split("/")
        kind = view[2] if len(view) > 2 else view[0] + ("/N" if len(view) > 1 else "")
        title, selector = CONTENT[kind]
        self.expect(page).to_have_title(re.compile(f"^{title}\\b"))
        page.wait_for_selector(selector, state="attached")
        self.settle(page)

    def settle(self, page):
        """Waits until several frames have been drawn without a request to the coordinator."""
        quiet = 0
        for _ in range(SETTLE_ROUNDS_MAX):
            before = self.coordinator.requests
            page.evaluate(DRAWN)
            quiet = quiet + 1 if self.coordinator.in_flight == 0 and self.coordinator.requests == before else 0
            if quiet == QUIET_ROUNDS:
                return
        self.fail("the page does not stop sending requests")
