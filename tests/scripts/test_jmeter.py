# SPDX-License-Identifier: Apache-2.0
"""The plan, headless, against a real shop, and how JMeter is found, checked and told of."""
import collections
import contextlib
import csv
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import struct
import subprocess
import threading

import pytest

from bench import ROOT, SCENARIOS, call, complaints, run, wait_until
from ports import free_port, free_ports
from tools import path_without

JMETER = ROOT / ".cache" / "jmeter"


class Shop:
    def __init__(self, folder):
        while True:  # in a row: nginx's two, Redis', two instances' and their admin listeners'
            ports = free_ports(7)
            if ports[6] - ports[0] == 6:
                break
        self.port = ports[0]
        self.token_file = folder / "token"
        self.token_file.write_text("0123456789abcdef\nno token\n")
        self.env = {"LADDER_STATE": folder / "state"}
        up = run(ROOT / "scripts/shop", "up", "--port", ports[0], "--redis-port", ports[2],
                 "--base-port", ports[3], "--port-step", 2, "--admin-token-file", self.token_file, env=self.env)
        assert up.returncode == 0, up.stderr
        self.log = folder / "state" / str(self.port) / "nginx" / "access.log"

    def down(self):
        down = run(ROOT / "scripts/shop", "down", "--port", self.port, env=self.env)
        assert down.returncode == 0, down.stderr


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    shop = Shop(tmp_path_factory.mktemp("shop"))
    yield shop
    shop.down()


class Nowhere:
    """No shop."""
    token_file = ""

    def __init__(self, port):
        self.port = port


class Run:
    """One run of the plan and what it left."""

    def __init__(self, folder, shop, scenario, *properties):
        self.folder = folder
        self.done = call("jmeter_run", "--scenario", SCENARIOS / f"{scenario}.properties", "--out",
                         folder, "--host", "127.0.0.1", "--port", shop.port, "--operators",
                         f"127.0.0.1:{shop.port + 1}", "--token-file", shop.token_file, *properties)

    @property
    def rows(self):
        assert self.done.returncode == 0, self.done.stderr
        with open(self.folder / "sale.jtl", newline="") as file:
            return list(csv.DictReader(file))

    def of(self, label):
        return [row for row in self.rows if row["label"] == label]

    def codes(self):
        return collections.Counter(row["responseCode"] for row in self.of("POST sale"))

    def complaints(self):
        return complaints(self.folder / "jmeter.log")


def test_the_plan_by_itself_waits_longer_than_nginx():
    nginx_s = re.search(r"proxy_read_timeout ([0-9]+)s;", (ROOT / "deploy/nginx/nginx.conf.in").read_text())[1]
    plan_ms = re.search(r"__P\(response_ms,([0-9]+)\)", (ROOT / "jmeter/sale.jmx").read_text())[1]
    assert int(plan_ms) == int(nginx_s) * 1000 + 15000


def start(row):
    return int(row["timeStamp"])


def end(row):
    return start(row) + int(row["elapsed"])


def in_nginx_log(shop, rows):
    """The samples as nginx saw them, joined by their ids."""
    ids = {row["request"] for row in rows}
    assert len(ids) == len(rows)
    seen = {}

    def all_there():
        for line in shop.log.read_text().splitlines():
            entry = json.loads(line)
            if entry["request"] in ids:
                seen[entry["request"]] = entry
        return len(seen) == len(rows)
    wait_until(all_there, "all ids in nginx's log")
    return [seen[row["request"]] for row in rows]


@pytest.fixture(scope="module")
def smoke(shop, tmp_path_factory):
    """One run for all who only look at what it left."""
    return Run(tmp_path_factory.mktemp("smoke"), shop, "smoke")


def test_smoke_and_every_column(shop, smoke):
    run = smoke
    assert run.codes() == {"200": 5, "409": 5}
    assert not run.complaints()
    buys = run.of("POST sale")
    assert {row["success"] for row in run.rows} == {"true"}
    sold = [row for row in buys if row["responseCode"] == "200"]
    assert sorted(int(row["unit"]) for row in sold) == [1, 2, 3, 4, 5]
    assert all(int(row["left"]) == int(row["unit"]) - 1 and row["item"] == "phone" for row in sold)
    refused = [row for row in buys if row["responseCode"] == "409"]
    assert {(row["unit"], row["left"], row["item"]) for row in refused} == {("", "0", "")}
    assert {row["instance"] for row in buys} == {"a", "b"}
    for row, entry in zip(buys, in_nginx_log(shop, buys)):
        assert (entry["method"], entry["uri"], str(entry["status"])) == (
            "POST", "/inventory/phone/sale", row["responseCode"])
    assert [row["left"] for row in run.of("GET stock")] == ["0"]
    # JMeter's own dashboard holds the same numbers.
    totals = json.loads((run.folder / "dashboard" / "statistics.json").read_text())
    assert totals["POST sale"]["sampleCount"] == 10
    assert totals["POST sale"]["errorCount"] == 0
    assert (run.folder / "dashboard" / "index.html").exists()


