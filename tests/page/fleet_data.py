"""Objects of the page's API for tests: a fleet of any size, with hostile texts if required.

All values follow from the arguments, so that pictures of two runs are equal.
"""
import math
import random

from incident_data import NAMES, NOW_NS, SECOND, IncidentData

STATES = ["QUEUED", "STARTING", "RUNNING", "RESTARTING", "SUCCEEDED", "FAILED", "CANCELLED", "SUSPECT", "DUMPING"]
HOSTILE = [
    "<script>window.hacked = 1</script>",
    '<img src=x onerror="window.hacked = 1">',
    "\x1b[31mred\x1b[0m\x1b]0;title\x07\x1b[2J",
    "\u202egnp.exe\u202c \u2066x\u2069",
    "javascript:window.hacked=1",
    "${window.hacked=1} {{constructor.constructor('window.hacked=1')()}}",
    "a" * 3000,
    "'\"><svg/onload=window.hacked=1>",
    "\x00\x07\x08\x7f\u0085\ufeff\u200b",
]
USERS = ["ada", "grace", "edsger", "barbara", "ken", "leslie"]


def goodput(wall, lost):
    """Returns an account of `wall` seconds with the losses (cause, activity, seconds)."""
    productive = wall - sum(seconds for _, _, seconds in lost)
    return {
        "ettr": productive / wall if wall > 0 else None,
        "wall_seconds": wall,
        "productive_seconds": productive,
        "queued_seconds": 41.0,
        "losses": [{"cause": cause, "what": what, "seconds": seconds} for cause, what, seconds in lost],
    }


LOSSES = [
    ("none", "loading", 61.0),
    ("none", "checkpoint stall", 48.2),
    ("hang", "standing still", 26.4),
    ("hang", "loading", 58.0),
    ("hang", "recomputing", 95.0),
    ("rank died", "recomputing", 31.0),
    ("rank died", "loading", 55.5),
    ("worker lost", "waiting", 12.7),
    ("none", "evaluating", 120.5),
]


