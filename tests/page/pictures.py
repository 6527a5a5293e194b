#!/usr/bin/env python3
"""Takes the pictures of docs/page.md: tests/page/pictures.py [FOLDER]

Without a folder it renews those in docs/page. They show the objects of fleet_data.py. Needs Pillow,
which reduces them to 255 colours.
"""
import io
import pathlib
import sys
import unittest

from browser import PageTest, ROOT

FOLDER = ROOT / "docs" / "page"
DESKTOP, PHONE = {"width": 1360, "height": 860}, {"width": 390, "height": 844}
# name: address, theme, size
PICTURES = {
    "fleet": ("#/", "light", DESKTOP),
    "fleet-dark": ("#/", "dark", DESKTOP),
    "fleet-phone": ("#/", "light", PHONE),
    "job": ("#/jobs/1", "light", DESKTOP),
    "job-dark": ("#/jobs/1", "dark", DESKTOP),
    "mesh": ("#/jobs/1/mesh?by=straggler&layout=node&rank=27", "light", DESKTOP),
    "mesh-dark": ("#/jobs/1/mesh", "dark", DESKTOP),
    "incident": ("#/incidents/12", "light", {"width": 1360, "height": 1300}),
    "incident-phone": ("#/incidents/12", "dark", PHONE),
    "logs": ("#/jobs/1/logs", "light", DESKTOP),
    "nodes": ("#/nodes", "dark", DESKTOP),
    "submit": ("#/submit", "light", DESKTOP),
}
PASTED = "OMP_NUM_THREADS=4 torchrun --nproc-per-node 8 --nnodes 2 train.py --lr 3e-4"


def open_still(test):
    """Opens the page with data that stands still, and returns the tab."""
    test.coordinator.paused = True
    page = test.open("#/", viewport=DESKTOP, reduced_motion="reduce")
    page.get_by_text("live", exact=True).wait_for()
    return page


def take(test, page, name):
    """Returns the picture as PNG."""
    address, theme, size = PICTURES[name]
    page.set_viewport_size(size)
    page.emulate_media(color_scheme=theme)
    page.goto(test.coordinator.url + address)
    if name == "submit":
        page.get_by_label("Pasted command line").fill(PASTED)
        page.get_by_label("Name", exact=True).fill("llama-ablation")
        page.get_by_label("Working directory").fill("/home/ada")
        page.get_by_label("Output folder").fill("/scratch/out")
        page.get_by_text("The coordinator would accept").wait_for()
        page.mouse.click(5, 400)
    if name == "mesh":
        page.get_by_text("GPUs of the node").wait_for()
    if name == "logs":
        page.get_by_text("210 lines").wait_for()
    test.wait_for_content(page, address)
    page.evaluate("scrollTo(0, 0)")
    return page.screenshot()


class Pictures(PageTest):
    folder = FOLDER

    def runTest(self):
        from PIL import Image
        self.serve()
        page = open_still(self)
        self.folder.mkdir(parents=True, exist_ok=True)
        for name in PICTURES:
            picture = Image.open(io.BytesIO(take(self, page, name))).convert("RGB").quantize(255, dither=Image.Dither.NONE)
            picture.save(self.folder / f"{name}.png", optimize=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        Pictures.folder = pathlib.Path(sys.argv[1])
    # Only a suite prepares the class.
    sys.exit(not unittest.TextTestRunner().run(unittest.TestSuite([Pictures()])).wasSuccessful())
