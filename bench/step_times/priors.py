"""The expected values of constants, before a calibration's own rows are fitted."""
import dataclasses
import re

# Constants that a fit may change, with their bounds.
BOUNDS = {
    "gemm_fraction": (0.3, 0.95),
    "gemm_fp8_fraction": (0.15, 0.9),
    "attention_forward_fraction": (0.08, 0.8),
    "attention_backward_fraction": (0.08, 0.7),
    "memory_passes": (0.2, 6),
    "quantize_passes": (0.05, 3),
    "kernel_us": (0.1, 60),
    "step_ms": (0, 300),
    "node_link_fraction": (0.1, 0.98),
    "network_link_fraction": (0.1, 0.98),
    "overlap_slowdown": (0, 1),
    "inline_overlap": (0, 0.95),
    "host_copy_overlap": (0, 1),
    "reduction_overlap": (0, 0.95),
    "straggling": (0, 0.06),
}
# Constants on which only some rows depend.
IN_8_BITS = {"gemm_fp8_fraction", "quantize_passes"}
OF_OFFLOADING = {"host_copy_overlap"}

DEFAULTS = {
    "gemm_fraction": 0.72, "gemm_fp8_fraction": 0.55, "gemm_depth": 100, "attention_forward_fraction": 0.55, "attention_backward_fraction": 0.4,
    "attention_length": 300, "attention_fused": 1, "memory_fraction": 0.8, "memory_passes": 1, "quantize_passes": 1, "kernel_us": 1, "step_ms": 0,
    "node_link_fraction": 0.75, "network_link_fraction": 0.75, "overlap_slowdown": 0.1, "inline_overlap": 0, "host_copy_overlap": 0,
    "reduction_overlap": 0, "one_queue": 1, "sequence_parallel": 1, "whole_recomputation": 0, "straggling": 0,
}
# Deviations from the expected values that cost as much as an error of 1%: keeps constants that few
# rows determine near plausible values.
WIDTHS = {"gemm_fraction": 0.15, "gemm_fp8_fraction": 0.15, "attention_forward_fraction": 0.15, "attention_backward_fraction": 0.12, "memory_passes": 0.7,
          "quantize_passes": 0.3, "kernel_us": 4, "step_ms": 15, "node_link_fraction": 0.15, "network_link_fraction": 0.15, "overlap_slowdown": 0.15,
          "inline_overlap": 0.3, "host_copy_overlap": 0.3, "reduction_overlap": 0.3, "straggling": 0.008}

# Constants that the programs' documents state, by calibration. Later lines override earlier ones.
PROGRAMS = [
    # GEMMs apply the scales of their operands, and one kernel rounds and transposes.
    (r"(?!muster)", {"one_queue": 0, "quantize_passes": 0.4}),
    # FlashAttention-2, which attains 35% of an H100 (Shah et al., 2024, abstract).
    (r"(llmfoundry|torchtitan.*|fmsfsdp)-h[12]00", {"attention_forward_fraction": 0.35, "attention_backward_fraction": 0.27}),
    # tensor_parallel.checkpoint runs the whole forward function again.
    (r"megatronlm", {"whole_recomputation": 1}),
    # --tp-comm-overlap, --overlap-grad-reduce and the distributed optimizer (Megatron-LM's README).
    (r"megatronlm-h100", {"inline_overlap": 0.6, "reduction_overlap": 0.5}),
    # XLA's copies to and from the host are asynchronous.
    (r"maxtext", {"host_copy_overlap": 1}),
    # --xla_tpu_enable_async_collective_fusion, --xla_tpu_overlap_compute_collective_tc (MaxText's
    # configs/v5e/128b.sh).
    (r"maxtext-v", {"inline_overlap": 0.6}),
]

# Constants that calibrations of a program share on all devices, and those that programs share on a
# device. Calibrations of one program on one chip share all.
OF_PROGRAMS = ("memory_passes", "quantize_passes", "overlap_slowdown", "inline_overlap", "host_copy_overlap", "reduction_overlap", "straggling")
OF_DEVICES = ("gemm_fraction", "gemm_fp8_fraction", "node_link_fraction", "network_link_fraction")
# The difference between two such calibrations, in units of WIDTHS.
APART_SAME_BOTH, APART_SAME_PROGRAM, APART_SAME_DEVICE = 0.4, 0.6, 0.8
# The least width of a constant that is borrowed, in units of WIDTHS.
BORROWED_WIDTH = 0.4
# Topologies with the same chip and power limit.
CHIPS = {"h200": "h100"}


@dataclasses.dataclass
class Prior:
    means: dict
    widths: dict


def default_prior(name):
    means = dict(DEFAULTS)
    for pattern, values in PROGRAMS:
        if re.match(pattern, name):
            means.update(values)
    return Prior(means, dict(WIDTHS))


def program_of(name):
    """Returns the name that the versions of a program share. Deterministic kernels are others."""
    program = name.split("-", 1)[0]
    return program if program.endswith("deterministic") else program.split("_")[0]


def distance(one, other, constant):
    """Returns how far apart a constant of two calibrations is, in units of WIDTHS. None: they are
    unrelated."""
    devices = [name.split("-", 1)[1] for name in (one, other)]
    same_device = len({CHIPS.get(device, device) for device in devices}) == 1
    same_program = program_of(one) == program_of(other)
    if same_program and same_device:
        return APART_SAME_BOTH
    if same_program and constant in OF_PROGRAMS:
        return APART_SAME_PROGRAM
    if same_device and constant in OF_DEVICES and program_of(one) != "muster":
        return APART_SAME_DEVICE
    return None


def related_prior(name, prior, fits):
    """Returns the prior with what other calibrations of the program or the device attain. `fits`:
    the constants of each calibration that its own rows depend on, fitted to them."""
    means, widths = dict(prior.means), dict(prior.widths)
    for constant in BOUNDS:
        width = prior.widths[constant]
        total, weighted = 1 / width ** 2, prior.means[constant] / width ** 2
        for other, constants in fits.items():
            apart = distance(name, other, constant) if other != name and constant in constants else None
            if apart is None:
                continue
            weight = 1 / (apart * width) ** 2
            total += weight
            weighted += weight * constants[constant]
        means[constant] = weighted / total
        widths[constant] = max(total ** -0.5, BORROWED_WIDTH * width)
    return Prior(means, widths)
