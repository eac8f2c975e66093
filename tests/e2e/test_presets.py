# SPDX-License-Identifier: Apache-2.0
"""The article's two services are two builds of the same sources: another default lock, no flag."""
import json
import subprocess

import pytest

from place import ROOT


@pytest.mark.parametrize("preset, rung, results", [
    ("local-mutex", "local", ("oversold", "overlap")),
    ("distributed", "watchdog", ("ok",)),
])
def test_the_plan_runs_against_both(place, preset, rung, results):
    build = place.folder / "build"
    for words in (["cmake", "--preset", preset, "-B", build],
                  ["cmake", "--build", build, "--parallel", "2", "--target", "inventoryd", "ladder-audit"]):
        made = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
        assert made.returncode == 0, made.stdout + made.stderr
    place.environment["LADDER_BUILD"] = str(build)
    up = place.shop("up", "--work-ms", 1)
    assert up.code == 0, up
    load = place.jmeter("article", "-Jstock=200", "-Jthreads=300")
    assert load.code == 0, load
    verdict = json.loads((place.runs / "latest" / "verdict.json").read_text())
    assert (verdict["rung"], verdict["write"]) == (rung, "decr")
    assert verdict["result"] in results
    assert place.shop("down").code == 0
    place.check_nothing_is_left()
