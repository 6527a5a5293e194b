"""Objects of the page's API for tests: a fleet of any size, with hostile texts if required.

All values follow from the arguments, so that pictures of two runs are equal.
"""
import json
import math
import random
import struct

NOW_NS = 1_795_982_400_000_000_000  # 2026-11-29 20:00 UTC
SECOND = 1_000_000_000
PHASES = ["INIT", "RENDEZVOUS", "LOAD", "COMPILE", "DATA", "STEP", "EVAL", "CHECKPOINT_SAVE", "CHECKPOINT_RESTORE", "SHUTDOWN"]
STATES = ["QUEUED", "STARTING", "RUNNING", "RESTARTING", "SUCCEEDED", "FAILED", "CANCELLED", "SUSPECT", "DUMPING"]
HOSTILE = [
    "<script>window.hacked = 1</script>",
    "<img src=x onerror=\"window.hacked = 1\">",
    "\x1b[31mred\x1b[0m\x1b]0;title\x07\x1b[2J",
    "\u202egnp.exe\u202c \u2066x\u2069",
    "javascript:window.hacked=1",
    "${window.hacked=1} {{constructor.constructor('window.hacked=1')()}}",
    "a" * 3000,
    "'\"><svg/onload=window.hacked=1>",
    "\x00\x07\x08\x7f\u0085\ufeff\u200b",
]
NAMES = ["llama3-70b-pretrain", "mixtral-8x22b-sft", "gpt-126m-ablation-lr3e4", "gemma-27b-long-context", "fuji-7b-v2", "eval-boolq-nightly", "llama2-13b-dpo", "moe-64e-capacity"]
USERS = ["ada", "grace", "edsger", "barbara", "ken", "leslie"]


def goodput(wall, lost):
    """Returns an account of `wall` seconds with the losses (cause, activity, seconds)."""
    productive = wall - sum(seconds for _, _, seconds in lost)
    return {"ettr": productive / wall if wall > 0 else None, "wall_seconds": wall, "productive_seconds": productive, "queued_seconds": 41.0,
            "losses": [{"cause": cause, "what": what, "seconds": seconds} for cause, what, seconds in lost]}


LOSSES = [("none", "loading", 61.0), ("none", "checkpoint stall", 48.2), ("hang", "standing still", 26.4), ("hang", "loading", 58.0), ("hang", "recomputing", 95.0),
          ("rank died", "recomputing", 31.0), ("rank died", "loading", 55.5), ("worker lost", "waiting", 12.7), ("none", "evaluating", 120.5)]


