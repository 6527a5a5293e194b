"""A machine type of one's own: CPUs with a topology and a calibration, for plans of steps."""

TOPOLOGY = """device: lab
hardware: cpu
memory_mib: 4096
devices_per_node: {devices_per_node}
bf16_tflops: {speed}
fp32_tflops: {speed}
memory_gb_s: {memory_speed}
node_gb_s: {speed}
node_latency_us: 10
network_gb_s: 1
network_latency_us: 100
host_gb_s: 10
{more}"""
CALIBRATION = "device: lab\nsteps: 1\nfitted: 1\ndevices: 1\nerror_percent: 1\ngemm_fraction: 0.5\nstep_ms: {step_ms}\nkernel_us: {kernel_us}\n"


def base_yml_of_lab(test, devices_per_node=2, more="", speed=1):
    """Returns a copy of base.yml beside which the topology `lab` and its calibration are. No CPU is
    as fast as speed=1000.
    """
    base = test.dir / "configs" / "base.yml"
    base.parent.mkdir()
    base.write_text(test.base_yml().read_text(encoding="utf-8"), encoding="utf-8")
    for folder, name, text in (("topologies", "lab", TOPOLOGY.format(devices_per_node=devices_per_node, more=more, speed=speed, memory_speed=10 * speed)),
                               ("calibration", "muster-lab", CALIBRATION.format(step_ms=1 / speed, kernel_us=2 / speed))):
        (base.parent / folder).mkdir()
        (base.parent / folder / f"{name}.yml").write_text(text)
    return base
