"""The views beside their pictures in docs/page, with a tolerance for fonts and drawing."""
import base64
import unittest

from browser import PageTest
from pictures import FOLDER, PICTURES, open_still, take

# Both pictures are reduced to cells of this many pixels, which hold some letters.
CELL_PIXELS = 16
MEAN_MAX = 6
# Cells differ if a colour differs by this much.
DIFFERENT_FROM = 48
DIFFERENT_SHARE_MAX = 0.03
# Regions have this many cells on a side: a missing column or badge changes one of them.
REGION_CELLS = 4
REGION_MEAN_MAX = 12
COMPARE = """async ([one, other, cell, from, region]) => {
  const read = async (data) => {
    const image = new Image();
    image.src = `data:image/png;base64,${data}`;
    await image.decode();
    const canvas = document.createElement("canvas");
    canvas.width = Math.round(image.width / cell);
    canvas.height = Math.round(image.height / cell);
    const context = canvas.getContext("2d");
    context.imageSmoothingQuality = "high";
    context.drawImage(image, 0, 0, canvas.width, canvas.height);
    return { size: [image.width, image.height], across: canvas.width, pixels: context.getImageData(0, 0, canvas.width, canvas.height).data };
  };
  const [a, b] = [await read(one), await read(other)];
  const cells = a.pixels.length / 4;
  const regions = new Map();
  let sum = 0;
  let different = 0;
  for (let i = 0; i < cells; ++i) {
    const distances = [0, 1, 2].map((part) => Math.abs(a.pixels[4 * i + part] - b.pixels[4 * i + part]));
    const mean = (distances[0] + distances[1] + distances[2]) / 3;
    sum += mean;
    different += Math.max(...distances) > from ? 1 : 0;
    const column = Math.floor((i % a.across) / region);
    const row = Math.floor(i / a.across / region);
    const key = `${column * region * cell}, ${row * region * cell}`;
    const [count, all] = regions.get(key) ?? [0, 0];
    regions.set(key, [count + 1, all + mean]);
  }
  const [worst] = [...regions].map(([key, [count, all]]) => [all / count, key]).sort((x, y) => y[0] - x[0]);
  return { sizes: [a.size, b.size], mean: sum / cells, share: different / cells, worst };
}"""


class Pictures(PageTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.comparison = cls.browser.new_page()

    def compare(self, picture, other):
        """Returns what differs between a picture and that of docs/page."""
        encoded = [base64.b64encode(data).decode() for data in (picture, (FOLDER / f"{other}.png").read_bytes())]
        found = self.comparison.evaluate(COMPARE, [*encoded, CELL_PIXELS, DIFFERENT_FROM, REGION_CELLS])
        problems = []
        if found["sizes"][0] != found["sizes"][1]:
            problems.append(f"the sizes are {found['sizes']}")
        if found["mean"] > MEAN_MAX:
            problems.append(f"the mean difference is {found['mean']:.1f}")
        if found["share"] > DIFFERENT_SHARE_MAX:
            problems.append(f"{found['share']:.1%} of the picture differ")
        if found["worst"][0] > REGION_MEAN_MAX:
            problems.append(f"the mean difference of the region at {found['worst'][1]} is {found['worst'][0]:.1f}")
        return problems

    def test_views_resemble_their_pictures(self):
        self.serve()
        page = open_still(self)
        for name in PICTURES:
            with self.subTest(name):
                self.assertEqual(self.compare(take(self, page, name), name), [])

    def test_differences_are_found(self):
        self.serve().data.incidents = []
        page = open_still(self)
        fleet = take(self, page, "fleet-dark")
        self.assertNotEqual(self.compare(fleet, "nodes"), [])
        # Only a small part of the view differs: its incidents are missing.
        self.assertRegex(" ".join(self.compare(fleet, "fleet-dark")), "of the region")


if __name__ == "__main__":
    unittest.main()