class FleetData:
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
        made = {"name": f"gpu-{i:04d}" if not self.hostile else f"{HOSTILE[i % len(HOSTILE)][:60]}{i}", "host": self.text(f"ip-10-0-{i // 250}-{i % 250}.ec2.internal"), "slots": 8, "slots_used": 8 if i % 9 else 0,
                "slots_held": 0, "version": "0.9.0", "connected": i % 37 != 5, "leaving": i % 61 == 17, "heartbeat_age_seconds": 0.2 + (i % 7) / 10 if i % 37 != 5 else 48.0,
                "check_due": i % 53 == 29, "gpus_used": 8 if i % 9 else 0, "no_gpus_because": "",
                "gpus": [{"index": g, "uuid": f"GPU-4c5b3a8e-{i:04x}-{g:04x}", "name": "NVIDIA H100 80GB HBM3", "memory_bytes": 85_520_809_984, "numa_node": g // 4} for g in range(8)]}
        if i % 31 == 11:
            made["exclusion"] = {"cause": "gpu fault", "reason": self.text("GPU 3 had Xid 79 (fallen off the bus) while rank 91 used it"), "since_unix_ns": NOW_NS - 5400 * SECOND, "until_unix_ns": 0, "times": 2}
        if i % 3 == 0:
            made["last_check"] = {"passed": i % 31 != 11, "unix_ns": NOW_NS - (600 + i) * SECOND, "seconds": 21.4, "sentence": self.text("GPU 3: memory test found 2 wrong words") if i % 31 == 11 else "",
                                  "details": self.text("disk 1.9 GB/s, memory 182 GB/s, GEMM 612 TFLOP/s")}
        return made

    def row(self, i):
        state = "RUNNING" if i == 1 else STATES[[2, 2, 2, 0, 2, 4, 2, 7, 2, 5, 2, 0, 3, 2, 6, 1][i % 16]]
        runs = state in ("RUNNING", "SUSPECT", "RESTARTING")
        nodes = len(self.nodes) if i == 1 else [1, 2, 4, 8][i % 4]
        reasons = {"RUNNING": "all ranks are up", "QUEUED": f"needs {nodes} nodes with 8 free slots; {i % 3} are free, and 2 are excluded", "SUSPECT": "no rank has made progress for 4.2 s; its steps take 1.31 s",
                   "RESTARTING": "rank 17 on gpu-0012 ended by signal 9 (SIGKILL); restart 1 of 3 in 2 s", "FAILED": "rank 0 ended with exit code 1 three times without progress: ValueError: unknown dataset",
                   "SUCCEEDED": "all ranks ended with exit code 0", "CANCELLED": "cancelled by a user", "STARTING": "waiting for 6 of 16 ranks"}
        return {"id": i, "name": self.text(f"{NAMES[i % len(NAMES)]}{'' if i < 9 else f'-{i}'}"), "user": self.text(USERS[i % len(USERS)]), "state": state, "reason": self.text(reasons[state]), "attempt": 1 + i % 3,
                "nodes": nodes, "ranks": self.ranks if i == 1 else nodes * 8, "gpus": nodes * 8, "priority": 0, "step": 18_432 // i if runs or state in ("SUCCEEDED", "FAILED") else -1, "steps": 50_000 if i % 5 else 0,
                "loss": 2.1 + i % 7 / 10 if runs else None, "step_seconds": 1.31 + i / 50 if runs else None, "tokens_per_second": 4.1e6 / i if runs else None, "mfu": 0.41 - i / 500 if runs else None,
                "ettr": 0.983 - i % 9 / 100 if state != "QUEUED" else None, "incident": i % 4, "submitted_unix_ns": NOW_NS - (3600 * i + 777) * SECOND,
                "started_unix_ns": NOW_NS - 3600 * i * SECOND if state != "QUEUED" else 0, "finished_unix_ns": NOW_NS - 600 * SECOND if state in ("SUCCEEDED", "FAILED", "CANCELLED") else 0}

    def fleet(self):
        count = {state: sum(row["state"] == state for row in self.rows.values()) for state in STATES}
        excluded = sum("exclusion" in node for node in self.nodes)
        total = 8 * len(self.nodes)
        used = sum(node["gpus_used"] for node in self.nodes)
        room = {"total": total, "used": used, "free": total - used - 8 * excluded if total - used > 8 * excluded else 0, "excluded": min(8 * excluded, total - used)}
        lost = [(cause, what, 40 * seconds) for cause, what, seconds in LOSSES]
        return {"unix_ns": self.now_ns, "jobs": count, "slots": room, "gpus": room, "tokens_per_second": 1.37e7, "open_incidents": sum(one["open"] for one in self.incidents),
                "nodes": {"total": len(self.nodes), "connected": sum(node["connected"] for node in self.nodes), "excluded": excluded, "leaving": sum(node["leaving"] for node in self.nodes), "checking": 1},
                "goodput": goodput(620_000.0, lost)}

    def history(self):
        points = 361
        columns = {name: [] for name in ("unix_ns", "gpus_used", "gpus_total", "running_jobs", "queued_jobs", "tokens_per_second", "productive_seconds", "wall_seconds")}
        losses = {cause: [] for cause in ("hang", "rank died", "worker lost", "loading", "checkpoint stall", "evaluating")}
        sums = dict.fromkeys(losses, 0.0)
        wall = productive = 0.0
        for i in range(points):
            lost = {"hang": 62 if 120 <= i < 126 else 0, "rank died": 30 if i in (40, 41, 250) else 0, "worker lost": 210 if 300 <= i < 309 else 0, "loading": 2, "checkpoint stall": 4, "evaluating": 1 + 5 * (i % 11 == 0)}
            wall += 600
            productive += 600 - sum(lost.values())
            for cause, seconds in lost.items():
                sums[cause] += seconds
                losses[cause].append(sums[cause])
            for name, value in (("unix_ns", self.now_ns - (points - i) * 60 * SECOND), ("gpus_used", 450), ("gpus_total", 512), ("running_jobs", 10), ("queued_jobs", 3), ("tokens_per_second", 1.3e7),
                                ("productive_seconds", productive), ("wall_seconds", wall)):
                columns[name].append(value)
        return {"interval_seconds": 60, "columns": columns, "losses": losses}

    def point(self, i):
        attempt = 1 if i < 400 else 2
        step = 8_000 + 12 * (i if i < 400 else i - 12)
        noise = self.random.uniform(-1, 1)
        slow = 1.25 if 640 < i < 700 else 1.0
        return {"unix_ns": NOW_NS - (900 - i + (16 if i < 400 else 0)) * 8 * SECOND, "attempt": attempt, "step": step, "loss": 2.05 + 1.6 * math.exp(-i / 300) + 0.03 * noise,
                "grad_norm": 0.6 + 0.25 * math.exp(-i / 200) + 0.08 * abs(noise) + (1.6 if i in (222, 566) else 0), "step_seconds": 1.31 * slow + 0.02 * noise, "tokens_per_second": 4.1e6 / slow + 4e4 * noise,
                "mfu": 0.412 / slow + 0.004 * noise, "learning_rate": 3e-4 * min(1.0, i / 120) * (0.5 + 0.5 * math.cos(i / 900 * 2.2))}

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
        return {"run_name": self.text(NAMES[i % len(NAMES)]), "model_name": "llama3-70b", "steps": 50_000, "learning_rate": 3e-4 if i != 2 else 1e-4, "per_device_batch_size": 1 if i != 2 else 2, "max_target_length": 8192,
                "dtype": "bfloat16", "remat_policy": "full", "ici_tensor_parallelism": 8, "dcn_data_parallelism": 16, "dcn_pipeline_parallelism": 4, "checkpoint_period": 250, "async_checkpointing": True,
                "dataset_path": self.text("s3://corpora/fineweb-edu-shards"), "enable_tensorboard": True, "optimizer": {"name": "adamw", "b1": 0.9, "b2": 0.95, "weight_decay": 0.1}}

    def job(self, i):
        row = self.rows[i]
        runs = row["state"] in ("RUNNING", "SUSPECT", "RESTARTING")
        rank = {"rank": 0, "worker": self.nodes[0]["name"], "pid": 4711, "phase": "STEP", "step": row["step"], "loss": row["loss"], "grad_norm": 0.63, "step_seconds": row["step_seconds"], "tokens_per_second": 8000.0, "mfu": row["mfu"],
                "checkpoint_step": max(0, row["step"] - 182), "checkpoints_saved": 31, "checkpoints_failed": 1, "checkpoint_stall_seconds": 48.2, "last_progress_age_seconds": 0.4}
        spec = {"name": row["name"], "user": row["user"], "nodes": row["nodes"], "ranks_per_node": self.ranks_per_node, "priority": 0, "restarts_max": 3, "steps": row["steps"], "spares": 2, "min_nodes": 0, "gpus_per_rank": 1,
                "output_directory": self.text("s3://runs/llama3-70b-pretrain"), "environment": {"NCCL_DEBUG": "***"}, "train_config": self.config(i),
                "planned_step_us": 1_250_000, "planned_communication_us": 210_000, "planned_data_us": 8_000, "planned_checkpoint_us": 2_400, "planned_memory_bytes": 71_200_000_000}
        if i % 8 == 5:
            spec |= {"command": ["python3", "eval.py", self.text("--task=boolq")], "working_directory": "/home/ada/eval", "train_config": None}
        faults = [{"rank": 27, "worker": "gpu-0003", "signal": 9, "exit_code": -1, "last_step": 12_790, "message": self.text("rank 27 on gpu-0003 ended by signal 9 (SIGKILL)"), "unix_ns": NOW_NS - 4000 * SECOND, "kind": "rank died"}]
        return {"id": i, "state": row["state"], "reason": row["reason"], "attempt": row["attempt"], "exit_code": 0 if row["state"] != "FAILED" else 1, "tokens_per_second": row["tokens_per_second"], "spec": spec, "nodes": row["nodes"],
                "held": ["gpu-0062", self.text("gpu-0063")], "placement": [{"rank": 0, "worker": self.nodes[0]["name"], "local_rank": 0}], "ranks": [rank] if runs else [], "faults": faults,
                "submitted_unix_ns": row["submitted_unix_ns"], "started_unix_ns": row["started_unix_ns"], "finished_unix_ns": row["finished_unix_ns"],
                "incident": {"id": row["incident"], "sentence": self.text("rank 27 holds up 511 ranks")} if row["incident"] else None, "goodput": goodput(7_300.0, LOSSES) if row["state"] != "QUEUED" else goodput(0.0, []),
                "newest_step": 18_432, "revision": 2, "revisions": [{"revision": 2, "change": self.text("learning_rate=1e-4"), "unix_ns": NOW_NS - 4130 * SECOND, "pending": False, "rollback_steps": 0, "undone": False, "end": "passed its trial of 50 steps"}]}

    def attempts(self, i):
        ends = ["", self.text("rank 27 on gpu-0003 holds up 511 ranks: it never entered all-reduce 26"), self.text("worker gpu-0012 cannot be reached")]
        return {"more": False, "attempts": [{"job_id": i, "attempt": a, "started_unix_ns": NOW_NS - (7300 if a == 1 else 4122) * SECOND, "up_unix_ns": NOW_NS - (7290 if a == 1 else 4119) * SECOND,
                                             "ended_unix_ns": 0 if a == 2 else NOW_NS - 4128 * SECOND, "nodes": 64, "ranks": self.ranks, "workers": "gpu-[0000-0063]", "first_step": 8_000 + 4_600 * (a - 1),
                                             "last_step": 12_790 if a == 1 else 18_432, "steps_lost": 190 if a == 1 else 0, "end": ends[1] if a == 1 else "", "incident_id": 12 if a == 1 else 0, "revision": a} for a in (2, 1)]}

    def incident(self, i):
        kinds = ["hang", "rank died", "worker lost", "slow rank", "gpu fault", "slower than plan"]
        kind = kinds[0] if i == 12 else kinds[i % 6]
        sentences = {"hang": 'rank 27 on gpu-0003 holds up 511 ranks: it never entered all-reduce 26 "after step" of data+fsdp, in which ranks 0-26, 28-511 wait (2.4 s); it stands at model/transformer.cc:261 in muster::trainer::Transformer::embed()',
                     "rank died": "rank 17 on gpu-0012 ended by signal 9 (SIGKILL): the kernel killed it for memory", "worker lost": "worker gpu-0021 cannot be reached: it has sent nothing for 10.0 s",
                     "slow rank": "rank 91 on gpu-0011 takes 1.42 times as long for its own work as the median rank", "gpu fault": "GPU 3 of gpu-0011 had Xid 79 (fallen off the bus) while rank 91 used it",
                     "slower than plan": "a step takes 1.62 s, and its plan 1.31 s (+24%); most of the difference is communication (+0.2 s)"}
        fault = NOW_NS - (4128 if i == 12 else (13 - i) * 7000) * SECOND
        after = lambda seconds: fault + int(seconds * SECOND)
        open_ = i in (9, 11)
        recovery = None if kind in ("slow rank", "slower than plan") else {"over": not open_, "attempts": 1, "best_step": 12_790, "restored_step": 12_600, "steps_lost": 190, "interrupted_by": 0, "last_progress_unix_ns": fault, "detected_unix_ns": after(1.0),
                    "evidence_unix_ns": after(2.3), "decided_unix_ns": after(2.31), "stopped_unix_ns": after(3.1), "started_unix_ns": after(5.2), "up_unix_ns": after(8.4), "loaded_unix_ns": after(61.0), "first_step_unix_ns": after(64.2), "caught_up_unix_ns": after(312.0)}
        moments = [(0, "last progress of the job"), (1.0, "suspected: no rank has made progress for 1.0 s; its steps take 0.24 s"), (1.1, "stacks of 512 ranks are requested"), (2.28, "the second sample is complete"),
                   (2.31, "verdict: rank 27 on gpu-0003 holds up 511 ranks"), (3.1, "every rank is gone"), (5.2, "attempt 2 starts on 64 nodes, with gpu-0062 instead of gpu-0003"), (8.4, "every rank is up"), (61.0, "every rank has begun to train"),
                   (64.2, "the first step is complete"), (312.0, "step 12,791 is complete, the first new one")]
        return {"id": i, "job": 1 if i == 12 else 1 + i % 8, "attempt": 1, "job_name": self.text(NAMES[(1 if i == 12 else 1 + i % 8) % len(NAMES)]), "kind": kind, "open": open_, "sentence": self.text(sentences[kind]), "diagnosis": self.text("") if self.hostile else "",
                "action": self.text("restart 1 of 3 without gpu-0003"), "suspects": self.suspects(), "moments": [{"unix_ns": after(seconds), "text": self.text(text)} for seconds, text in moments], "recovery": recovery}

    def suspects(self):
        return [{"rank": 27, "worker": self.text("gpu-0003"), "axis": "data+fsdp", "collective": self.text("after step"), "source": self.text("model/transformer.cc:261 in muster::trainer::Transformer::embed()"),
                 "why": self.text('never entered all-reduce 26 "after step" of data+fsdp, in which ranks 0-26, 28-511 wait (2.4 s)'), "confidence": 0.87},
                {"rank": 0, "worker": "gpu-0000", "axis": "data+fsdp", "collective": "after step", "source": "loop/train.cc:191 in complete inlined in muster::trainer::train()", "why": 'waits in all-reduce 26 "after step" of data+fsdp (2.4 s)', "confidence": 0.03},
                {"rank": 8, "worker": "gpu-0001", "axis": "", "collective": "", "source": "", "why": "waits in the same collective as 510 other ranks", "confidence": 0.02}]

    def evidence(self, rank):
        waits = rank != 27
        group = lambda name, started, age: {"name": name, "members": 64, "id": 3, "enqueued": started, "started": started, "completed": started - 1 if waits else started, "kind": "all-reduce", "bytes": 1 << 28, "collective": "after step",
                                            "number": started, "age_seconds": age}
        return {"rank": rank, "pid": 4000 + rank, "page_problem": "", "phase": "STEP", "phase_age_seconds": 2.6, "step": 12_790, "progress_age_seconds": 2.4, "step_seconds": 1.31, "collective_wait_seconds": 2.4 if waits else 0.0, "data_wait_seconds": 0.01,
                "groups": [group("data+fsdp", 26 if waits else 25, 2.41 - rank * 0.004 if waits else 2.44), group("tensor", 812, 2.5)], "process_state": "S" if waits else "R", "tracer_pid": 0, "wait_channel": "futex_wait_queue" if waits else "",
                "memory_used_bytes": 81 << 30, "memory_limit_bytes": 256 << 30, "stack_problem": "", "stack_note": "", "files": ["/scratch/muster/nccl_trace_rank_27 (18231 bytes)"] if rank == 27 else [],
                "last_lines": [self.text(f"completed step: {12_780 + i}, seconds: 1.31{i}, loss: 2.3{i}1") for i in range(10)] + [self.text("W1129 18:51:10 dataloader: shard 412 is empty")]}

    def stacks(self):
        frame = lambda function, file="", line=0: {"text": function, "function": self.text(function), "file": file, "line": line, "module": "/opt/muster/bin/muster-trainer"}
        base = [frame("main", "/src/trainer_core/main.cc", 71), frame("muster::trainer::run(Config const&)", "/src/trainer_core/run.cc", 44), frame("muster::trainer::train(Rank&)", "/src/trainer_core/loop/train.cc", 191)]
        wait = base + [frame("muster::trainer::GradientStep::complete()", "/src/trainer_core/loop/gradient_step.cc", 88), frame("muster::trainer::comm::AllReduce::wait()", "/src/trainer_core/comm/all_reduce.cc", 140)]
        stands = base + [frame("muster::trainer::Transformer::embed()", "/src/trainer_core/model/transformer.cc", 261), frame("__memmove_avx512_unaligned_erms")]
        kinds = [([[0, 26], [28, self.ranks - 65]], wait + [frame("epoll_wait")]), ([[self.ranks - 64, self.ranks - 1]], wait + [frame("gloo::transport::Pair::send()", "/src/gloo/pair.cc", 310)]), ([[27, 27]], stands)]
        count = lambda ranges: sum(last - first + 1 for first, last in ranges)
        return {"dropped": 0, "classes": [{"thread": "main", "count": count(ranges), "ranks": ranges, "frames": frames[::-1]} for ranges, frames in kinds] +
                [{"thread": "checkpoint writer", "count": 1, "ranks": [[0, 0]], "frames": [frame("pthread_cond_wait"), frame("muster::trainer::AsyncSave::loop()")]}]}

    def whole_incident(self, i):
        one = next(incident for incident in self.incidents if incident["id"] == i)
        return {**one, "ranks": [self.evidence(rank) for rank in (0, 1, 2, 3, 8, 16, 26, 27, 28, 63, 64, 511)], "stacks": self.stacks(), "kernel_messages": [self.text("[ 8123.11] mlx5_core 0000:1a:00.0: Port module event: module 0, Cable error")]}

    def placement(self):
        nodes = self.ranks // self.ranks_per_node
        names = [self.nodes[i % len(self.nodes)]["name"] if i < len(self.nodes) else f"gpu-{i:05d}" for i in range(nodes)]
        left = self.ranks_per_node
        axes = []
        for name, size in reversed(self.mesh):
            local = math.gcd(size, left)
            left //= local
            axes.insert(0, {"name": name, "size": size, "nodes": size // local, "local": local})
        return {"job": 1, "attempt": 2, "ranks": self.ranks, "ranks_per_node": self.ranks_per_node, "nodes": names, "switches": [f"spine{i // 512}.leaf{i // 16}" for i in range(nodes)], "axes": axes, "phases": PHASES}

    def rank_columns(self):
        """Returns the answer of GET /jobs/1/ranks: a header and binary columns."""
        count, nodes = self.ranks, self.ranks // self.ranks_per_node
        chance = random.Random(self.step)
        slow = set(range(91 * 8, 91 * 8 + 8)) | {27}
        columns = {"life": ("u8", [1] * count), "phase": ("u8", [6 if rank % 64 == 5 else 4 if chance.random() < 0.04 else 5 for rank in range(count)]), "step": ("i32", [self.step - (3 if rank == 27 else chance.random() < 0.05) for rank in range(count)]),
                   "progress_age": ("f32", [6.2 if rank == 27 else chance.random() for rank in range(count)]), "step_seconds": ("f32", [1.31 + (0.5 if rank in slow else 0) + chance.random() / 20 for rank in range(count)]),
                   "straggler": ("f32", [1.42 if rank in slow else 0.97 + chance.random() / 16 for rank in range(count)]), "loss": ("f32", [2.05] * count), "mfu": ("f32", [0.41 + chance.random() / 100 for _ in range(count)]),
                   "node_heartbeat_age": ("f32", [4.8 if node == 21 else chance.random() for node in range(nodes)]), "node_state": ("u8", [1 if node == 21 else 0 for node in range(nodes)])}
        head = {"job": 1, "attempt": 2, "state": "RUNNING", "unix_ns": self.now_ns, "ranks": count, "ranks_per_node": self.ranks_per_node, "columns": []}
        sizes = {"u8": ("B", 1), "i32": ("i", 4), "f32": ("f", 4)}
        padded = lambda size: (size + 7) // 8 * 8
        # The header's size depends on the offsets in it: leave room for their digits.
        room = padded(4 + len(json.dumps(head)) + 120 * len(columns)) - 4
        offset, body = room + 4, b""
        for name, (kind, values) in columns.items():
            code, size = sizes[kind]
            data = struct.pack(f"<{len(values)}{code}", *values)
            head["columns"].append({"name": name, "type": kind, "offset": offset, "count": len(values)})
            body += data.ljust(padded(len(data)), b"\0")
            offset += padded(size * len(values))
        return struct.pack("<I", room) + json.dumps(head).encode().ljust(room) + body

    def log_chunks(self, rank):
        """Returns chunks of the logs of the first ranks, or of one."""
        chunks = []
        for i in range(120):
            for one in range(16) if rank < 0 else [rank]:
                same = i % 4 != 3
                text = self.text(f"completed step: {18_300 + i}, seconds: 1.31{i % 10}, TFLOP/s/device: 405.{i % 10}, loss: 2.{310 - i}") if one == 0 or not same else ""
                if same and not text:
                    text = self.text("data: shard 412 of 4096 begins") if i % 8 == 0 else self.text("checkpoint: wrote 1.2 GiB in 0.8 s")
                chunks.append({"attempt": 2, "rank": one, "offset": 4096 * i, "bytes": len(text.encode()) + 1, "unix_ns": self.now_ns - (120 - i) * 1_310_000_000 + one * 300_000, "text": text + "\n"})
        return chunks
