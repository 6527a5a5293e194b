"""Writes the files of configs/calibration."""
from step_times.priors import DEFAULTS


def write_calibration(folder, calibration, device, worst):
    """`device`: the device's name. `worst`: the largest error of a row, in percent."""
    program, machine = calibration.name.split("-", 1)
    facts = {"device": device, "steps": len(calibration.group), "fitted": len(calibration.fitted),
             "devices": max(row.gpus for row in calibration.group), "error_percent": f"{worst:.1f}"}
    lines = [f"# The shares of a device ({machine}) that {program} attains.", "# Fitted by `bench/step_times.py --fit` to the rows named below.",
             "# docs/planning.md explains the constants."]
    lines += [f"{key}: {value}" for key, value in facts.items()]
    lines += [f"{key}: {calibration.constants[key]:.4g}" for key in DEFAULTS]
    lines += ["# The rows of bench/step_times/published.csv to which the constants were fitted.", "fitted_rows:"]
    text = "\n".join(lines + [f'  - "{row.name}"' for row in calibration.fitted]) + "\n"
    (folder / f"{calibration.name}.yml").write_text(text)
