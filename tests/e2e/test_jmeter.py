# SPDX-License-Identifier: Apache-2.0
"""scripts/jmeter: every scenario, told small, and the judge's word."""
import json
import os
import re
import signal
import urllib.error
import urllib.request

import pytest

from place import SCRIPTS, Place, wait_until


def counted(load):
    """What was told of JMeter's summary: label -> requests and errors."""
    line = next(line for line in load.err.splitlines() if line.startswith("JMeter's summary counts every request: "))
    return {label: (int(count), int(errors)) for count, label, errors in re.findall(r"(\d+) ([A-Z]+ \w+) \((\d+) errors\)", line)}


def latest(place):
    return json.loads((place.runs / "latest" / "run.json").read_text())


@pytest.mark.parametrize("words, requests, items", [
    (["smoke"], 10, 1),
    (["article", "-Jstock=60", "-Jthreads=90"], 90, 1),
    # In one loop two buyers of an item would meet by chance alone: JMeter starts them one by one.
    (["many-items", "-Jstock=25", "-Jthreads=140", "-Jloops=5"], 700, 20),
    (["flash", "-Jstock=100", "-Jthreads=50", "-Jloops=3"], 150, 1),
    (["queue", "--write", "atomic", "--on-conflict", "queue", "-Jstock=60", "-Jthreads=90"], 90, 1),
])
def test_a_scenario_is_fired_and_judged(shop, words, requests, items):
    load = shop.jmeter(*words)
    assert load.code == 0, load
    assert load.out.splitlines()[-1] == "expected OK, got OK"
    assert counted(load)["POST sale"] == (requests, 0) and "Created user preferences" not in load.err, load
    summary = re.findall(r"summary = +(\d+) in", load.err)[-1]
    assert sum(count for count, _ in counted(load).values()) == int(summary), load
    run = latest(shop)
    assert (run["scenario"], run["requests"], len(run["items"])) == (words[0], requests, items)
    assert run["restocked"] is False


def test_a_buyer_in_a_queue_is_sold_to_twice_if_its_sale_is_not_acknowledged_in_the_same_step(place):
    """And the judge sees it. Of what decr sells, the acknowledgement is another command."""
    assert place.shop("up", "--lock", "fair", "--write", "decr", "--on-conflict", "queue", "--enable-failpoints", "--ttl-ms", 1000).code == 0
    # b answers late, so that a has entries to process while units are left
    for number, point, action in ((0, "queue.before_ack", "1*crash"), (1, "queue.accepted", "delay(30)")):
        put = urllib.request.Request(f"http://127.0.0.1:{place.ports.instance(number) + 1}/failpoints", method="PUT",
                                     data=b'{"point":"%s","action":"%s"}' % (point.encode(), action.encode()),
                                     headers={"Content-Type": "application/json"})
        urllib.request.urlopen(put, timeout=10).close()
    load = place.jmeter("queue", "-Jstock=200", "-Jthreads=200")
    assert load.out.splitlines()[-1] == "expected OVERSOLD or OK, got OVERSOLD (+1)" and load.code == 0, load
    assert "- accepted sales that were sold more than once: 1; first: request" in load.out
    assert latest(place)["on_conflict"] == "queue"
    place.shop("down")


def test_a_soak_is_watched(place):
    """The instances are, and not the servers of a lock."""
    shop = place
    assert shop.shop("up", "--work-ms", 5, *place.ports.lock_option).code == 0
    load = shop.jmeter("soak", "-Jduration=8", "-Jrestock_every=2", "-Jthreads=20", "-Jstock=100")
    assert load.code == 0, load
    assert latest(shop)["restocked"] is True
    assert latest(shop)["requests"] > 0
    lines = (shop.runs / "latest" / "watch.csv").read_text().splitlines()
    assert lines[0] == "t_s,instance,rss_kib,descriptors"
    assert {line.split(",")[1] for line in lines[1:]} == {"a", "b"}
    for name in "ab":
        assert f"{name}: memory " in load.out
        assert load.out.count(": steady") == 2
    assert shop.shop("down").code == 0


def test_it_switches_the_lock_when_told_and_keeps_it_when_not(shop):
    assert shop.jmeter("smoke", "--lock", "owner_lua", "--write", "atomic").code == 0
    assert (latest(shop)["rung"], latest(shop)["write"]) == ("owner_lua", "atomic")
    for words, rung, write in (
            ([], "owner_lua", "atomic"), (["--lock", "fenced"], "fair", "fenced"), ([], "fair", "fenced"),
            (["--write", "fenced"], "fair", "fenced"),
            (["--lock", "watchdog"], "watchdog", "decr")):  # as inventoryd --lock watchdog
        told_to_jmeter(shop, "smoke", *words)
        assert [(lock["rung"], lock["write"]) for lock in told_by_instances(shop)] == 2 * [(rung, write)], words


