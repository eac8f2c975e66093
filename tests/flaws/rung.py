# SPDX-License-Identifier: Apache-2.0
"""What the tests of the demonstrations share: the command, and the programs of this build."""
import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ["LADDER_BUILD"])
TOOLS = BUILD / "service" / "inventoryd", BUILD / "audit" / "ladder-audit"
LIMIT_S = 1100


def rung(*words, **environment):
    """scripts/rung, to its end."""
    return subprocess.run([str(ROOT / "scripts" / "rung"), *map(str, words)], capture_output=True, text=True,
                          timeout=LIMIT_S, env={**os.environ, **environment}, check=False)


def left_behind(folder):
    """The processes that have something to do with the folder. A redis-server's words no longer say so: where it is does."""
    found = []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes()
            if str(folder) in f"{words.decode()} {os.readlink(process / 'cwd')}" and process.name != str(os.getpid()):
                found.append(words.replace(b"\0", b" "))
        except OSError:
            pass
    return found
