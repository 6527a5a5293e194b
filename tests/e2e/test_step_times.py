"""bench/step_times.py: the forecasts of rows whose family is left out of the fit."""
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
from step_times.fit import Calibration, FitsWithout  # noqa: E402


class Row:
    """A step whose time is `work` divided by the share of the peak, which constants determine."""

    overrides = {}
    in_8_bits = False
    is_derived = False
    assumptions = []
    source = "test"
    gpus = 8

    def __init__(self, name, family, work, published):
        self.name, self.family, self.work, self.published = name, family, work, published
        self.fields = {"remat": "none"}


class Forecasts:
    def seconds(self, rows, _device, constants):
        return [row.work / constants["gemm_fraction"] for row in rows]


def left_out_errors(published):
    """Forecasts two versions of a program on one device, whose calibrations share constants.
    `published`: the seconds of the family's row in the other version."""
    rows = {"new": [Row("new a", "program, a, h100", 1.0, 1.6), Row("new b", "program, b, h100", 2.0, 3.1)],
            "old": [Row("old a", "program, a, h100", 1.0, published), Row("old c", "program, c, h100", 3.0, 4.5)]}
    calibrations = [Calibration(f"program_{version}-h100", group, group, Forecasts(), {}) for version, group in rows.items()]
    fits = FitsWithout(calibrations)
    found = {}
    for calibration in calibrations:
        calibration.borrow(fits.whole)
        calibration.fit_all()
        found.update((row["row"], row) for row in calibration.results(fits))
    return found


class LeftOut(unittest.TestCase):
    def test_no_row_of_the_family_reaches_the_forecast(self):
        fast, slow = left_out_errors(1.2), left_out_errors(2.4)
        # Another calibration has a row of the family and gives expected values.
        self.assertEqual(fast["new a"]["left_out_error"], slow["new a"]["left_out_error"])
        # The row has an effect on the forecasts of other families.
        self.assertNotEqual(fast["new b"]["left_out_error"], slow["new b"]["left_out_error"])

    def test_rows_are_counted_whose_constants_were_fitted_again(self):
        rows = left_out_errors(1.2)
        self.assertTrue(all(row["refitted"] for row in rows.values()))
        self.assertNotEqual(rows["old c"]["left_out_error"], rows["old c"]["error"])


if __name__ == "__main__":
    unittest.main()