def told_by_instances(place):
    """What each instance says of its lock."""
    return [json.loads(place.get("/lock", place.ports.instance(number) + 1)) for number in range(2)]


def test_a_stock_is_laid_over_segments_and_back(shop):
    """Sales of three units span several in the end. What Redis holds is told by segment."""
    for segments in ("4", "1"):
        load = shop.jmeter("article", "--segments", segments, "-Jstock=62", "-Jthreads=30", "-Jquantity=3")
        assert load.code == 0 and load.out.splitlines()[-1] == "expected OK, got OK", load
        redis = json.loads((shop.runs / "latest" / "redis.json").read_text())
        assert latest(shop)["segments"] == segments
        assert (redis["after"]["stock"], sum(redis["after"].get("parts", {}).get("phone", [2]))) == ({"phone": 2}, 2)
        locks = redis["after"]["locks"]["phone"]
        assert len(locks) == 4 if segments == "4" else locks == {"type": "none", "pttl_ms": -2}
    load = shop.jmeter("smoke", "--segments", "naive:4")
    assert load.code == 0 and "expected UNDERSOLD or OK" in load.out, load
    assert shop.jmeter("smoke", "--segments", "1").code == 0


def test_a_file_of_ones_own_is_a_scenario_and_the_judges_no_is_the_exit_code(shop):
    file = shop.folder / "tiny.properties"
    file.write_text("items=pen,ink\nstock=2\nthreads=6\nloops=1\n")
    load = shop.jmeter(file, "--expect", "oversold,overlap")
    assert load.code == 1, load
    assert load.out.splitlines()[-1] == "expected OVERSOLD or OVERLAP, got OK"
    assert (latest(shop)["scenario"], latest(shop)["items"]) == ("tiny", {"pen": 2, "ink": 2})


def test_the_articles_keys(place):
    assert place.shop("up", "--keys", "article", "--lock", "setnx", "--work-ms", 5).code == 0
    load = place.jmeter("smoke")
    assert load.code == 0, load
    redis = json.loads((place.runs / "latest" / "redis.json").read_text())
    assert (redis["before"]["stock"], redis["after"]["stock"]) == ({"phone": 5}, {"phone": 0})
    assert place.shop("down").code == 0


@pytest.fixture(scope="module")
def idle_shop(tmp_path_factory):
    """One shop for all that never loads it."""
    place = Place(tmp_path_factory.mktemp("idle"))
    assert place.shop("up").code == 0
    yield place
    assert place.shop("down").code == 0
    place.close()


@pytest.mark.parametrize("words, told", [
    ([], "article flash many-items queue retry-at-once retry-jitter smoke soak"),
    (["articel"], "article flash many-items queue retry-at-once retry-jitter smoke soak"),
    (["smoke", "-Jthread=10"], "the plan has no property \"thread\""),
    (["smoke", "-Jstock=ten"], "stock is \"ten\""),
    (["smoke", "--segments", "many"], "--segments: \"many\" is not N or naive:N"),
    (["smoke", "--lock", "setmx"], "watchdog"),
    (["smoke", "--lock", "fenced", "--write", "set"], "leave --write set out"),
    (["smoke", "--lock", "fair,setnx"], "--lock and --write take one name each"),
    (["smoke", "--write", "set,decr"], "--lock and --write take one name each"),
    (["smoke", "--write", "fenced"], "--write fenced needs a lock that gives tokens; watchdog gives none, these do: notify fair read_write redlock"),
    (["smoke", "--expect", "ok,foo"], "--expect is \"foo\": it must be one of: oversold stale unbalanced repeated lost_task stampede overlap overtaken deadlock unfinished undersold inconclusive ok"),
    (["smoke", "--expect", "ok,"], "--expect is \"\""),
    (["smoke", "article"], "\"article\" is not understood"),
    (["smoke", ""], "an argument is empty, behind smoke: leave it out, or say what it is"),
])
def test_what_cannot_be_fired_is_told_before_anything_is_done(idle_shop, words, told):
    load = idle_shop.jmeter(*words)
    assert load.code == 2, load
    assert told in load.err and "curl: (22)" not in load.err, load
    assert not list(idle_shop.runs.glob("*"))
    with pytest.raises(urllib.error.HTTPError, match="404"):  # no stock was set
        idle_shop.get("/inventory/phone")


def test_a_port_that_is_no_number_is_told(place):
    load = place.run(SCRIPTS / "jmeter", "smoke", "--port", "abc")
    assert load.code == 2 and "--port is \"abc\": it must be a whole number from 1 to 65534" in load.err, load


def test_without_a_shop_it_says_how_to_start_one(place):
    load = place.jmeter("smoke")
    assert load.code == 2
    assert f"scripts/shop up --port {place.ports.nginx}" in load.err


