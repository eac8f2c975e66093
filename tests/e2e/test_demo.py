# SPDX-License-Identifier: Apache-2.0
"""scripts/demo: the story, told small; its end, however it comes; and what can be wrong."""
import json
import os
import pathlib
import shutil
import signal
import socket
import tempfile

import pytest

from needs import own
from place import ROOT, SCRIPTS, Place, listens, wait_until
from readme import shown, without_numbers
from tools import path_without

SMALL = ["--stock", "40", "--requests", "60"]


def rows(text):
    """The table: a list of its lines' words."""
    lines = text.splitlines()
    head = next(i for i, line in enumerate(lines) if line.startswith("rung "))
    end = lines.index("", head)
    return [line.split() for line in lines[head + 1:end]]


def folders(place):
    return sorted(folder for folder in place.runs.iterdir() if not folder.is_symlink())


def test_it_tells_the_story_of_the_readme_and_ends_what_it_started(place):
    """As the README shows it, but for the numbers."""
    demo = place.demo()
    assert demo.code == 0, demo
    table = rows(demo.out)
    assert [row[:3] for row in table] == [["local", "set", "1500"], ["local", "decr", "1500"],
                                          ["watchdog", "set", "1500"], ["watchdog", "decr", "1500"]]
    assert [row[3:6] for row in table[2:]] == [["1000", "0", "0"], ["1000", "0", "0"]]
    assert int(table[0][5]) > 0, "a local lock and SET oversell"
    assert "\n4 of 4 rows did what the ladder says.\n" in demo.out
    assert without_numbers(demo.out.replace(str(place.runs), "runs")) == without_numbers(shown("README.md")), demo
    assert "row 3 of 4: watchdog, set" in demo.err
    kept = folders(place)
    assert len(kept) == 4
    assert (place.runs / "latest").resolve() == kept[-1]
    for folder in kept:
        assert str(folder) in demo.out or folder.name in demo.out
        for name in ("run.json", "redis.json", "sale.jtl", "nginx.log", "history-a.jsonl",
                     "history-b.jsonl", "verdict.json", "env.txt", "dashboard/index.html",
                     "timeline.svg"):
            assert (folder / name).stat().st_size > 0, name
        assert (folder / "history-a.jsonl").read_text().splitlines()[-1].count('"end"') == 1
    place.check_nothing_is_left()


def test_a_lock_on_three_servers(place):
    demo = place.demo(*SMALL, "--lock", "redlock", *place.ports.lock_option)
    assert demo.code == 0, demo
    assert [row[:6] for row in rows(demo.out)] == [["redlock", write, "60", "40", "0", "0"] for write in ("set", "decr")]
    place.check_nothing_is_left()


def test_a_lock_on_an_ensemble(place):
    demo = place.demo(*SMALL, "--lock", "zookeeper", "--write", "set", *place.ports.ensemble_option)
    assert demo.code == 0, demo
    assert [row[:6] for row in rows(demo.out)] == [["zookeeper", "set", "60", "40", "0", "0"]]
    assert "limits are raised, unless you give them: --wait-ms 120000 --fail-fast-ms 15000" in demo.err
    (folder,) = folders(place)
    assert json.loads((folder / "run.json").read_text())["wait_ms"] == 120000
    place.check_nothing_is_left()


def test_its_records_say_what_was_asked_for_and_what_was_there(place):
    demo = place.demo("--lock", "watchdog", "--write", "set", "--stock", "20", "--items", "3",
                      "--requests", "90", "--instances", "3", "--work-ms", "2", "--segments", "2", "--local-first", "on")
    assert demo.code == 0, demo
    (folder,) = folders(place)
    run = json.loads((folder / "run.json").read_text())
    assert run["run"] == folder.name
    assert (run["rung"], run["write"], run["work_ms"]) == ("watchdog", "set", 2)
    assert (run["workers"], run["ttl_ms"], run["quantity"], run["min_share"]) == (16, 30000, 1, 0.5)
    assert (run["segments"], run["local_first"], run["on_conflict"], run["admit"]) == ("2", True, "wait", "off")
    assert run["instances"] == ["a", "b", "c"]
    assert (run["requests"], list(run["items"].values())) == (90, [20, 20, 20])
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        assert run["clients"]["boot_id"] == file.read().strip()
    redis = json.loads((folder / "redis.json").read_text())
    assert redis["before"]["stock"] == run["items"]
    assert list(redis["after"]["stock"].values()) == [0, 0, 0]
    assert {lock["type"] for locks in redis["after"]["locks"].values() for lock in locks} == {"none"}
    assert redis["after"]["commands"] - redis["before"]["commands"] > 60 * 4
    posts = [line for line in (folder / "nginx.log").read_text().splitlines() if '"POST"' in line]
    assert len(posts) == 90
    place.check_nothing_is_left(3)


