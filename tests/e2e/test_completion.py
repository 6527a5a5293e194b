"""Completion in a shell on a terminal, by typed keys."""
import os
import select
import subprocess
import time
import unittest

from harness import BIN, MusterTest

PROMPT = b"READY> "


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
                             ("muster logs --fol\t 7", "<logs><--follow><7>")):
            self.assertEqual(self.completed(typed), meant, typed)


if __name__ == "__main__":
    unittest.main()