def test_the_article_1500_come_at_once(shop, tmp_path):
    run = Run(tmp_path, shop, "article")
    assert run.codes() == {"200": 1000, "409": 500}
    assert not run.complaints()
    buys = run.of("POST sale")
    assert len({row["unit"] for row in buys if row["unit"]}) == 1000
    assert len(in_nginx_log(shop, buys)) == 1500
    # They met: nobody bought before the last of them had looked.
    assert len(run.of("GET look")) == 1500
    assert max(end(row) for row in run.of("GET look")) <= min(start(row) for row in buys)
    # The dashboard is fine enough to show a burst.
    assert "overall_granularity" in (ROOT / "jmeter/user.properties").read_text()


def test_many_items_in_turn(shop, tmp_path):
    run = Run(tmp_path, shop, "many-items")
    names = [f"phone-{number:02}" for number in range(1, 21)]
    assert run.codes() == {"200": 1000, "409": 500}
    asked = collections.Counter(entry["uri"].split("/")[2]
                                for entry in in_nginx_log(shop, run.of("POST sale")))
    assert asked == dict.fromkeys(names, 75)
    assert sorted(row["item"] for row in run.of("GET stock")) == names


def test_given_names_loops_and_quantity(shop, tmp_path):
    run = Run(tmp_path, shop, "smoke", "-Jitems=b,a-1,c_2", "-Jstock=30", "-Jthreads=20",
              "-Jloops=3", "-Jquantity=2", "-Jmeet_every_loop=true", "-Jlook_first=false")
    assert run.codes() == {"200": 45, "409": 15}
    assert not run.of("GET look")
    assert collections.Counter(entry["uri"] for entry in in_nginx_log(shop, run.of("POST sale"))) \
        == {f"/inventory/{name}/sale": 20 for name in ("b", "a-1", "c_2")}
    # A buyer's loops in order: nobody begins one before all have ended the one before.
    loops = [[], [], []]
    for thread in {row["threadName"] for row in run.of("POST sale")}:
        mine = sorted((row for row in run.of("POST sale") if row["threadName"] == thread), key=start)
        for loop, row in zip(loops, mine):
            loop.append(row)
        # The connection of the first loop serves the others.
        assert [int(row["Connect"]) > 0 for row in mine][1:] == [False, False]
    for before, after in zip(loops, loops[1:]):
        assert max(end(row) for row in before) <= min(start(row) for row in after)


def test_soak_restocks_and_ends(shop, tmp_path):
    run = Run(tmp_path, shop, "soak", "-Jduration=7", "-Jrestock_every=2", "-Jthreads=10",
              "-Jstock=20", "-Jpace=10")
    restocks = run.of("PUT restock")
    assert len(restocks) >= 2
    buys = run.of("POST sale")
    for restock in restocks[:-1]:
        assert any(row["responseCode"] == "200" and start(row) >= start(restock) for row in buys)
    assert {row["success"] for row in run.rows} == {"true"}


def fire(shop, folder, *words, env=None):
    """A run through the script, which ends with the judge's verdict: what it said, its samples, the verdict."""
    done = run(ROOT / "scripts/jmeter", "smoke", "--port", shop.port, "--runs", folder, *words,
               env={**shop.env, **(env or {})})
    if done.returncode == 2 and "latest" not in os.listdir(folder):
        return done, None, None
    left = folder / "latest"
    with open(left / "sale.jtl", newline="") as file:
        return done, list(csv.DictReader(file)), json.loads((left / "verdict.json").read_text())


def labelled(rows, label):
    return [row for row in rows if row["label"] == label]


