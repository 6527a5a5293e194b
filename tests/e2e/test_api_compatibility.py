"""Compares the API with its committed descriptor set, and makes changes that it must find."""
import shutil
import subprocess
import unittest

from harness import SOURCE, MusterTest

BREAKING = (("  bool force = 2;\n}\nmessage CancelJobResponse {", "}\nmessage CancelJobResponse {"),
            ("message CheckpointJobRequest { uint64 job_id = 1; }", "message CheckpointJobRequest { uint64 job_id = 2; }"),
            ("  rpc FollowLogs(FollowLogsRequest) returns (stream LogChunk);", "  rpc FollowLogs(FollowLogsRequest) returns (LogChunk);"),
            ("  rpc GetJob(GetJobRequest) returns (Job);\n", ""),
            ("  SUCCEEDED = 5;", "  SUCCEEDED = 95;"),
            ("message CancelJobRequest {\n  uint64 job_id = 1;", "message CancelJobRequest {\n  string job_id = 1;"),
            ("message WatchJobRequest { uint64 job_id = 1; }", "message WatchJobRequest { oneof which { uint64 job_id = 1; string name = 2; } }"))
FOUND = ["field muster.v1.CancelJobRequest.force is removed",
         "field muster.v1.CancelJobRequest.job_id: type is TYPE_STRING, and was TYPE_UINT64",
         "field muster.v1.CheckpointJobRequest.job_id: number is 2, and was 1",
         "field muster.v1.WatchJobRequest.job_id: oneof_index is 0, and was unset",
         "method muster.v1.Muster.FollowLogs: server_streaming is unset, and was true",
         "method muster.v1.Muster.GetJob is removed",
         "value muster.v1.JobState.SUCCEEDED: number is 95, and was 5"]


@unittest.skipIf(shutil.which("protoc") is None, "no protoc here")
class ApiCompatibility(MusterTest):
    def check(self, *changes):
        """Checks a copy of the API with texts replaced: (old, new). Returns the status and the
        complaints.
        """
        folder = self.dir / "proto"
        shutil.copytree(SOURCE / "proto/muster", folder / "muster")
        path = folder / "muster/v1/muster.proto"
        text = path.read_text()
        for old, new in changes:
            self.assertEqual(text.count(old), 1, old)
            text = text.replace(old, new)
        path.write_text(text)
        checked = subprocess.run([SOURCE / "proto/check_api.py", folder], capture_output=True, text=True, timeout=60)
        shutil.rmtree(folder)
        return checked.returncode, checked.stderr

    def test_no_change_breaks_programs_of_the_other_version(self):
        self.assertEqual(self.check(), (0, ""))

    def test_an_additional_field_is_compatible(self):
        self.assertEqual(self.check(("message CancelJobRequest {", "message CancelJobRequest {\n  string another = 900;")), (0, ""))

    def test_breaking_changes_are_found(self):
        status, complaints = self.check(*BREAKING)
        self.assertEqual(status, 1)
        self.assertEqual([line.removeprefix("proto/check_api.py: ").removesuffix(": programs of the other version break") for line in complaints.splitlines()], FOUND)


if __name__ == "__main__":
    unittest.main()
