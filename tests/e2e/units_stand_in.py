#!/usr/bin/env python3
"""A stand-in for systemctl on a system without systemd: it runs the command lines of units as their
users and restarts nothing. Units' sandboxes are not set up. Logs go to /tmp/UNIT.log.
"""
import os
import pathlib
import pwd
import re
import shlex
import signal
import subprocess
import sys
import time

RUN = pathlib.Path("/run/units")
STOP_SECONDS = 60


def settings(unit):
    """Returns [(key, value)] of a unit file."""
    lines = pathlib.Path("/usr/lib/systemd/system", unit).read_text().splitlines()
    return [tuple(line.split("=", 1)) for line in lines if re.match(r"[A-Za-z]+=", line)]


def main_pid(unit):
    file = RUN / unit
    pid = int(file.read_text()) if file.exists() else 0
    return pid if pid and pathlib.Path(f"/proc/{pid}").exists() else 0


def stop(unit):
    pid = main_pid(unit)
    if pid:
        os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + STOP_SECONDS
        while main_pid(unit) and time.monotonic() < deadline:
            time.sleep(0.05)
        if main_pid(unit):
            raise SystemExit(f"{unit} does not end")
    (RUN / unit).unlink(missing_ok=True)


def start(unit):
    if main_pid(unit):
        return
    unit_settings = dict(settings(unit))
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}
    for line in pathlib.Path(unit_settings["EnvironmentFile"]).read_text().splitlines():
        if line and not line.startswith("#"):
            name, value = line.split("=", 1)
            environment[name] = "".join(shlex.split(value))
    words = []
    for word in unit_settings["ExecStart"].replace("%S", "/var/lib").split():
        words += environment[word[1:]].split() if word.startswith("$") else [word]
    user = pwd.getpwnam(unit_settings["User"])
    state = pathlib.Path("/var/lib", unit_settings["StateDirectory"])
    state.mkdir(exist_ok=True)
    state.chmod(int(unit_settings["StateDirectoryMode"], 8))
    os.chown(state, user.pw_uid, user.pw_gid)
    with open(f"/tmp/{unit}.log", "ab") as log:
        process = subprocess.Popen(["setsid", "--fork", "sh", "-c", f'echo $$ > {RUN / unit}; exec setpriv --reuid {user.pw_uid} --regid {user.pw_gid} '
                                    f'--clear-groups --no-new-privs --bounding-set=-all "$@"', "sh", *words],
                                   env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/")
    process.wait()
    deadline = time.monotonic() + 10
    while not main_pid(unit):
        if time.monotonic() > deadline:
            raise SystemExit(f"{unit} does not start")
        time.sleep(0.02)


def main():
    RUN.mkdir(exist_ok=True)
    options = [word for word in sys.argv[1:] if word.startswith("-")]
    action, *units = [word for word in sys.argv[1:] if not word.startswith("-") and word != "MainPID"]
    with open("/tmp/systemctl.log", "a") as log:
        print(action, *units, file=log)
    if action == "is-enabled":
        print("enabled")
    elif action == "preset":
        for unit in units:
            link = pathlib.Path("/etc/systemd/system", dict(settings(unit))["WantedBy"] + ".wants", unit)
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(f"/lib/systemd/system/{unit}")
    elif action == "show" and "--property" in options and "--value" in options:
        print(main_pid(units[0]))
    elif action == "is-active":
        return 0 if main_pid(units[0]) else 3
    elif action in ("start", "stop", "restart", "try-restart"):
        for unit in units:
            was_active = main_pid(unit)
            if action != "start":
                stop(unit)
            if action in ("start", "restart") or action == "try-restart" and was_active:
                start(unit)
    elif action != "daemon-reload":
        raise SystemExit(f"the stand-in has no {action}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
