# SPDX-License-Identifier: Apache-2.0
"""The judge and what the service really writes: restarts, and histories that were changed afterwards."""
import json
import shutil
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from rung import TOOLS

import ladder
from proxy import Proxy
from scenarios import ALL
from stage import RENEWED_TTL_MS, Stage
from waiting import wait_until


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


class Hiding(Proxy):
    """Redis carries out the restock, but its answer does not come back: it is lost, or held back."""

    def __init__(self, redis, how):
        self.how, self.carried_out = how, lambda: redis("GET", "inventory:{phone}") == "54"
        super().__init__(redis)

    def ask(self, client, server, in_login):
        while data := client.recv(65536):
            if b"INCRBY" in data:
                self.lose_next = self.how == "lost"
                self.held = self.how == "killed"
            in_login.clear()
            server.sendall(data)
        self.cut_pair(client, server)


def add_fifty(instance):
    try:
        return instance.ask("POST", "/inventory/phone/restock", instance.admin_port, '{"add":50}', {"Content-Type": "application/json"})
    except OSError:
        return 0, {}


@pytest.mark.parametrize("write,result", [("decr", "ok"), ("set", "inconclusive")])
@pytest.mark.parametrize("how", ["lost", "killed"])
def test_a_restock_of_which_nobody_tells_the_outcome(tmp_path, how, write, result):
    """It was carried out, and is no oversale. The instance that did it could not tell."""
    with Stage(ladder.find("watchdog"), "killed_holding", *TOOLS, tmp_path, stock=6, write=write, expect=["ok"]) as stage:
        stage.open()
        stage.restocked = True
        stage.redis("ACL", "SETUSER", "default", "-client|kill")
        stage.proxies.append(Hiding(stage.redis, how))
        a = stage.instance("a", RENEWED_TTL_MS, "--stock-redis", stage.proxies[0].url,
                           "--redis-timeout-ms", "60000" if how == "killed" else "500")
        b = stage.instance("b", RENEWED_TTL_MS)
        sell(stage, a)
        sell(stage, b)
        with ThreadPoolExecutor(1) as operator:
            answer = operator.submit(add_fifty, a)
            wait_until(stage.proxies[0].carried_out, "Redis has carried it out")
            if how == "killed":
                a.dead_ns = stage.note("a is killed")
                a.process.kill()
            assert answer.result()[0] == (500 if how == "lost" else 0)
        stage.wait_expired()
        for _ in range(8):
            sell(stage, b)
        verdict = stage.judge()
        assert verdict["result"] == result and verdict["oversold"] == verdict["surplus"] == verdict["duplicate_units"] == 0, verdict["reasons"]
        told = "was carried out" if result == "ok" else "may or may not have been carried out"
        assert any("a restock (add 50) that a began at" in text and told in text for text in verdict["reasons"]), verdict["reasons"]


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


@pytest.mark.parametrize("name", ["history-a.1.jsonl", "history-a.jsonl.1"])
def test_a_history_that_was_moved_away_while_it_sold(tmp_path, name):
    """A sale is inside meanwhile, and another one waits; then the instance is restarted, and moved away again."""
    with Stage(ladder.find("watchdog"), "none", *TOOLS, tmp_path, stock=9, expect=["ok"]) as stage:
        stage.open()
        a, _ = stage.instance("a", RENEWED_TTL_MS), sell(stage, stage.instance("b", RENEWED_TTL_MS))

        def move_away(name):
            a.history.rename(stage.folder / name)
            a.process.send_signal(signal.SIGHUP)
            wait_until(a.history.exists, "another file is begun")

        inside = stage.park(a, "sale.after_read")
        waits, _ = stage.enter(stage.instances["b"], "sale.after_read")
        move_away(name)
        a.resume("sale.after_read")
        stage.wait_inside(waits, "sale.after_read")
        waits.instance.resume("sale.after_read")
        stage.wait_answered(inside, waits)
        restart(stage, "a", signal.SIGTERM)
        a = stage.instances["a"]
        sell(stage, a)
        move_away(name.replace("1", "2"))
        sell(stage, a)
        verdict = stage.judge()
        assert (verdict["result"], verdict["sold"], verdict["by_instance"]["a"]["sold"]) == ("ok", 5, 3), verdict["reasons"]


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