def test_keys_and_repeats(shop, tmp_path):
    """Each sale has a key of its own; some are sent again, are told the same, and count once."""
    done, rows, verdict = fire(shop, tmp_path, "--lock", "watchdog", "--write", "atomic", "-Jthreads=40", "-Jstock=60",
                               "-Jloops=2", "-Jkeys=true", "-Jrepeat_percent=50")
    assert done.returncode == 0, done.stdout + done.stderr
    first = {row["key"]: row for row in labelled(rows, "POST sale")}
    again = labelled(rows, "POST sale again")
    assert len(first) == 80 and all(len(key) == 32 for key in first)
    assert collections.Counter(row["responseCode"] for row in first.values()) == {"200": 60, "409": 20}
    assert 0 < len(again) < 80 and len({row["request"] for row in [*first.values(), *again]}) == 80 + len(again)
    for row in again:
        told = first[row["key"]]
        assert row["replayed"] == "true" and told["replayed"] == "" and start(row) >= end(told)
        assert [row[name] for name in ("responseCode", "item", "unit", "left")] == [
            told[name] for name in ("responseCode", "item", "unit", "left")]
    assert verdict["result"] == "ok" and verdict["replayed"] == len(again)
    assert (verdict["requests"], verdict["sold"], verdict["left"], verdict["duplicate_key_units"]) == (80, 60, 0, 0)
    assert sum(verdict["by_status"].values()) == 80 + len(again)


def test_every_sale_again_with_the_fence(shop, tmp_path):
    done, rows, verdict = fire(shop, tmp_path, "--lock", "fenced", "-Jkeys=true", "-Jrepeat_percent=100")
    assert done.returncode == 0, done.stdout + done.stderr
    again = labelled(rows, "POST sale again")
    assert len(again) == 10 and [row["replayed"] for row in again if row["responseCode"] == "200"] == ["true"] * 5
    # Sold out is found before the step that sells: it is not kept, and is found again.
    assert [row["replayed"] for row in again if row["responseCode"] == "409"] == [""] * 5
    assert (verdict["requests"], verdict["sold"], verdict["replayed"]) == (10, 5, 5)


def test_without_the_property_no_sale_has_a_key(smoke):
    assert {(row["key"], row["replayed"]) for row in smoke.of("POST sale")} == {("", "")}
    assert len(smoke.of("POST sale")) == 10 and not smoke.of("POST sale again")


def test_keys_need_a_way_to_write_that_keeps_them(shop, tmp_path):
    done, _, _ = fire(shop, tmp_path, "--lock", "watchdog", "--write", "decr", "-Jkeys=true")
    assert done.returncode == 2 and "keys=true needs a way to write that keeps keys, atomic or fenced" in done.stderr


class Closing:
    """A proxy that ends the connection where a sale's answer should come, as an nginx does that reloads: that many sales
    meet it so many times each. `carried`: the sale was passed on before. `reset`: it ends with an error, not in order."""

    def __init__(self, sales, times=1, carried=False, reset=False):
        self.sales, self.times, self.carried, self.reset = sales, times, carried, reset
        self.met = collections.Counter()  # by key; without one by connection
        self.mutex = threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", 0))
        # To JMeter the whole network lies behind it.
        self.env = {"JAVA_TOOL_OPTIONS": "-Dhttp.proxyHost=127.0.0.1 -Dhttp.nonProxyHosts=none "
                                         f"-Dhttp.proxyPort={self.listener.getsockname()[1]}"}

    def __enter__(self):
        threading.Thread(target=self.accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.listener.close()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=self.serve, args=self.listener.accept(), daemon=True).start()

    def closes(self, head, address):
        key = re.search(rb"\r\nIdempotency-Key: (\w+)", head)
        who = key.group(1) if key else address
        with self.mutex:
            if not head.startswith(b"POST ") or (who not in self.met and len(self.met) == self.sales) or (
                    self.met[who] == self.times):
                return False
            self.met[who] += 1
            return True

    def serve(self, client, address):
        servers = {}
        with client, client.makefile("rb") as requests, contextlib.suppress(ConnectionError):
            while request := message(requests):
                port = int(re.match(rb"\w+ http://[^/:]*:(\d+)", request).group(1))
                closes = self.closes(request, address)
                if closes and self.reset:
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                if closes and not self.carried:
                    return
                if port not in servers:
                    server = socket.create_connection(("127.0.0.1", port))
                    servers[port] = server, server.makefile("rb")
                server, answers = servers[port]
                server.sendall(request)
                answer = message(answers)
                if closes:
                    return
                client.sendall(answer)


