"""A worker whose deep checks measure fixed speeds, because those of a loaded machine vary."""
import shutil

from harness import BIN

# Runs the real check. Its failures, and the bandwidths between nodes, remain.
TRAINER = """#!/usr/bin/env python3
import json, subprocess, sys
done = subprocess.run(["{trainer}", *sys.argv[1:]], stdout=subprocess.PIPE, check=False)
try:
    result = json.loads(done.stdout)
    for one in result["measurements"]:
        if one["name"] != "all_reduce":
            one["value"] = {gemm} if one["name"] == "gemm" else 1
    print(json.dumps(result))
except (ValueError, KeyError):
    sys.stdout.buffer.write(done.stdout)
sys.exit(done.returncode)
"""


def steady_worker(folder, gemm=1):
    """Returns the path of a copy of muster-worker, whose nodes compute GEMMs at this rate."""
    folder.mkdir()
    shutil.copy(BIN / "muster-worker", folder)
    trainer = folder / "muster-trainer"
    trainer.write_text(TRAINER.format(trainer=BIN / "muster-trainer", gemm=gemm))
    trainer.chmod(0o755)
    return folder / "muster-worker"
