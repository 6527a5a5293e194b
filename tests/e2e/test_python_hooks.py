"""The hooks for training frameworks, in programs of the real packages: each reports steps and loss,
saves on request, and saves and leaves at SIGTERM.
"""
import json
import os
import shutil
import subprocess
import tempfile
import unittest

from harness import MusterTest, wait_until
from python_tools import named_python, python_or_skip
from test_python_client import package_without_programs

# Steps take long enough for a request to arrive while the program trains.
TORCH = '''
import time, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
import muster.torch

dist.init_process_group("gloo")
training = muster.torch.Training(total_steps=10000)
model = training.watch(DistributedDataParallel(torch.nn.Linear(4, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
# Signals reach the processes of data loaders, too.
batches = iter(torch.utils.data.DataLoader(torch.randn(100000, 4), batch_size=8, num_workers=1))
for n in range(10000):
    loss = model(next(batches)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    time.sleep(0.05)
    save, leave = training.step(n + 1, loss=loss.item())
    if save and dist.get_rank() == 0:
        with training.saving(n + 1):
            torch.save(model.module.state_dict(), f"saved-{n + 1}")
    if leave:
        print("left", flush=True)
        break
'''

HUGGING_FACE = '''
import time, torch
from transformers import Trainer, TrainingArguments
from muster.hugging_face import MusterCallback

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def forward(self, x=None, labels=None):
        time.sleep(0.05)
        return {"loss": self.layer(x).square().mean(), "logits": self.layer(x)}

data = [{"x": torch.randn(4), "labels": torch.zeros(1)} for _ in range(64)]
strategy = "eval_strategy" if "eval_strategy" in TrainingArguments.__dataclass_fields__ else "evaluation_strategy"
args = TrainingArguments("out", max_steps=10000, per_device_train_batch_size=4, logging_steps=1, save_strategy="steps", save_steps=100000,
                         eval_steps=20, report_to=[], disable_tqdm=True, dataloader_num_workers=1, **{strategy: "steps"})
Trainer(Model(), args, train_dataset=data, eval_dataset=data[:4], callbacks=[MusterCallback()]).train()
print("left", flush=True)
'''

LIGHTNING = '''
import time, torch
from pytorch_lightning import LightningModule, Trainer
from muster.lightning import MusterCallback

# The distribution's PyTorch 1.13 cannot import its sharded tensors with Python 3.11.
LightningModule._register_sharded_tensor_state_dict_hooks_if_available = lambda module: None

class Model(LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, index):
        time.sleep(0.05)
        return self.layer(batch).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)

data = torch.utils.data.DataLoader(torch.randn(1600, 4), batch_size=4, num_workers=1)
Trainer(accelerator="cpu", max_steps=10000, default_root_dir="out", callbacks=[MusterCallback("out/saved-{step}")], logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False).fit(Model(), data)
print("left", flush=True)
'''

JAX = '''
import os, time
import jax, jax.numpy as jnp
jax.distributed.initialize(coordinator_address=os.environ["JAX_COORDINATOR_ADDRESS"], num_processes=int(os.environ["JAX_NUM_PROCESSES"]),
                           process_id=int(os.environ["JAX_PROCESS_ID"]))
import muster.jax

training = muster.jax.Training(total_steps=10000)
gradient = jax.jit(jax.value_and_grad(lambda w, x: jnp.square(x @ w).mean()))
w = jnp.ones(4)
for n in range(10000):
    loss, change = gradient(w, jax.random.normal(jax.random.PRNGKey(n), (8, 4)))
    w -= 0.01 * change
    time.sleep(0.05)
    save, leave = training.step(n + 1, loss=loss)
    if save and jax.process_index() == 0:
        with training.saving(n + 1):
            open(f"saved-{n + 1}", "w").write(str(w))
    if leave:
        print("left", flush=True)
        break
'''


class PythonHooks(MusterTest):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.mkdtemp(prefix="muster-python-")
        cls.addClassCleanup(shutil.rmtree, folder, ignore_errors=True)
        cls.site = package_without_programs(folder)

    def with_framework(self, module):
        """Returns an interpreter with the framework and the distribution's PyTorch."""
        torch = python_or_skip("torch")
        if module == "torch" or named_python(module):
            return named_python(module)
        python = python_or_skip(module)
        # The launcher has the interpreter that runs this test; PyTorch is of the distribution's.
        packages = os.path.dirname(os.path.dirname(python))
        launcher = self.dir / "python"
        launcher.write_text(f'#!/bin/sh\nPYTHONPATH="{packages}" exec "{torch}" "$@"\n')
        launcher.chmod(0o755)
        if subprocess.run([launcher, "-c", "import torch, transformers"], capture_output=True, timeout=120).returncode != 0:
            self.skipTest(f"{module} of {packages} cannot be imported by {torch}")
        return launcher

    def trains(self, python, program, ranks, saved, groups=()):
        """Starts the program; requests a checkpoint; then cancels the job. `saved`: the path of a
        checkpoint with the step as {step}. `groups`: the process groups that it reports, and their
        collectives.
        """
        self.start_worker(self.start_coordinator(), slots=ranks)
        script = self.dir / "train.py"
        script.write_text(f"import sys\nsys.path.insert(0, {str(self.site)!r})\n{program}")
        submitted = self.muster("submit", "--ranks", ranks, "--name", "train", "--restarts", 0, "--", python, script, check=0).stdout
        self.assertIn("muster logs -f 1", submitted)

        def steps():
            job = self.job(1)
            self.assertNotIn(job["state"], ("SUCCEEDED", "FAILED", "CANCELLED"), self.muster("logs", 1, "--rank", "all").stdout)
            return [rank for rank in job["ranks"] if rank["step"] >= 3]
        found = wait_until(lambda: len(steps()) == ranks and steps(), 100, "the third step")
        self.assertGreater(found[0]["loss"], 0, found)
        if groups:
            dump = json.loads(self.muster("stacks", 1, "--json", check=0).stdout)
            self.assertEqual([[(group["name"], group["collective"]) for group in rank["groups"]] for rank in dump["ranks"]], [groups] * ranks)
        answer = self.muster("checkpoint", 1, "--json", check=0, timeout=60).stdout
        step = json.loads(answer)["step"]
        self.assertTrue((self.dir / saved.format(step=step)).exists(), answer + str(list(self.dir.iterdir())))
        self.muster("cancel", 1, check=0)
        wait_until(lambda: self.job(1)["state"] == "CANCELLED", 60, "the end")
        output = self.muster("logs", 1, "--rank", "all", check=0).stdout
        self.assertIn("left", output)
        self.assertNotIn("Traceback", output)
        return output

    def test_torch_on_two_ranks(self):
        self.trains(self.with_framework("torch"), TORCH, 2, "saved-{step}", [("ddp", "bucket 0"), ("requests", "requests")])

    def test_hugging_face(self):
        self.trains(self.with_framework("transformers"), HUGGING_FACE, 1, "out/checkpoint-{step}/trainer_state.json")

    def test_lightning(self):
        self.trains(self.with_framework("transformers"), LIGHTNING, 1, "out/saved-{step}")

    def test_jax_on_two_processes(self):
        self.trains(python_or_skip("jax"), JAX, 2, "saved-{step}")


if __name__ == "__main__":
    unittest.main()