def start_load(place, sales=1):
    """A load of some seconds whose first sales were asked for."""
    log = place.state / str(place.ports.nginx) / "nginx" / "access.log"
    before = log.read_text().count("/sale")
    load = place.start(SCRIPTS / "jmeter", "flash", "--lock", "fenced", "-Jkeys=true", "-Jthreads=20", "-Jloops=15",
                       "-Jstock=1000", "--port", place.ports.nginx, "--runs", place.runs)
    wait_until(lambda: log.read_text().count("/sale") >= before + sales or load.process.poll() is not None, "sales")
    assert load.process.poll() is None, load
    return load


@pytest.mark.parametrize("part, told, missing", [
    ("b", "instance b did not end its history", "no end line"),
    ("redis", "held after the run is not known", '"after" does not state the stock of phone'),
])
def test_a_load_during_which_a_part_dies_is_judged_by_what_there_is(place, part, told, missing):
    assert place.shop("up", "--work-ms", 5, "--ttl-ms", 2000).code == 0  # a dead one's lock is soon free
    load = start_load(place, 30)
    os.kill(place.parts()[part], signal.SIGKILL)
    assert load.finish().code == 2, load
    assert told in load.err and "jq:" not in load.err, load
    sent, errors = counted(load)["POST sale"]
    assert sent == 300 and (part == "b" or 0 < errors <= 300), load
    assert missing in load.out and load.out.splitlines()[-1] == "expected OK, got INCONCLUSIVE", load
    folder = place.runs / "latest"
    assert {file.name for file in folder.glob("history-*")} == {"history-a.jsonl", "history-b.jsonl"}
    assert ("after" in json.loads((folder / "redis.json").read_text())) == (part != "redis")
    assert place.shop("down").code == 0


def test_a_second_load_on_a_shop_is_refused_and_spoils_nothing(shop):
    load = start_load(shop)
    second = shop.jmeter("smoke")
    assert second.code == 2 and f"another load runs on the shop on port {shop.ports.nginx}" in second.err, second
    assert load.finish().code == 0, load
    assert shop.jmeter("smoke").code == 0


def test_an_instance_that_is_gone_is_told_by_name(shop):
    os.kill(shop.parts()["b"], signal.SIGKILL)
    load = shop.jmeter("smoke")
    assert load.code == 2
    assert "instance b did not switch" in load.err
    assert f"instance b has ended: scripts/shop restart --port {shop.ports.nginx} replaces it" in load.err
    os.kill(shop.parts()["a"], signal.SIGKILL)
    load = shop.jmeter("smoke")
    assert load.code == 2 and f"instance a of the shop on port {shop.ports.nginx} does not answer" in load.err, load


def test_a_jmeter_that_sends_nothing_is_told_with_its_own_exit_code(shop):
    """Ours is 2: there is nothing to judge."""
    java = shop.folder / "tools" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 5.6.3\n")
    java.chmod(0o755)
    load = shop.jmeter("smoke", PATH=f"{java.parent}:{os.environ['PATH']}")
    assert load.code == 2, load
    assert "JMeter (exit code 0) sent no sale. See " in load.err and "jmeter: there is nothing to judge. What JMeter left is in " \
        in load.err and "JMeter ended with" not in load.err, load


def told_to_jmeter(place, *words):
    """The properties in the command that starts JMeter. A program in Java's place writes the command down."""
    tools = place.folder / "tools"
    tools.mkdir(exist_ok=True)
    java = tools / "java"
    java.write_text(f'#!/bin/sh\ncase "$*" in *--nongui*) printf "%s\\n" "$@" >{tools}/told ;; esac\necho 5.6.3\n')
    java.chmod(0o755)
    load = place.jmeter(*words, PATH=f"{tools}:{os.environ['PATH']}")
    assert load.code == 2 and "sent no sale" in load.err, load
    told = [word[2:] for word in (tools / "told").read_text().splitlines() if word.startswith("-J")]
    return dict(word.split("=", 1) for word in told)  # the last one counts


def nginx_waits_s(place):
    conf = place.state / str(place.ports.nginx) / "nginx" / "nginx.conf"
    return int(re.search(r"proxy_read_timeout ([0-9]+)s;", conf.read_text())[1])


@pytest.mark.parametrize("wait_ms", [20000, 97777])
def test_jmeter_waits_longer_than_nginx(place, wait_ms):
    """Otherwise it would end a request that nginx is about to answer."""
    assert place.shop("up", "--wait-ms", wait_ms).code == 0
    assert int(told_to_jmeter(place, "smoke")["response_ms"]) == nginx_waits_s(place) * 1000 + 15000
    assert place.shop("down").code == 0


def test_what_the_user_says_of_jmeters_limit_counts(shop):
    assert told_to_jmeter(shop, "smoke", "-Jresponse_ms=1234")["response_ms"] == "1234"
    file = shop.folder / "hasty.properties"
    file.write_text("stock=5\nthreads=10\nresponse_ms=1234\n")
    assert "response_ms" not in told_to_jmeter(shop, file)  # -J would count, and not the file
