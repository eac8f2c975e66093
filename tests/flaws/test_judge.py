# SPDX-License-Identifier: Apache-2.0
"""The judge and what the service really writes: restarts, and histories that were changed afterwards."""
import json
import shutil
import signal

import pytest

from rung import TOOLS

import ladder
from schedules import ALL
from stage import RENEWED_TTL_MS, Stage, wait_until


def sell(stage, instance):
    sale = instance.sell("")
    wait_until(lambda: sale.answered, f"{sale.name} is answered")
    assert sale.status == 200, sale.answer


def restart(stage, name, how):
    """The same instance once more, which goes on in its history."""
    stage.instances[name].process.send_signal(how)
    stage.instances[name].process.wait(timeout=30)
    shutil.rmtree(stage.folder / f"files-{name}")
    stage.instance(name, RENEWED_TTL_MS)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=["told", "killed"])
def test_an_instance_that_was_restarted(tmp_path, how):
    with Stage(ladder.find("watchdog"), "killed_holding", *TOOLS, tmp_path, stock=6) as stage:
        stage.open()
        for name in ("a", "b"):
            sell(stage, stage.instance(name, RENEWED_TTL_MS))
        for _ in range(2):
            restart(stage, "a", how)
            sell(stage, stage.instances["a"])
        verdict = stage.judge()
        begins = [line for line in stage.instances["a"].history.read_text().splitlines() if '"event":"begin"' in line]
        assert len(begins) == 3
        assert (verdict["result"], verdict["sold"], verdict["by_instance"]["a"]["sold"]) == ("ok", 4, 3), verdict["reasons"]


def test_a_real_history_that_was_moved_in_time(tmp_path):
    """Two inside together stay two inside together, or nothing can be said; the judge never says that all was well."""
    with Stage(ladder.find("local"), "two_instances", *TOOLS, tmp_path, write="decr", stock=9, expect=["overlap"]) as stage:
        ALL["two_instances"].run(stage)
        assert stage.judge()["result"] == "overlap"
        history = stage.instances["b"].history
        lines = [json.loads(line) for line in history.read_text().splitlines()]
        for by_ns in (60_000_000_000, 1_000_000, -1_000_000):
            history.write_text("".join(json.dumps({**line, "t_ns": line["t_ns"] + by_ns}) + "\n" for line in lines))
            verdict = stage.judge()
            assert verdict["result"] == "inconclusive", verdict["reasons"]
            assert any(f"its times are {by_ns / 1e6:.3f} ms off" in text for text in verdict["reasons"]), verdict["reasons"]
