"""The views beside their pictures in docs/page, with a tolerance for fonts and drawing."""
import base64
import unittest

from browser import PageTest
from pictures import FOLDER, PICTURES, take

# Both pictures are reduced to cells of this many pixels, which hold some letters.
CELL_PIXELS = 16
MEAN_MAX = 6
DIFFERENT_FROM = 48
DIFFERENT_SHARE_MAX = 0.03
COMPARE = """async ([one, other, cell]) => {
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
    return { size: [image.width, image.height], pixels: context.getImageData(0, 0, canvas.width, canvas.height).data };
  };
  const [a, b] = [await read(one), await read(other)];
  const differences = Array.from(a.pixels, (value, i) => Math.abs(value - b.pixels[i])).filter((_, i) => i % 4 !== 3);
  return { sizes: [a.size, b.size], mean: differences.reduce((sum, one) => sum + one, 0) / differences.length, values: differences };
}"""


class Pictures(PageTest):
    def compare(self, name, other):
        page = self.open("#/")
        encoded = [base64.b64encode(data).decode() for data in (take(self, name), (FOLDER / f"{other}.png").read_bytes())]
        found = page.evaluate(COMPARE, [*encoded, CELL_PIXELS])
        return found["sizes"], found["mean"], sum(value > DIFFERENT_FROM for value in found["values"]) / len(found["values"])

    def check(self, *names):
        self.serve()
        for name in names:
            with self.subTest(name):
                sizes, mean, share = self.compare(name, name)
                self.assertEqual(sizes[0], sizes[1])
                self.assertLess(mean, MEAN_MAX)
                self.assertLess(share, DIFFERENT_SHARE_MAX)

    def test_views_resemble_their_pictures(self):
        self.check(*[name for name in PICTURES if not name.endswith(("-dark", "-phone"))])

    def test_dark_and_narrow_views_resemble_their_pictures(self):
        self.check(*[name for name in PICTURES if name.endswith(("-dark", "-phone"))])

    def test_another_view_does_not_resemble_a_picture(self):
        self.serve()
        _, mean, share = self.compare("nodes", "fleet-dark")
        self.assertTrue(mean > MEAN_MAX or share > DIFFERENT_SHARE_MAX)


if __name__ == "__main__":
    unittest.main()
