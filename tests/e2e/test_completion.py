"""Completion in a shell on a terminal, by typed keys."""
import os
import select
import shutil
import subprocess
import time
import unittest

from grpc_frames import FakeServer, encode
from harness import BIN, MusterTest, wait_until

PROMPT = b"READY> "
# Types lines on a terminal of zsh, and prints the last word of each.
ZSH = r"""zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell 'PS1= PS2= RPS1= ; autoload -Uz compinit && compinit -u; eval "$(muster completion zsh)"; muster() { print -r -- "last=${@[-1]}" }; print set-up-ended'
zpty -m -r shell text '*set-up-ended*set-up-ended*'
for typed in 'muster cancel 12' 'muster node admit gpu-node8' 'muster run a.yml model_name=gpt3-52'; do
  zpty -w -n shell "$typed"$'\t\n'
  zpty -m -r shell text '*last=*'$'\n'
  print -r -- ${${text##*last=}%%$'\r'*}
done
zpty -d shell
"""


class Bash(MusterTest):
    """An interactive bash in which `muster` is a function that records its arguments."""

    def setUp(self):
        super().setUp()
        (self.dir / "configs").mkdir()
        (self.dir / "configs/base.yml").write_text("")
        (self.dir / "run").mkdir()  # a folder named like a command
        (self.dir / "shards").mkdir()
        self.keys, terminal = os.openpty()
        self.addCleanup(os.close, self.keys)
        env = {**self.env, "PATH": f"{BIN}:{os.environ['PATH']}", "PS1": PROMPT.decode(), "TERM": "dumb", "INPUTRC": "/dev/null",
               "HISTFILE": "/dev/null"}
        self.shell = subprocess.Popen(["bash", "--norc", "--noprofile", "-i"], stdin=terminal, stdout=terminal, stderr=terminal,
                                      env=env, cwd=self.dir, start_new_session=True)
        self.processes.append(self.shell)
        os.close(terminal)
        self.wait_for_prompt()
        self.type(f'eval "$(muster completion bash)"; muster() {{ printf "<%s>" "$@" > {self.dir}/output; }}\n')

    def wait_for_prompt(self):
        seen, deadline = b"", time.monotonic() + 20
        while PROMPT not in seen:
            self.assertTrue(select.select([self.keys], [], [], max(0, deadline - time.monotonic()))[0], seen)
            seen += os.read(self.keys, 65536)

    def type(self, text):
        os.write(self.keys, text.encode())
        self.wait_for_prompt()

    def completed(self, text):
        self.type(text + "\n")
        return (self.dir / "output").read_text()

    def test_tab_completes_commands_options_keys_and_files(self):
        for typed, meant in (("muster r\t", "<run>"),
                             ("muster train\t", "<train-tokenizer>"),
                             ("muster run configs/b\t", "<run><configs/base.yml>"),
                             ("muster run configs/base.yml model_n\tllama2-tiny --ran\t 2",
                              "<run><configs/base.yml><model_name=llama2-tiny><--ranks><2>"),
                             ("muster run configs/base.yml dataset_path=sha\t", "<run><configs/base.yml><dataset_path=shards/>"),
                             ("muster config sho\t configs/base.yml --js\t", "<config><show><configs/base.yml><--json>"),
                             ("muster config sho\t configs/base.yml --ch\t", "<config><show><configs/base.yml><--changed>"),
                             ("muster completion z\t", "<completion><zsh>"),
                             ("muster run configs/base.yml model_name=gpt3-52\t", "<run><configs/base.yml><model_name=gpt3-52k>"),
                             ("muster run configs/base.yml async_checkpointing=F\t", "<run><configs/base.yml><async_checkpointing=False>"),
                             ("muster logs --fol\t 7", "<logs><--follow><7>"),
                             ("muster cancel --token-file sha\t", "<cancel><--token-file><shards/>")):
            self.assertEqual(self.completed(typed), meant, typed)

    def test_texts_of_others_are_not_commands(self):
        harm = ("$(touch${IFS}injected)", "`touch${IFS}injected`", "${HOME}", "a;touch injected", "'", "a b")
        (self.dir / "models").mkdir()
        for name in (*harm, "plain-model"):
            (self.dir / f"models/{name}.yml").write_text("")
        (self.dir / "a.yml").write_text("")
        workers = "".join(f'workers {{ name: "{name}" }} ' for name in (*harm, "plain-node"))
        with FakeServer(encode("ListWorkersResponse", workers)) as server:
            self.type(f"export MUSTER_COORDINATOR={server.address}\n")
            for typed, meant in (("muster run a.yml model_name=\t", "<run><a.yml><model_name=plain-model>"),
                                 ("muster run a.yml model_name=\\$\t", "<run><a.yml><model_name=$>"),
                                 ("muster node exclude \t", "<node><exclude><plain-node>")):
                self.assertEqual(self.completed(typed), meant, typed)
            self.assertEqual(server.calls, 1)
            env = {**self.env, "PATH": f"{BIN}:{os.environ['PATH']}", "MUSTER_COORDINATOR": server.address, "HOME": str(self.dir)}
            for line in ("muster run a.yml model_name=", "muster node exclude "):
                shown = subprocess.run([BIN / "muster", "completion", "--line", line], env=env, cwd=self.dir, capture_output=True, text=True, timeout=60)
                self.assertRegex(shown.stdout, r"^value\nplain-(model|node\tnot connected)\n$")
        self.assertEqual(list(self.dir.rglob("injected")), [])

    def test_tab_completes_jobs_and_nodes_of_the_coordinator(self):
        coordinator = self.start_coordinator()
        self.start_worker(coordinator, "gpu-node7", 1)
        self.start_worker(coordinator, "gpu-node8", 1)
        for job in range(12):
            self.muster("submit", "--name", f"sleeper{job}", "--", "sleep", "600", check=0)
        self.muster("cancel", 2, "--force", check=0)
        wait_until(lambda: self.job(2)["state"] == "CANCELLED", 30, "the end of job 2")
        self.type(f"export MUSTER_COORDINATOR={coordinator.address}\n")
        for typed, meant in (("muster cancel 12\t", "<cancel><12>"),
                             ("muster cancel 2\t", "<cancel><2>"),  # has ended: it stays as typed
                             ("muster history 1\t2", "<history><12>"),  # 1 and 10 to 12 are there
                             ("muster update 12 log_pe\t5", "<update><12><log_period=5>"),
                             ("muster node exclude gpu-node8\t", "<node><exclude><gpu-node8>"),
                             ("muster node adm\t gp\t7", "<node><admit><gpu-node7>")):
            self.assertEqual(self.completed(typed), meant, typed)
        # The flags of the line count.
        self.type("export MUSTER_COORDINATOR=127.0.0.1:1\n")
        self.assertEqual(self.completed(f"muster node admit --coordinator {coordinator.address} gp\t8").split("><")[-1], "gpu-node8>")
        self.assertEqual(self.completed("muster cancel 12\t"), "<cancel><12>")  # nothing answers

        env = {**self.env, "PATH": f"{BIN}:{os.environ['PATH']}", "MUSTER_COORDINATOR": coordinator.address, "HOME": str(self.dir)}
        for shell, command, lines in (
                ("fish", "muster completion fish | source; complete -C 'muster cancel 1'; complete -C 'muster node admit gpu'; complete -C 'muster run a.yml model_name=gpt3-52'",
                 ["1\tsleeper0, RUNNING", "10\tsleeper9, QUEUED", "gpu-node7\tconnected", "model_name=gpt3-52k"]),
                ("zsh", ZSH, ["12", "gpu-node8", "model_name=gpt3-52k"])):
            if shutil.which(shell) is None:
                continue
            with self.subTest(shell):
                shown = subprocess.run([shell, "-c", command], env=env, cwd=self.dir, capture_output=True, text=True, timeout=60)
                for line in lines:
                    self.assertIn(line, shown.stdout.splitlines(), shown)


if __name__ == "__main__":
    unittest.main()