def message(file):
    """The next one, with its body; nothing at the end."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        line = file.readline()
        if not line:
            return b""
        head += line
    size = re.search(rb"(?i)\r\nContent-Length: *(\d+)", head)
    return head + file.read(int(size.group(1)) if size else 0)


def fire_closed(shop, folder, closing, *words):
    with closing:
        return fire(shop, folder, "--lock", "watchdog", "--write", "atomic", "-Jthreads=20", "-Jstock=30", "-Jloops=2", *words,
                    env=closing.env)


@pytest.mark.parametrize("carried,reset", [(False, False), (True, True)])
def test_a_sale_whose_connection_was_closed_is_sent_again_with_its_key(shop, tmp_path, carried, reset):
    """One buyer, one sale, and the judge tells how many there were."""
    done, rows, verdict = fire_closed(shop, tmp_path, Closing(7, carried=carried, reset=reset), "-Jkeys=true",
                                    "-Jpace=20")
    assert done.returncode == 0, done.stdout + done.stderr
    why = "java.net.SocketException" if reset else "NoHttpResponseException"
    closed = [row for row in labelled(rows, "POST sale") if row["responseCode"].endswith(why)]
    resent = {row["key"]: row for row in labelled(rows, "POST sale resent")}
    assert len(closed) == 7 and sorted(resent) == sorted(row["key"] for row in closed)
    assert {row["responseCode"] for row in resent.values()} <= {"200", "409"}
    assert {row["replayed"] for row in resent.values() if row["responseCode"] == "200"} <= {"true" if carried else ""}
    assert len({row["request"] for row in rows if row["label"].startswith("POST sale")}) == 47
    assert (verdict["result"], verdict["requests"], verdict["sold"], verdict["left"]) == ("ok", 40, 30, 0)
    assert any(reason.endswith("sent again under their idempotency keys, and answered: 7") for reason in verdict["reasons"])


def test_a_sale_is_sent_three_times_more_at_most(shop, tmp_path):
    done, rows, verdict = fire_closed(shop, tmp_path, Closing(2, times=100), "-Jkeys=true")
    assert done.returncode == 2 and verdict["result"] == "inconclusive", done.stdout + done.stderr
    resent = collections.Counter(row["key"] for row in labelled(rows, "POST sale resent"))
    assert list(resent.values()) == [3, 3] and len(labelled(rows, "POST sale")) == 40
    assert any("(transport errors): 8, first" in reason for reason in verdict["reasons"])


def test_without_a_key_no_sale_is_sent_again(shop, tmp_path):
    done, rows, verdict = fire_closed(shop, tmp_path, Closing(3))
    assert done.returncode == 2 and verdict["result"] == "inconclusive", done.stdout + done.stderr
    assert len([row for row in rows if row["label"].startswith("POST ")]) == 40
    assert any("(transport errors): 3, first" in reason for reason in verdict["reasons"])


def test_numbers_stand_for_names():
    names = call("jmeter_items", "20").stdout.split()
    assert names[0] == "phone-01" and names[19] == "phone-20" and len(names) == 20
    assert call("jmeter_items", "1").stdout.split() == ["phone"]
    assert call("jmeter_items", "100").stdout.split()[7] == "phone-008"


@pytest.mark.parametrize("properties,sentence", [
    (["-Jthreads=abc"], 'threads is "abc": it must be a whole number from 1 to 20000'),
    (["-Jthreads=0"], 'threads is "0"'),
    (["-Jstock=-1"], 'stock is "-1": it must be a whole number from 0'),
    (["-Jquantity=1.5"], 'quantity is "1.5": it must be a whole number from 1'),
    (["-Jthread=5"], 'the plan has no property "thread". It has: host port admin_host admin_port admin_token_file items'),
    (["-Jitems=Phone"], 'items is "Phone": it must be a number, or names by comma'),
    (["-Jitems=a,,b"], 'items is "a,,b"'),
    (["-Jitems="], "items is empty"),
    (["-Jloops=0"], 'loops is "0": it must be a whole number from 1'),
    (["-Jloops=-2"], 'loops is "-2": it must be a whole number from 1, or -1'),
    (["-Jloops=-1"], "give a duration in seconds"),
    (["-Jrestock_every=5"], "it needs loops=-1"),
    (["-Jkeys=yes"], 'keys is "yes": it must be one of: true false'),
    (["-Jkeys=true", "-Jrepeat_percent=101"], 'repeat_percent is "101": it must be a whole number from 0 to 100'),
    (["-Jrepeat_percent=5"], "it needs keys=true"),
    (["-Jmeet_every_loop=yes"], 'meet_every_loop is "yes": it must be one of: true false'),
])
def test_bad_values_are_refused(tmp_path, properties, sentence):
    refused = Run(tmp_path, Nowhere(1), "smoke", *properties).done
    assert refused.returncode == 2
    assert sentence in refused.stderr
    assert not (tmp_path / "sale.jtl").exists()


def test_bad_values_in_a_scenario_are_refused(tmp_path):
    scenario = tmp_path / "mine.properties"
    scenario.write_text("# mine\nthreads = 10\nstok=5\n")
    done = call("jmeter_run", "--scenario", scenario, "--out", tmp_path, "--host", "h", "--port", 1)
    assert done.returncode == 2
    assert 'the plan has no property "stok"' in done.stderr


def test_no_such_scenario(tmp_path):
    done = Run(tmp_path, Nowhere(1), "smok").done
    assert done.returncode == 2
    assert "cannot be read; there are: article.properties flash.properties" in done.stderr


def test_nobody_there(tmp_path):
    port = free_port()
    done = Run(tmp_path, Nowhere(port), "smoke").done
    assert done.returncode == 1
    assert f"sent no sale: PUT stock: Connect to 127.0.0.1:{port + 1}" in done.stderr
    assert "Connection refused" in done.stderr


def test_operators_without_the_token_cannot_stock_up(shop, tmp_path):
    wrong = Nowhere(shop.port)
    done = Run(tmp_path, wrong, "smoke").done
    assert done.returncode == 1 and "sent no sale: PUT stock: 401" in done.stderr
    wrong.token_file = tmp_path / "token"
    wrong.token_file.write_text("fedcba9876543210")
    done = Run(tmp_path, wrong, "smoke").done
    assert done.returncode == 1 and "sent no sale: PUT stock: 401" in done.stderr
    wrong.token_file = tmp_path / "none"
    done = Run(tmp_path, wrong, "smoke").done
    assert done.returncode == 2 and f"--token-file: {wrong.token_file} cannot be read" in done.stderr


def test_the_token_is_in_no_record(smoke):
    assert smoke.codes()
    told = [file for file in smoke.folder.rglob("*") if file.is_file() and b"0123456789abcdef" in file.read_bytes()]
    assert not told


def test_results_of_an_earlier_run_never_pass_for_this_one(smoke, tmp_path):
    assert smoke.codes()
    done = Run(shutil.copytree(smoke.folder, tmp_path / "again"), Nowhere(free_port()), "smoke").done
    assert done.returncode == 1
    assert "sent no sale" in done.stderr


def test_jmeter_is_killed_half_way(shop, tmp_path):
    jmeter = subprocess.Popen(
        ["bash", "-c", f"""
            source {ROOT}/scripts/lib/common.sh; source {ROOT}/scripts/lib/jmeter.sh
            jmeter_run --scenario {SCENARIOS}/soak.properties --out {tmp_path} --host 127.0.0.1 \\
                --port {shop.port} --operators 127.0.0.1:{shop.port + 1} --token-file {shop.token_file} -Jthreads=5"""],
        stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
    results = tmp_path / "sale.jtl"
    wait_until(lambda: results.exists() and "POST sale" in results.read_text(), "the first sales")
    children = f"/proc/{jmeter.pid}/task/{jmeter.pid}/children"
    with open(children) as file:
        java = file.read().split()
    for pid in java:
        os.kill(int(pid), signal.SIGKILL)
    _, words = jmeter.communicate(timeout=120)
    assert jmeter.returncode == 1
    assert "JMeter ended with code 137" in words


# ---- Which JMeter --------------------------------------------------------------------------------

def home_like(folder):
    """A JMeter home of the test's own."""
    return pathlib.Path(shutil.copytree(JMETER, folder))


