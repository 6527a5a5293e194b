"""Texts of users and programs that try to do harm, in every field that the page shows."""
import unittest

from browser import PAGES, PageTest

# Marks that reverse or hide text, terminal sequences and other control characters.
HARMFUL = r"[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff]"
# Parts of the hostile texts as a reader sees them.
VISIBLE = r"window\.hacked|gnp\.exe|U\+202E|aaaaaaaaaa"
FIND_HARM = """pattern => {
  const harmful = new RegExp(pattern, "u");
  const found = [];
  const walker = document.createTreeWalker(document.documentElement, NodeFilter.SHOW_ELEMENT | NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    if (node.nodeType === Node.TEXT_NODE && harmful.test(node.data)) found.push(`text ${JSON.stringify(node.data.slice(0, 60))}`);
    if (node.nodeType !== Node.ELEMENT_NODE) continue;
    for (const attribute of node.attributes) {
      if (attribute.name.startsWith("on")) found.push(`${node.tagName} has ${attribute.name}`);
      if (harmful.test(attribute.value)) found.push(`${attribute.name}=${JSON.stringify(attribute.value.slice(0, 60))}`);
      if (["href", "src", "action"].includes(attribute.name) && /^\\s*(javascript|data|vbscript):/i.test(attribute.value)) found.push(`${attribute.name}=${attribute.value.slice(0, 60)}`);
    }
    if (["SCRIPT", "IFRAME", "OBJECT", "EMBED", "BASE"].includes(node.tagName) && !node.src?.endsWith("/js/main.js")) found.push(node.tagName);
    if (node.tagName === "IMG") found.push("an image");
  }
  return found;
}"""


class Texts(PageTest):
    def harm(self, page):
        return page.evaluate(FIND_HARM, HARMFUL) + (["a script ran"] if page.evaluate("window.hacked !== undefined") else [])

    def test_no_field_is_parsed_as_html_or_reverses_text(self):
        node = self.serve(hostile=True).data.nodes[11]["name"]
        page = self.open("#/", viewport={"width": 1800, "height": 1400})
        for address in [*PAGES, "#/jobs/5/config", "#/submit?from=3"]:
            with self.subTest(address):
                self.visit(page, address)
                if not address.startswith("#/submit"):
                    self.assertRegex(page.locator("body").inner_text(), VISIBLE)
                self.assertEqual(self.harm(page), [])
                self.assertLessEqual(page.evaluate("document.documentElement.scrollWidth"), 1800)
        self.visit(page, "#/nodes")
        page.evaluate("name => { location.hash = `#/nodes/${encodeURIComponent(name)}`; }", node)
        self.expect(page.get_by_text("until it is admitted", exact=False)).to_be_visible()
        self.assertEqual(self.harm(page), [])

    def test_dialogs_and_reports_show_texts_only(self):
        self.serve(hostile=True)
        page = self.open("#/jobs/1")
        for button, action in (("Checkpoint now…", "Save"), ("Read stacks…", "Read")):
            page.get_by_role("button", name=button).click()
            self.assertEqual(self.harm(page), [])
            page.get_by_role("dialog").get_by_role("button", name=action).click()
            self.expect(page.get_by_role("dialog")).to_have_count(0)
        self.expect(page.get_by_role("heading", name="Stacks of attempt 2")).to_be_visible()
        page.get_by_role("button", name="Cancel…").click()
        self.assertEqual(self.harm(page), [])

    def test_addresses_are_harmless(self):
        self.serve()
        page = self.open("#/")
        for address in ("#/jobs/<img src=x onerror=window.hacked=1>", "#/nodes/%3Cscript%3Ewindow.hacked=1%3C%2Fscript%3E", "#/?q=<svg onload=window.hacked=1>&state=<b>", "#/incidents/1e9", "#/%ff%/%", "#/jobs/1/mesh?by=__proto__&down=constructor&layout=x&rank=-5",
                        "#/jobs/1/logs?rank=99999999999&attempt=-1", "#/jobs/1/config?with=1e400", "#/jobs/123456"):
            with self.subTest(address):
                page.goto(self.coordinator.url + address)
                self.expect(page.locator("main h1")).to_have_count(1)
                self.settle(page)
                self.assertEqual(self.harm(page), [])


if __name__ == "__main__":
    unittest.main()
