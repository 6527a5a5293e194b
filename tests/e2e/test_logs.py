"""`muster logs` of many ranks, by time, with one line for equal lines; and the log files that
agents on the nodes read.
"""
import datetime
import json
import re
import unittest

from harness import SOURCE, wait_until
from programs import ProgramTest


class Logs(ProgramTest):
    def test_lines_are_merged_by_time_and_equal_lines_are_printed_once(self):
        coordinator = self.start_coordinator()
        self.start_worker(coordinator)
        # The last rank writes first; the lines of the ranks are a second apart.
        words = 'echo all of us; sleep $((3 - RANK)); echo "I am $RANK"; echo and again'
        self.muster("submit", "--name", "talk", "--ranks", 4, "--", "sh", "-c", words, check=0)
        following = self.start(self.bin("muster"), "logs", "-f", 1, "--rank", "all")
        wait_until(lambda: "[× 4 ranks: 0-3] all of us" in following.out_path.read_text(), 15, "the line while the job runs")
        wait_until(lambda: self.job(1)["state"] == "SUCCEEDED", 30, "the end")
        self.assertEqual(following.wait(timeout=20), 0, self.output(following))
        text = self.muster("logs", 1, "--rank", "all", check=0).stdout
        for one in (text, following.out_path.read_text()):
            lines = one.splitlines()
            self.assertEqual(lines.count("[× 4 ranks: 0-3] all of us"), 1, one)
            self.assertEqual(re.findall(r"I am (\d)", one), ["3", "2", "1", "0"])
        self.assertIn("[rank 2] I am 2", text)
        plain = self.muster("logs", 1, "--rank", "all", "--no-merge", check=0).stdout
        self.assertEqual(sorted(line for line in plain.splitlines() if "all of us" in line), [f"[rank {rank}] all of us" for rank in range(4)])
        rows = [json.loads(line) for line in self.muster("logs", 1, "--rank", "all", "--json", check=0).stdout.splitlines()]
        self.assertEqual({row["rank"] for row in rows}, {0, 1, 2, 3})
        times = [row["unix_ns"] for row in rows]
        self.assertEqual(times, sorted(times))
        self.assertGreater(times[-1] - times[0], 2.5e9)
        self.assertEqual(self.muster("logs", 1, "--rank", 2, check=0).stdout, "all of us\nI am 2\nand again\n")

    def test_agent_examples_match_the_log_files(self):
        coordinator = self.start_coordinator()
        worker = self.start_worker(coordinator, extra=("--log-format", "json"))
        self.muster("submit", "--name", "talk", "--ranks", 2, "--", "sh", "-c", "echo hello; exec sleep 1000", check=0)
        fluent = "".join(path.read_text() for path in sorted((SOURCE / "deploy/logs").glob("fluent-bit*.conf")))
        ranks, daemons = json.loads((SOURCE / "deploy/logs/cloudwatch-agent.json").read_text())["logs"]["logs_collected"]["files"]["collect_list"]
        path = re.search(r"^    Path +(\S+)", fluent, re.M)[1]
        self.assertEqual(ranks["file_path"], path)
        written = lambda: sorted(self.dir.glob(path.replace("/var/lib/muster/work", "work/node0")))  # noqa: E731
        wait_until(lambda: [one.read_text() for one in written()] == ["hello\n"] * 2, 30, "what the ranks write")
        of_path = re.search(r"^    Regex +(\S+)", fluent, re.M)[1].replace("(?<", "(?P<")
        self.assertEqual([re.search(of_path, str(one)).groupdict() for one in written()], [{"job": "1", "attempt": "1", "rank": rank} for rank in "01"])
        lines = [json.loads(line) for line in self.output(worker).splitlines()]
        self.assertEqual({(line["job"], line["attempt"], line["rank"]) for line in lines if "rank" in line}, {(1, 1, 0), (1, 1, 1)})
        times = [line[re.search(r"^    Time_Key +(\S+)", fluent, re.M)[1]] for line in lines]
        for form in (daemons["timestamp_format"], re.search(r"^    Time_Format +(\S+)", fluent, re.M)[1].replace("%L", "%f")):
            self.assertEqual(len([datetime.datetime.strptime(time, form) for time in times]), len(lines))
        self.muster("cancel", 1, check=0)


if __name__ == "__main__":
    unittest.main()
