# SPDX-License-Identifier: Apache-2.0
"""What the tests in this folder share: the scripts' functions called one by one, and waiting for causes."""
import functools
import os
import pathlib
import re
import subprocess

import waiting

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCENARIOS = ROOT / "jmeter" / "scenarios"
PATIENCE_S = 300  # how long something may take that must come about
wait_until = functools.partial(waiting.wait_until, patience_s=PATIENCE_S)


def call(*words, root=ROOT, env=None, **more):
    """Runs a function of scripts/lib, as a script would that sourced it."""
    source = "; ".join(f'source "{root}/scripts/lib/{name}.sh"'
                       for name in ("common", "jmeter", "nginx", "setup"))
    return run("bash", "-c", f'{source}; "$@"', "ladder", *words, env=env, **more)


def run(*words, env=None, **more):
    environment = {name: str(value) for name, value in {**os.environ, **(env or {})}.items()
                   if value is not None}
    return subprocess.run([str(word) for word in words], capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, env=environment, timeout=600, **more)


def complaints(log):
    """What JMeter's log holds against the plan. Not that this machine cannot resolve its own name."""
    return [line for line in log.read_text().splitlines()
            if re.search(r" (WARN|ERROR|FATAL) ", line) and "local host IP address" not in line]
