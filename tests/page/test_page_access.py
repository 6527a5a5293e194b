"""WCAG 2.2 A and AA, checked by axe in both themes."""
import json
import unittest

from browser import PAGES, PageTest, ROLES

RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


class Access(PageTest):
    def violations(self, page):
        from axe_playwright_python.sync_playwright import Axe
        response = Axe().run(page, options={"runOnly": {"type": "tag", "values": RULES}}).response
        return [f"{one['id']}: {one['help']}: {json.dumps([node['target'] for node in one['nodes']][:3])}" for one in response["violations"]]

    def check(self, theme):
        self.serve()
        page = self.open("#/", color_scheme=theme)
        self.assertEqual(page.locator("html").get_attribute("data-theme"), theme)
        for address in PAGES:
            with self.subTest(address):
                self.visit(page, address)
                page.wait_for_timeout(300)
                self.assertEqual(self.violations(page), [])
        self.visit(page, "#/jobs/1")
        page.get_by_role("button", name="Cancel…").click()
        self.assertEqual(self.violations(page), [])

    def test_light_theme_has_no_violation(self):
        self.check("light")

    def test_dark_theme_has_no_violation(self):
        self.check("dark")

    def test_login_has_no_violation(self):
        self.serve(tokens=ROLES)
        for theme in ("light", "dark"):
            page = self.open("#/", color_scheme=theme)
            page.get_by_label("Token").fill("wrong")
            page.get_by_role("button", name="Log in").click()
            self.expect(page.get_by_text("the token is not known")).to_be_visible()
            self.assertEqual(self.violations(page), [])


if __name__ == "__main__":
    unittest.main()
