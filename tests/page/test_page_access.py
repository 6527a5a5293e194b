"""WCAG 2.2 A and AA, checked by axe in both themes."""
import json
import unittest

from browser import PAGES, PageTest, ROLES

RULES = {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}
# The rules that depend on the theme: it changes colours only.
COLOUR_RULES = {"type": "rule", "values": ["color-contrast", "link-in-text-block"]}
FIND_VIOLATIONS = """async (rules) => {
  const found = await axe.run({ runOnly: rules, resultTypes: ["violations"] });
  return found.violations.map((one) => [one.id, one.help, one.nodes.slice(0, 3).map((node) => node.target)]);
}"""


class Access(PageTest):
    def violations(self, page, rules):
        from axe_playwright_python.sync_playwright import Axe
        if not page.evaluate("'axe' in window"):
            page.evaluate(Axe().axe_script)
        return [f"{rule}: {text}: {json.dumps(targets)}" for rule, text, targets in page.evaluate(FIND_VIOLATIONS, rules)]

    def check(self, page):
        """Checks all rules in the light theme, and colours in the dark one."""
        for theme, rules in (("light", RULES), ("dark", COLOUR_RULES)):
            page.emulate_media(color_scheme=theme)
            self.expect(page.locator("html")).to_have_attribute("data-theme", theme)
            self.assertEqual(self.violations(page, rules), [], theme)

    def test_views_have_no_violation(self):
        self.serve()
        page = self.open("#/", reduced_motion="reduce")
        for address in PAGES:
            with self.subTest(address):
                self.visit(page, address)
                self.check(page)
        self.visit(page, "#/jobs/1")
        page.get_by_role("button", name="Cancel…").click()
        self.check(page)

    def test_login_has_no_violation(self):
        self.serve(tokens=ROLES)
        page = self.open("#/", reduced_motion="reduce")
        page.get_by_label("Token").fill("wrong")
        page.get_by_role("button", name="Log in").click()
        self.expect(page.get_by_text("the token is not known")).to_be_visible()
        self.check(page)

    def test_violations_are_found(self):
        self.serve()
        page = self.open("#/")
        self.visit(page, "#/nodes")
        page.evaluate("""() => {
          const poor = document.querySelector("h1");
          poor.style.color = "#ddd";
          poor.style.background = "#fff";
          document.querySelector("main").append(document.createElement("button"));
        }""")
        self.assertRegex(" ".join(self.violations(page, RULES)), "button-name")
        self.assertRegex(" ".join(self.violations(page, COLOUR_RULES)), "color-contrast")


if __name__ == "__main__":
    unittest.main()