def test_a_name_that_means_a_rung_and_a_way_to_write(place):
    demo = place.demo("--lock", "fenced", *SMALL)
    assert demo.code == 0, demo
    assert [row[:2] for row in rows(demo.out)] == [["fair", "fenced"]]
    run = json.loads((folders(place)[-1] / "run.json").read_text())
    assert (run["rung"], run["write"]) == ("fair", "fenced")
    verdict = json.loads((folders(place)[-1] / "verdict.json").read_text())
    assert (verdict["sold"], verdict["overlaps"], verdict["token_refusals"]) == (40, 0, 0)
    place.check_nothing_is_left()


def acted(place, judge):
    """The environment of a demo whose load and judge are the test's: of JMeter it has the rows that are counted, and the
    judge is these lines of sh, called with the run's folder as $1."""
    tools, build = place.folder / "tools", place.folder / "build"
    for folder in (tools, build / "audit"):
        folder.mkdir(parents=True)
    (build / "service").symlink_to(pathlib.Path(os.environ["LADDER_BUILD"]) / "service")
    for program, lines in (
            (tools / "java", 'while [ "$1" != --nongui ]; do [ $# -gt 0 ] || { echo 5.6.3; exit; }; shift; done\n'
             'while [ "$1" != --logfile ]; do shift; done\n'
             'for i in $(seq 60); do echo "1,1,POST sale,200"; done >"$2"\n'),
            (build / "audit" / "ladder-audit", f"case $1 in --*) exit 0 ;; esac\n{judge}\n")):
        program.write_text(f"#!/bin/sh\n{lines}")
        program.chmod(0o755)
    return {"LADDER_BUILD": build, "PATH": f"{tools}:{os.environ['PATH']}"}


def test_names_of_both_kinds_side_by_side(place):
    demo = place.demo("--lock", "local,fenced", *SMALL, **acted(place, "exit 0"))
    assert demo.code == 0, demo
    assert [words.split(" (")[0] for words in demo.err.splitlines() if words.startswith("row ")] == [
        "row 1 of 3: local, set", "row 2 of 3: local, decr", "row 3 of 3: fair, fenced"]
    place.check_nothing_is_left()


def test_a_row_that_does_not_do_what_the_ladder_says_is_the_exit_code(place):
    environment = acted(place, """echo '{"result": "ok"}' >"$1/verdict.json"; exit $JUDGE_SAYS""")
    for code in (1, 2):
        demo = place.demo("--lock", "watchdog", "--write", "decr", *SMALL, **environment, JUDGE_SAYS=code)
        assert demo.code == code, demo
        assert "0 of 1 rows did what the ladder says." in demo.out
        place.check_nothing_is_left()


@pytest.mark.parametrize("spoiled, code", [(1, 0), (9, 2)])
def test_a_row_that_was_spoiled_is_fired_again_three_times_at_most(place, spoiled, code):
    demo = place.demo("--lock", "watchdog", "--write", "decr", *SMALL, **acted(place, f"""
echo judged >>{place.folder}/judged
[ "$(wc -l <{place.folder}/judged)" -gt {spoiled} ] && echo '{{"result": "ok"}}' >"$1/verdict.json" && exit 0
echo '{{"result": "inconclusive"}}' >"$1/verdict.json"
exit 2"""))
    assert demo.code == code, demo
    tries = min(spoiled + 1, 3)
    assert len(folders(place)) == tries
    assert [f"try {number} of 3 was spoiled" in demo.err for number in (1, 2, 3)] == [number < tries for number in (1, 2, 3)]
    place.check_nothing_is_left()


def loads(place):
    return [pid for pid, words in place.processes().items() if "ApacheJMeter.jar" in words]


@pytest.mark.parametrize("end, code", [
    (lambda demo: demo.press_ctrl_c(), 130),
    (lambda demo: os.kill(demo.process.pid, signal.SIGTERM), 143),
    (lambda demo: os.kill(demo.process.pid, signal.SIGHUP), 129),
], ids=["ctrl-c", "sigterm", "hangup"])
def test_in_the_middle_of_the_load_it_ends_everything(place, end, code):
    demo = place.start(*place.demo_words())
    wait_until(lambda: loads(place) or demo.process.poll() is not None, "JMeter runs")
    assert demo.process.poll() is None, demo
    assert all(listens(port) for port in place.ports.of_a_shop())
    end(demo)
    assert demo.finish().code == code, demo
    assert "demo: told to stop; ending what was started" in demo.err
    (run,) = folders(place)
    assert f"the run was broken off and has no verdict: {run}" in demo.err, demo
    place.check_nothing_is_left()