class FleetData(IncidentData):
    """A fleet with job 1 as the large job, whose ranks the mesh shows."""

    def __init__(self, jobs=24, nodes=64, ranks_per_node=8, mesh=(("data", 16), ("pipeline", 4), ("tensor", 8)), hostile=False):
        self.random = random.Random(7)
        self.hostile = hostile
        self.now_ns = NOW_NS
        self.ranks_per_node = ranks_per_node
        self.mesh = list(mesh)
        self.ranks = math.prod(size for _, size in mesh)
        self.nodes = [self.node(i) for i in range(nodes)]
        self.rows = {i: self.row(i) for i in range(1, jobs + 1)}
        self.incidents = [self.incident(i) for i in range(1, 13)]
        self.points = [self.point(i) for i in range(900)]
        self.step = 18_432
        self.excluded = []
        self.submitted = []

    def advance(self):
        """Is called before each event of a stream."""

    def text(self, ordinary):
        """Returns the text, or a hostile one."""
        return self.random.choice(HOSTILE) if self.hostile else ordinary

    def node(self, i):
        made = {
            "name": f"gpu-{i:04d}" if not self.hostile else f"{HOSTILE[i % len(HOSTILE)][:60]}{i}",
            "host": self.text(f"ip-10-0-{i // 250}-{i % 250}.ec2.internal"),
            "slots": 8,
            "slots_used": 8 if i % 9 else 0,
            "slots_held": 0,
            "version": "0.9.0",
            "connected": i % 37 != 5,
            "leaving": i % 61 == 17,
            "heartbeat_age_seconds": 0.2 + (i % 7) / 10 if i % 37 != 5 else 48.0,
            "check_due": i % 53 == 29,
            "gpus_used": 8 if i % 9 else 0,
            "no_gpus_because": "",
            "switches": "",
            "domain": "",
            "gpus": [
                {
                    "index": g,
                    "uuid": f"GPU-4c5b3a8e-{i:04x}-{g:04x}",
                    "name": "NVIDIA H100 80GB HBM3",
                    "memory_bytes": 85_520_809_984,
                    "numa_node": g // 4,
                }
                for g in range(8)
            ],
        }
        if i % 31 == 11:
            made["exclusion"] = {
                "cause": "gpu fault",
                "reason": self.text("GPU 3 had Xid 79 (fallen off the bus) while rank 91 used it"),
                "since_unix_ns": NOW_NS - 5400 * SECOND,
                "until_unix_ns": 0,
                "times": 2,
            }
        if i % 3 == 0:
            made["last_check"] = {
                "passed": i % 31 != 11,
                "unix_ns": NOW_NS - (600 + i) * SECOND,
                "seconds": 21.4,
                "sentence": self.text("GPU 3: memory test found 2 wrong words") if i % 31 == 11 else "",
                "details": self.text("disk 1.9 GB/s, memory 182 GB/s, GEMM 612 TFLOP/s"),
            }
        return made

    def row(self, i):
        state = "RUNNING" if i == 1 else STATES[[2, 2, 2, 0, 2, 4, 2, 7, 2, 5, 2, 0, 3, 2, 6, 1][i % 16]]
        runs = state in ("RUNNING", "SUSPECT", "RESTARTING")
        nodes = len(self.nodes) if i == 1 else [1, 2, 4, 8][i % 4]
        reasons = {
            "RUNNING": "all ranks are up",
            "QUEUED": f"needs {nodes} nodes with 8 free slots; {i % 3} are free, and 2 are excluded",
            "SUSPECT": "no rank has made progress for 4.2 s; its steps take 1.31 s",
            "RESTARTING": "rank 17 on gpu-0012 ended by signal 9 (SIGKILL); restart 1 of 3 in 2 s",
            "FAILED": "rank 0 ended with exit code 1 three times without progress: ValueError: unknown dataset",
            "SUCCEEDED": "all ranks ended with exit code 0",
            "CANCELLED": "cancelled by a user",
            "STARTING": "waiting for 6 of 16 ranks",
        }
        return {
            "id": i,
            "name": self.text(f"{NAMES[i % len(NAMES)]}{'' if i < 9 else f'-{i}'}"),
            "user": self.text(USERS[i % len(USERS)]),
            "state": state,
            "reason": self.text(reasons[state]),
            "attempt": 1 + i % 3,
            "nodes": nodes,
            "ranks": self.ranks if i == 1 else nodes * 8,
            "gpus": nodes * 8,
            "priority": i % 3,
            "step": 18_432 // i if runs or state in ("SUCCEEDED", "FAILED") else -1,
            "steps": 50_000 if i % 5 else 0,
            "loss": 2.1 + i % 7 / 10 if runs else None,
            "step_seconds": 1.31 + i / 50 if runs else None,
            "tokens_per_second": 4.1e6 / i if runs else None,
            "mfu": 0.41 - i / 500 if runs else None,
            "ettr": 0.983 - i % 9 / 100 if state != "QUEUED" else None,
            "incident": i % 4,
            "submitted_unix_ns": NOW_NS - (3600 * i + 777) * SECOND,
            "started_unix_ns": NOW_NS - 3600 * i * SECOND if state != "QUEUED" else 0,
            "finished_unix_ns": NOW_NS - 600 * SECOND if state in ("SUCCEEDED", "FAILED", "CANCELLED") else 0,
        }

    def fleet(self):
        count = {state: sum(row["state"] == state for row in self.rows.values()) for state in STATES}
        excluded = sum("exclusion" in node for node in self.nodes)
        total = 8 * len(self.nodes)
        used = sum(node["gpus_used"] for node in self.nodes)
        room = {
            "total": total,
            "used": used,
            "free": total - used - 8 * excluded if total - used > 8 * excluded else 0,
            "excluded": min(8 * excluded, total - used),
        }
        lost = [(cause, what, 40 * seconds) for cause, what, seconds in LOSSES]
        return {
            "unix_ns": self.now_ns,
            "jobs": count,
            "slots": room,
            "gpus": room,
            "tokens_per_second": 1.37e7,
            "open_incidents": sum(one["open"] for one in self.incidents),
            "nodes": {
                "total": len(self.nodes),
                "connected": sum(node["connected"] for node in self.nodes),
                "excluded": excluded,
                "leaving": sum(node["leaving"] for node in self.nodes),
                "checking": 1,
            },
            "goodput": goodput(620_000.0, lost),
        }

    def history(self):
        points = 361
        columns = {
            name: []
            for name in (
                "unix_ns",
                "gpus_used",
                "gpus_total",
                "running_jobs",
                "queued_jobs",
                "tokens_per_second",
                "productive_seconds",
                "wall_seconds",
            )
        }
        losses = {cause: [] for cause in ("hang", "rank died", "worker lost", "loading", "checkpoint stall", "evaluating")}
        sums = dict.fromkeys(losses, 0.0)
        wall = productive = 0.0
        for i in range(points):
            lost = {
                "hang": 62 if 120 <= i < 126 else 0,
                "rank died": 30 if i in (40, 41, 250) else 0,
                "worker lost": 210 if 300 <= i < 309 else 0,
                "loading": 2,
                "checkpoint stall": 4,
                "evaluating": 1 + 5 * (i % 11 == 0),
            }
            wall += 600
            productive += 600 - sum(lost.values())
            for cause, seconds in lost.items():
                sums[cause] += seconds
                losses[cause].append(sums[cause])
            for name, value in (
                ("unix_ns", self.now_ns - (points - i) * 60 * SECOND),
                ("gpus_used", 450),
                ("gpus_total", 512),
                ("running_jobs", 10),
                ("queued_jobs", 3),
                ("tokens_per_second", 1.3e7),
                ("productive_seconds", productive),
                ("wall_seconds", wall),
            ):
                columns[name].append(value)
        return {"interval_seconds": 60, "columns": columns, "losses": losses}

    def point(self, i):
        attempt = 1 if i < 400 else 2
        step = 8_000 + 12 * (i if i < 400 else i - 12)
        noise = self.random.uniform(-1, 1)
        slow = 1.25 if 640 < i < 700 else 1.0
        return {
            "unix_ns": NOW_NS - (900 - i + (16 if i < 400 else 0)) * 8 * SECOND,
            "attempt": attempt,
            "step": step,
            "loss": 2.05 + 1.6 * math.exp(-i / 300) + 0.03 * noise,
            "grad_norm": 0.6 + 0.25 * math.exp(-i / 200) + 0.08 * abs(noise) + (1.6 if i in (222, 566) else 0),
            "step_seconds": 1.31 * slow + 0.02 * noise,
            "tokens_per_second": 4.1e6 / slow + 4e4 * noise,
            "mfu": 0.412 / slow + 0.004 * noise,
            "learning_rate": 3e-4 * min(1.0, i / 120) * (0.5 + 0.5 * math.cos(i / 900 * 2.2)),
        }

    def add_point(self):
        """Adds the next sample of job 1 and returns it, as an event carries it."""
        last = self.points[-1]
        self.points.append({**last, "unix_ns": last["unix_ns"] + SECOND, "step": last["step"] + 1})
        return self.points[-1]

    def metrics(self, since):
        later = [point for point in self.points if point["unix_ns"] > since]
        names = ("unix_ns", "attempt", "step", "loss", "grad_norm", "step_seconds", "tokens_per_second", "mfu", "learning_rate")
        return {"job": 1, "columns": {name: [point[name] for point in later] for name in names}}

    def config(self, i):
        return {
            "run_name": self.text(NAMES[i % len(NAMES)]),
            "model_name": "llama3-70b",
            "steps": 50_000,
            "learning_rate": 3e-4 if i != 2 else 1e-4,
            "per_device_batch_size": 1 if i != 2 else 2,
            "max_target_length": 8192,
            "dtype": "bfloat16",
            "remat_policy": "full",
            "ici_tensor_parallelism": 8,
            "dcn_data_parallelism": 16,
            "dcn_pipeline_parallelism": 4,
            "checkpoint_period": 250,
            "async_checkpointing": True,
            "dataset_path": self.text("s3://corpora/fineweb-edu-shards"),
            "enable_tensorboard": True,
            "optimizer": {"name": "adamw", "b1": 0.9, "b2": 0.95, "weight_decay": 0.1},
        }

    def job(self, i):
        row = self.rows[i]
        runs = row["state"] in ("RUNNING", "SUSPECT", "RESTARTING")
        rank = {
            "rank": 0,
            "worker": self.nodes[0]["name"],
            "pid": 4711,
            "phase": "STEP",
            "step": row["step"],
            "loss": row["loss"],
            "grad_norm": 0.63,
            "step_seconds": row["step_seconds"],
            "tokens_per_second": 8000.0,
            "mfu": row["mfu"],
            "checkpoint_step": max(0, row["step"] - 182),
            "checkpoints_saved": 31,
            "checkpoints_failed": 1,
            "checkpoint_stall_seconds": 48.2,
            "last_progress_age_seconds": 0.4,
        }
        spec = {
            "name": row["name"],
            "user": row["user"],
            "nodes": row["nodes"],
            "ranks_per_node": self.ranks_per_node,
            "priority": row["priority"],
            "restarts_max": 3,
            "steps": row["steps"],
            "spares": 2,
            "min_nodes": 0,
            "gpus_per_rank": 1,
            "output_directory": self.text("s3://runs/llama3-70b-pretrain"),
            "environment": {"NCCL_DEBUG": "***"},
            "train_config": self.config(i),
            "planned_step_us": 1_250_000,
            "planned_communication_us": 210_000,
            "planned_data_us": 8_000,
            "planned_checkpoint_us": 2_400,
            "planned_memory_bytes": 71_200_000_000,
        }
        if i % 8 == 5:
            spec |= {"command": ["python3", "eval.py", self.text("--task=boolq")], "working_directory": "/home/ada/eval", "train_config": None}
        faults = [
            {
                "rank": 27,
                "worker": "gpu-0003",
                "signal": 9,
                "exit_code": -1,
                "last_step": 12_790,
                "message": self.text("rank 27 on gpu-0003 ended by signal 9 (SIGKILL)"),
                "unix_ns": NOW_NS - 4000 * SECOND,
                "kind": "rank died",
            }
        ]
        return {
            "id": i,
            "state": row["state"],
            "reason": row["reason"],
            "attempt": row["attempt"],
            "exit_code": 0 if row["state"] != "FAILED" else 1,
            "tokens_per_second": row["tokens_per_second"],
            "spec": spec,
            "nodes": row["nodes"],
            "held": ["gpu-0062", self.text("gpu-0063")],
            "placement": [{"rank": 0, "worker": self.nodes[0]["name"], "local_rank": 0}],
            "ranks": [rank] if runs else [],
            "faults": faults,
            "submitted_unix_ns": row["submitted_unix_ns"],
            "started_unix_ns": row["started_unix_ns"],
            "finished_unix_ns": row["finished_unix_ns"],
            "incident": {"id": row["incident"], "sentence": self.text("rank 27 holds up 511 ranks")} if row["incident"] else None,
            "goodput": goodput(7_300.0, LOSSES) if row["state"] != "QUEUED" else goodput(0.0, []),
            "newest_step": 18_432,
            "revision": 2,
            "revisions": [
                {
                    "revision": 2,
                    "change": self.text("learning_rate=1e-4"),
                    "unix_ns": NOW_NS - 4130 * SECOND,
                    "pending": False,
                    "rollback_steps": 0,
                    "undone": False,
                    "end": "passed its trial of 50 steps",
                }
            ],
        }

    def attempts(self, i):
        ends = [
            "",
            self.text("rank 27 on gpu-0003 holds up 511 ranks: it never entered all-reduce 26"),
            self.text("worker gpu-0012 cannot be reached"),
        ]
        return {
            "more": False,
            "attempts": [
                {
                    "job_id": i,
                    "attempt": a,
                    "started_unix_ns": NOW_NS - (7300 if a == 1 else 4122) * SECOND,
                    "up_unix_ns": NOW_NS - (7290 if a == 1 else 4119) * SECOND,
                    "ended_unix_ns": 0 if a == 2 else NOW_NS - 4128 * SECOND,
                    "nodes": 64,
                    "ranks": self.ranks,
                    "workers": "gpu-[0000-0063]",
                    "first_step": 8_000 + 4_600 * (a - 1),
                    "last_step": 12_790 if a == 1 else 18_432,
                    "steps_lost": 190 if a == 1 else 0,
                    "end": ends[1] if a == 1 else "",
                    "incident_id": 12 if a == 1 else 0,
                    "revision": a,
                }
                for a in (2, 1)
            ],
        }
