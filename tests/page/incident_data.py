"""Incidents, stacks, ranks and logs of the made-up fleet of fleet_data.py."""
import json
import math
import random
import struct

NOW_NS = 1_795_982_400_000_000_000  # 2026-11-29 20:00 UTC
SECOND = 1_000_000_000
PHASES = ["INIT", "RENDEZVOUS", "LOAD", "COMPILE", "DATA", "STEP", "EVAL", "CHECKPOINT_SAVE", "CHECKPOINT_RESTORE", "SHUTDOWN"]
NAMES = [
    "llama3-70b-pretrain",
    "mixtral-8x22b-sft",
    "gpt-126m-ablation-lr3e4",
    "gemma-27b-long-context",
    "fuji-7b-v2",
    "eval-boolq-nightly",
    "llama2-13b-dpo",
    "moe-64e-capacity",
]


class IncidentData:
    """Incidents, and the ranks of the large job."""

    def incident(self, i):
        kinds = ["hang", "rank died", "worker lost", "slow rank", "gpu fault", "slower than plan"]
        kind = kinds[0] if i == 12 else kinds[i % 6]
        sentences = {
            "hang": 'rank 27 on gpu-0003 holds up 511 ranks: it never entered all-reduce 26 "after step" of data+fsdp, in which ranks 0-26, 28-511 wait (2.4 s); it stands at model/transformer.cc:261 in muster::trainer::Transformer::embed()',
            "rank died": "rank 17 on gpu-0012 ended by signal 9 (SIGKILL): the kernel killed it for memory",
            "worker lost": "worker gpu-0021 cannot be reached: it has sent nothing for 10.0 s",
            "slow rank": "rank 91 on gpu-0011 takes 1.42 times as long for its own work as the median rank",
            "gpu fault": "GPU 3 of gpu-0011 had Xid 79 (fallen off the bus) while rank 91 used it",
            "slower than plan": "a step takes 1.62 s, and its plan 1.31 s (+24%); most of the difference is communication (+0.2 s)",
        }
        fault = NOW_NS - (4128 if i == 12 else (13 - i) * 7000) * SECOND
        after = lambda seconds: fault + int(seconds * SECOND)
        open_ = i in (9, 11)
        recovery = (
            None
            if kind in ("slow rank", "slower than plan")
            else {
                "over": not open_,
                "attempts": 1,
                "best_step": 12_790,
                "restored_step": 12_600,
                "steps_lost": 190,
                "interrupted_by": 0,
                "last_progress_unix_ns": fault,
                "detected_unix_ns": after(1.0),
                "evidence_unix_ns": after(2.3),
                "decided_unix_ns": after(2.31),
                "stopped_unix_ns": after(3.1),
                "started_unix_ns": after(5.2),
                "up_unix_ns": after(8.4),
                "loaded_unix_ns": after(61.0),
                "first_step_unix_ns": after(64.2),
                "caught_up_unix_ns": after(312.0),
            }
        )
        moments = [
            (0, "last progress of the job"),
            (1.0, "suspected: no rank has made progress for 1.0 s; its steps take 0.24 s"),
            (1.1, "stacks of 512 ranks are requested"),
            (2.28, "the second sample is complete"),
            (2.31, "verdict: rank 27 on gpu-0003 holds up 511 ranks"),
            (3.1, "every rank is gone"),
            (5.2, "attempt 2 starts on 64 nodes, with gpu-0062 instead of gpu-0003"),
            (8.4, "every rank is up"),
            (61.0, "every rank has begun to train"),
            (64.2, "the first step is complete"),
            (312.0, "step 12,791 is complete, the first new one"),
        ]
        return {
            "id": i,
            "job": 1 if i == 12 else 1 + i % 8,
            "attempt": 1,
            "job_name": self.text(NAMES[(1 if i == 12 else 1 + i % 8) % len(NAMES)]),
            "kind": kind,
            "open": open_,
            "sentence": self.text(sentences[kind]),
            "diagnosis": self.text("") if self.hostile else "",
            "action": self.text("restart 1 of 3 without gpu-0003"),
            "suspects": self.suspects(),
            "moments": [{"unix_ns": after(seconds), "text": self.text(text)} for seconds, text in moments],
            "recovery": recovery,
        }

    def suspects(self):
        return [
            {
                "rank": 27,
                "worker": self.text("gpu-0003"),
                "axis": "data+fsdp",
                "collective": self.text("after step"),
                "source": self.text("model/transformer.cc:261 in muster::trainer::Transformer::embed()"),
                "why": self.text('never entered all-reduce 26 "after step" of data+fsdp, in which ranks 0-26, 28-511 wait (2.4 s)'),
                "confidence": 0.87,
            },
            {
                "rank": 0,
                "worker": "gpu-0000",
                "axis": "data+fsdp",
                "collective": "after step",
                "source": "loop/train.cc:191 in complete inlined in muster::trainer::train()",
                "why": 'waits in all-reduce 26 "after step" of data+fsdp (2.4 s)',
                "confidence": 0.03,
            },
            {
                "rank": 8,
                "worker": "gpu-0001",
                "axis": "",
                "collective": "",
                "source": "",
                "why": "waits in the same collective as 510 other ranks",
                "confidence": 0.02,
            },
        ]

    def evidence(self, rank):
        waits = rank != 27
        group = lambda name, started, age: {
            "name": name,
            "members": 64,
            "id": 3,
            "enqueued": started,
            "started": started,
            "completed": started - 1 if waits else started,
            "kind": "all-reduce",
            "bytes": 1 << 28,
            "collective": "after step",
            "number": started,
            "age_seconds": age,
        }
        return {
            "rank": rank,
            "pid": 4000 + rank,
            "page_problem": "",
            "phase": "STEP",
            "phase_age_seconds": 2.6,
            "step": 12_790,
            "progress_age_seconds": 2.4,
            "step_seconds": 1.31,
            "collective_wait_seconds": 2.4 if waits else 0.0,
            "data_wait_seconds": 0.01,
            "groups": [group("data+fsdp", 26 if waits else 25, 2.41 - rank * 0.004 if waits else 2.44), group("tensor", 812, 2.5)],
            "process_state": "S" if waits else "R",
            "tracer_pid": 0,
            "wait_channel": "futex_wait_queue" if waits else "",
            "memory_used_bytes": 81 << 30,
            "memory_limit_bytes": 256 << 30,
            "stack_problem": "",
            "stack_note": "",
            "files": ["/scratch/muster/nccl_trace_rank_27 (18231 bytes)"] if rank == 27 else [],
            "last_lines": [self.text(f"completed step: {12_780 + i}, seconds: 1.31{i}, loss: 2.3{i}1") for i in range(10)]
            + [self.text("W1129 18:51:10 dataloader: shard 412 is empty")],
        }

    def stacks(self):
        frame = lambda function, file="", line=0: {
            "text": function,
            "function": self.text(function),
            "file": file,
            "line": line,
            "module": "/opt/muster/bin/muster-trainer",
        }
        base = [
            frame("main", "/src/trainer_core/main.cc", 71),
            frame("muster::trainer::run(Config const&)", "/src/trainer_core/run.cc", 44),
            frame("muster::trainer::train(Rank&)", "/src/trainer_core/loop/train.cc", 191),
        ]
        wait = base + [
            frame("muster::trainer::GradientStep::complete()", "/src/trainer_core/loop/gradient_step.cc", 88),
            frame("muster::trainer::comm::AllReduce::wait()", "/src/trainer_core/comm/all_reduce.cc", 140),
        ]
        stands = base + [
            frame("muster::trainer::Transformer::embed()", "/src/trainer_core/model/transformer.cc", 261),
            frame("__memmove_avx512_unaligned_erms"),
        ]
        kinds = [
            ([[0, 26], [28, self.ranks - 65]], wait + [frame("epoll_wait")]),
            ([[self.ranks - 64, self.ranks - 1]], wait + [frame("gloo::transport::Pair::send()", "/src/gloo/pair.cc", 310)]),
            ([[27, 27]], stands),
        ]
        count = lambda ranges: sum(last - first + 1 for first, last in ranges)
        return {
            "dropped": 0,
            "classes": [{"thread": "main", "count": count(ranges), "ranks": ranges, "frames": frames[::-1]} for ranges, frames in kinds]
            + [
                {
                    "thread": "checkpoint writer",
                    "count": 1,
                    "ranks": [[0, 0]],
                    "frames": [frame("pthread_cond_wait"), frame("muster::trainer::AsyncSave::loop()")],
                }
            ],
        }

    def whole_incident(self, i):
        one = next(incident for incident in self.incidents if incident["id"] == i)
        return {
            **one,
            "ranks": [self.evidence(rank) for rank in (0, 1, 2, 3, 8, 16, 26, 27, 28, 63, 64, 511)],
            "stacks": self.stacks(),
            "kernel_messages": [self.text("[ 8123.11] mlx5_core 0000:1a:00.0: Port module event: module 0, Cable error")],
        }

    def placement(self):
        nodes = self.ranks // self.ranks_per_node
        names = [self.nodes[i % len(self.nodes)]["name"] if i < len(self.nodes) else f"gpu-{i:05d}" for i in range(nodes)]
        left = self.ranks_per_node
        axes = []
        for name, size in reversed(self.mesh):
            local = math.gcd(size, left)
            left //= local
            axes.insert(0, {"name": name, "size": size, "nodes": size // local, "local": local})
        return {
            "job": 1,
            "attempt": 2,
            "ranks": self.ranks,
            "ranks_per_node": self.ranks_per_node,
            "nodes": names,
            "switches": [f"spine{i // 512}.leaf{i // 16}" for i in range(nodes)],
            "axes": axes,
            "phases": PHASES,
        }

    def rank_columns(self):
        """Returns the answer of GET /jobs/1/ranks: a header and binary columns."""
        count, nodes = self.ranks, self.ranks // self.ranks_per_node
        chance = random.Random(self.step)
        slow = set(range(91 * 8, 91 * 8 + 8)) | {27}
        columns = {
            "life": ("u8", [1] * count),
            "phase": ("u8", [6 if rank % 64 == 5 else 4 if chance.random() < 0.04 else 5 for rank in range(count)]),
            "step": ("i32", [self.step - (3 if rank == 27 else chance.random() < 0.05) for rank in range(count)]),
            "progress_age": ("f32", [6.2 if rank == 27 else chance.random() for rank in range(count)]),
            "step_seconds": ("f32", [1.31 + (0.5 if rank in slow else 0) + chance.random() / 20 for rank in range(count)]),
            "straggler": ("f32", [1.42 if rank in slow else 0.97 + chance.random() / 16 for rank in range(count)]),
            "loss": ("f32", [2.05] * count),
            "mfu": ("f32", [0.41 + chance.random() / 100 for _ in range(count)]),
            "node_heartbeat_age": ("f32", [4.8 if node == 21 else chance.random() for node in range(nodes)]),
            "node_state": ("u8", [1 if node == 21 else 0 for node in range(nodes)]),
        }
        head = {
            "job": 1,
            "attempt": 2,
            "state": "RUNNING",
            "unix_ns": self.now_ns,
            "ranks": count,
            "ranks_per_node": self.ranks_per_node,
            "columns": [],
        }
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
        chunks, ends = [], {}
        for i in range(120):
            for one in range(16) if rank < 0 else [rank]:
                same = i % 4 != 3
                text = (
                    self.text(f"completed step: {18_300 + i}, seconds: 1.31{i % 10}, TFLOP/s/device: 405.{i % 10}, loss: 2.{310 - i}")
                    if one == 0 or not same
                    else ""
                )
                if same and not text:
                    text = self.text("data: shard 412 of 4096 begins") if i % 8 == 0 else self.text("checkpoint: wrote 1.2 GiB in 0.8 s")
                size = len(text.encode()) + 1
                chunks.append(
                    {
                        "attempt": 2,
                        "rank": one,
                        "offset": ends.get(one, 0),
                        "bytes": size,
                        "unix_ns": self.now_ns - (120 - i) * 1_310_000_000 + one * 300_000,
                        "text": text + "\n",
                    }
                )
                ends[one] = ends.get(one, 0) + size
        return chunks