def test_a_part_that_dies_in_the_middle_of_the_load_ends_it_with_a_sentence(place):
    demo = place.start(*place.demo_words())
    wait_until(lambda: loads(place) or demo.process.poll() is not None, "JMeter runs")
    for name in ("a", "b"):
        os.kill(place.parts()[name], signal.SIGKILL)
    assert demo.finish().code == 2, demo
    assert demo.err.splitlines()[-1].startswith("demo: "), demo
    place.check_nothing_is_left()


def test_keep_leaves_the_shop_up(place):
    demo = place.demo("--keep", "--lock", "watchdog", "--write", "decr", *SMALL)
    assert demo.code == 0, demo
    assert f"scripts/shop down --port {place.ports.nginx}" in demo.err
    assert json.loads(place.get("/inventory/phone"))["stock"] == 0
    again = place.demo(*SMALL)
    assert again.code == 2
    assert f"a shop is up on port {place.ports.nginx} already" in again.err
    assert place.shop("status").code == 0, "a shop that the demo did not start is not ended by it"
    assert place.shop("down").code == 0
    place.check_nothing_is_left()


def test_a_busy_port_is_told(place):
    with socket.create_server(("127.0.0.1", place.ports.nginx)):
        demo = place.demo(*SMALL)
        assert demo.code == 2
        assert f"port {place.ports.nginx}, wanted for nginx, is taken by python3, pid {os.getpid()}" \
            in demo.err
        assert "choose another with --port" in demo.err
    place.check_nothing_is_left()


@pytest.mark.parametrize("words, told", [
    (["--lock", "setmx"], "none local setnx"),
    (["--write", "fast"], "decr set atomic"),
    (["--lock", "fenced", "--write", "decr"],
     "--lock fenced is --lock fair --write fenced: leave --write decr out, or take --lock fair"),
    (["--lock", "local,atomic"], "watchdog"),
    (["--lock", "local,fair", "--write", "fenced"], "--write fenced needs a lock that gives tokens; local gives none"),
    (["--stock", "-1"], "--stock is \"-1\""),
    (["--requests", "0"], "a whole number from 1 to 10000"),
    (["--items", "many"], "a whole number from 1 to 999"),
    (["--instances", "99"], "a whole number from 1 to 16"),
    (["--work-ms", "1s"], "a whole number from 0 to 10000"),
    (["--slow"], "--work-ms"),
    (["--kill"], "--kill needs servers that may die"),
    (["--lock", "redlock,watchdog", "--kill"], "--kill needs servers that may die"),
    (["--sentinel", "--lock", "redlock"], "--sentinel is one group, and --lock redlock needs independent servers"),
    (["--lock"], "--lock needs a value"),
    (["--port", "70000"], "--port is \"70000\""),
    (["--lock", "redlock", "--lock-count", "4"], "--lock-count is \"4\""),
    (["--lock", "zookeeper", "--lock-port", "65510"], "--lock-port is \"65510\""),
    (["--sentinel", "--lock", "zookeeper"], "--sentinel is one group, and --lock zookeeper needs independent servers"),
    (["--port", "8888", "--redis-port", "8888"], "would both be port 8888"),
])
def test_a_wrong_option_is_refused_before_anything_is_done(place, words, told):
    demo = place.demo(*words)
    assert demo.code == 2, demo
    assert demo.err.startswith("demo: ") and told in demo.err, demo
    assert not place.state.exists()


def test_help_names_every_option_and_every_rung(place):
    answer = place.run(SCRIPTS / "demo", "--help")
    assert answer.code == 0
    for word in ("--lock", "--write", "--stock", "--items", "--requests", "--instances", "--work-ms",
                 "--keep", "--kill", "--sentinel", "--lock-count", "reentrant_tls", "watchdog", "fenced: fair with --write fenced"):
        assert word in answer.out


# ---- A machine on which something is missing -----------------------------------------------------

AS_NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]


def test_a_missing_tool_that_cannot_be_installed_is_told():
    """Root could install it: so as nobody, for whom there is a copy in a folder open to all."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        place = Place(pathlib.Path(folder))
        for part in ("scripts", "jmeter", "lock", "service", "docs/reference"):
            shutil.copytree(ROOT / part, place.folder / "clone" / part)
        demo = place.run(place.folder / "clone" / "scripts" / "demo", *place.ports.options, *SMALL,
                         around=AS_NOBODY if os.getuid() == 0 else [],
                         PATH=path_without(place.folder, "redis-server", "sudo"))
        left = place.processes()
        place.close()
        assert not left
        assert demo.code == 2, demo
        assert "missing: redis-server" in demo.err
        assert "As root: apt-get install" in demo.err


def test_without_a_network_the_missing_jmeter_is_told(place):
    demo = place.demo(*SMALL, around=own("net"), LADDER_CACHE=place.folder / "cache", JMETER_HOME=None,
                      PATH=path_without(place.folder, "jmeter"))
    assert demo.code == 2, demo
    assert "network" in demo.err
    place.check_nothing_is_left()