def break_file(file):
    file.write_bytes(file.read_bytes()[:file.stat().st_size // 2])


def test_java_home_words(tmp_path):
    done = call("jmeter_command", env={"JMETER_HOME": JMETER})
    assert done.returncode == 0, done.stderr
    words = done.stdout.splitlines()
    assert words[0] == "java" and words[-1] == f"{JMETER}/bin/ApacheJMeter.jar"
    assert "-Xss256k" in words and "-Xmx1g" in words


def test_jmeter_home_without_jmeter(tmp_path):
    done = call("jmeter_command", env={"JMETER_HOME": tmp_path})
    assert done.returncode == 2
    assert f"JMETER_HOME is {tmp_path}, but there is no bin/ApacheJMeter.jar in it" in done.stderr


def test_jmeter_home_that_does_not_run(tmp_path):
    home = home_like(tmp_path / "home")
    break_file(next((home / "lib/ext").glob("ApacheJMeter_core-*.jar")))
    done = call("jmeter_command", env={"JMETER_HOME": home})
    assert done.returncode == 2
    assert "is not a JMeter of 5.6 or later that runs" in done.stderr


@pytest.mark.parametrize("version,serves", [("2.13", False), ("5.5", False), ("5.10.1", True)])
def test_a_jmeter_on_path(tmp_path, version, serves):
    """Debian's own is 2.13. A stand-in that only tells its version."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "jmeter"
    program.write_text(f"#!/bin/sh\necho Copyright 1998-2024\necho Version {version}\n")
    program.chmod(0o755)
    done = call("jmeter_command", env={"PATH": f"{folder}:{os.environ['PATH']}",
                                       "LADDER_CACHE": tmp_path / "cache", "JMETER_HOME": None})
    if serves:
        assert done.stdout.splitlines()[-1] == str(program)
        assert any(word.startswith("JVM_ARGS=-Xss256k ") for word in done.stdout.splitlines())
    else:
        assert done.returncode == 2
        assert "there is no JMeter: scripts/setup --for run fetches it" in done.stderr


def test_what_was_fetched_is_checked_byte_for_byte(tmp_path):
    assert call("jmeter_is_whole", JMETER).returncode == 0
    home = home_like(tmp_path / "cut")
    break_file(home / "lib" / "slf4j-api-1.7.36.jar")
    assert call("jmeter_is_whole", home).returncode == 1
    home = home_like(tmp_path / "lacking")
    (home / "bin" / "saveservice.properties").unlink()
    assert call("jmeter_is_whole", home).returncode == 1
    assert call("jmeter_is_whole", tmp_path / "absent").returncode == 1


def fake_maven(folder, source):
    """A Maven that gathers from a folder instead of from Maven Central."""
    farm = path_without(folder, "mvn")
    program = farm / "mvn"
    program.write_text(f"""#!/bin/sh
for word; do case $word in -Dhome=*) cp -r {source} "${{word#-Dhome=}}" ;; esac; done
""")
    program.chmod(0o755)
    return {"PATH": farm}


def test_a_fetch_appears_whole_or_not_at_all(tmp_path):
    spoilt = home_like(tmp_path / "spoilt")
    break_file(spoilt / "lib" / "slf4j-api-1.7.36.jar")
    cache = tmp_path / "cache" / "jmeter"
    done = call("jmeter_fetch", cache, env=fake_maven(tmp_path, spoilt))
    assert done.returncode == 2
    assert "is not what jmeter/SHA256SUMS says. It was thrown away" in done.stderr
    assert not cache.exists() and not cache.with_suffix(".part").exists()

    home_like(cache)  # one that was spoilt later is replaced
    break_file(cache / "lib" / "slf4j-api-1.7.36.jar")
    shutil.rmtree(tmp_path / "bin")
    done = call("jmeter_fetch", cache, env=fake_maven(tmp_path, JMETER))
    assert done.returncode == 0, done.stderr
    assert call("jmeter_is_whole", cache).returncode == 0
    assert sorted(file.name for file in cache.parent.iterdir()) == ["jmeter", "jmeter.guard"]


def test_no_maven(tmp_path):
    done = call("jmeter_fetch", tmp_path / "jmeter", env={"PATH": path_without(tmp_path, "mvn")})
    assert done.returncode == 2
    assert "not found on PATH: mvn" in done.stderr


def test_no_way_to_maven_central(tmp_path):
    """The real Maven behind a proxy that is not there."""
    port = free_port()
    done = call("jmeter_fetch", tmp_path / "jmeter",
                env={"MAVEN_OPTS": f"-Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort={port}"})
    assert done.returncode == 2
    assert "JMeter could not be fetched from Maven Central" in done.stderr
    assert "Connection refused" in done.stderr
    assert "A proxy or a mirror is told to Maven in ~/.m2/settings.xml" in done.stderr
    assert not (tmp_path / "jmeter").exists()
