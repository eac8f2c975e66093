# SPDX-License-Identifier: Apache-2.0
"""scripts/demo --scenario: the loads of the small services, told small; what they leave; and what can be wrong."""
import json
import os
import pathlib
import signal
import socket

import pytest

from place import SCRIPTS, listens, wait_until

# A crowd of 150 for each: of the first and the last row, what the judge may say, and the load's numbers.
SMALL = {"menu": ("none", "fenced", {"stale", "stampede"}, ["-Jduration=3"]),
         "account": ("none", "fair", {"unbalanced"}, ["-Jloops=2"]),
         "tasks": ("none", "fenced", {"repeated"}, ["-Jtasks=200"])}


def built(service):
    return (pathlib.Path(os.environ["LADDER_BUILD"]) / service / f"{service}d").exists()


def words(place, service, *more):
    if service in SMALL and not built(service):
        pytest.skip(f"{service}d is not built")
    return [SCRIPTS / "demo", "--scenario", service, "--port", place.ports.nginx, "--runs", place.runs, *more]


def folders(place):
    return sorted(folder for folder in place.runs.iterdir() if not folder.is_symlink())


def verdict(folder):
    return json.loads((folder / "verdict.json").read_text())


@pytest.mark.parametrize("service", SMALL)
def test_the_flaw_and_the_cure(place, service):
    flaw, cure, results, numbers = SMALL[service]
    demo = place.run(*words(place, service, "--row", f"{flaw},{cure}", "--requests", 150, *numbers))
    assert demo.code == 0, demo
    first, last = folders(place)
    assert verdict(first)["result"] in results and verdict(last)["result"] == "ok", demo
    assert [line.split()[0] for line in demo.out.splitlines() if line.split()[:1] in (["none"], ["fair"])] == ["none", "fair"]
    assert "\n2 of 2 rows did what the ladder says.\n" in demo.out and f"row 2 of 2: {service}, {cure}" in demo.err
    for name in ("run.json", "redis.json", "load.jtl", "nginx.log", "history-a.jsonl", "history-b.jsonl", "verdict.json", "env.txt",
                 "dashboard/index.html", "timeline.svg", "audit.out"):
        assert (last / name).stat().st_size > 0, name
    assert not (last / "parts").exists() and (place.runs / "latest").resolve() == last
    assert {file["served"] > 0 for file in verdict(last)["by_instance"].values()} == {True}
    place.check_nothing_is_left()


def test_flags_of_the_service_and_properties_of_the_load(place):
    demo = place.run(*words(place, "menu", "--lock", "owner_lua", "--requests", 20, "-Jloops=2", "-Jupdate_every=0", "-Jpace=0",
                            "-Jmenus=lunch,dinner", "-Jmenud.db-ms=7", "--", "--cache-ms", 60000, "--wait-ms=9000"))
    assert demo.code == 0, demo
    (folder,) = folders(place)
    run = json.loads((folder / "run.json").read_text())
    assert (run["rung"], run["cache_ms"], run["db_ms"], run["wait_ms"], run["requests"]) == ("owner_lua", 60000, 7, 9000, 42)
    assert run["items"] == {"lunch": 0, "dinner": 0} and verdict(folder)["queries"] == 2
    redis = json.loads((folder / "redis.json").read_text())
    assert redis["before"]["cached"] == run["items"] and redis["after"]["cached"] == {"lunch": 1, "dinner": 1}
    place.check_nothing_is_left()


def test_ctrl_c_in_the_middle_ends_everything(place):
    demo = place.start(*words(place, "menu", "--row", "watchdog", "--requests", 150))
    wait_until(lambda: any("--nongui" in one for one in place.processes().values()) or demo.process.poll() is not None,
               "JMeter runs")
    demo.press_ctrl_c()
    assert demo.code == 130 and "all that was started is ended" in demo.err, demo
    assert folders(place) == []
    place.check_nothing_is_left()


def test_keep_leaves_it_up_until_it_is_told(place):
    demo = place.start(*words(place, "menu", "--row", "watchdog", "--requests", 20, "-Jloops=1", "-Jupdate_every=0", "--keep"))
    wait_until(lambda: "stays up" in demo.err or demo.process.poll() is not None, "it stays up")
    assert f"curl 'http://127.0.0.1:{place.ports.nginx}/menus/lunch'" in demo.err, demo
    assert place.get("/healthz") == "ok\n"
    os.kill(demo.process.pid, signal.SIGTERM)
    assert demo.finish().code == 0, demo  # its row did what the ladder says
    assert len(folders(place)) == 1
    place.check_nothing_is_left()


def test_an_instance_that_does_not_start_is_told(place):
    demo = place.run(*words(place, "menu", "--row", "watchdog", "--", "--fill", "fenced"))
    assert demo.code == 2 and "scenario: instance a does not start: " in demo.err, demo
    assert "--fill fenced needs a rung that gives tokens" in demo.err and folders(place) == []
    place.check_nothing_is_left()


def test_a_busy_port_is_told(place):
    with socket.create_server(("127.0.0.1", place.ports.operators)):
        demo = place.run(*words(place, "menu"))
    assert demo.code == 2, demo
    assert f"port {place.ports.operators}, wanted for nginx's operators, is taken by " in demo.err
    assert "choose another with --port" in demo.err and not listens(place.ports.nginx)


@pytest.mark.parametrize("more, told", [
    (["--row", "best"], '--row is "best"; menu has none, local, no-second-look, watchdog, fenced'),
    (["--lock", "setmx"], '--lock is "setmx"; it must be one of none, local, setnx'),
    (["--lock", "local", "--row", "none"], "--row and --lock choose both"),
    (["--load", "flash"], 'there is no load "flash"; there are expiries, readers'),
    (["--requests", "0"], '"0" is no number from 1 to 20000'),
    (["--port", "many"], '"many" is no number from 1 to 65534'),
    (["--slow"], "--slow"),
    (["-Jstock=5"], 'the plan has no property "stock"; it has host, port'),
    (["-Jhost=example.org"], "-Jhost: the load goes to the service that this starts"),
    (["-Jpace=fast"], 'pace is "fast"; it must be a whole number from 0 to 600000'),
    (["-Jmenus=Lunch"], 'menus is "Lunch"; a name has 1 to 64 of a-z 0-9 _ -'),
    (["-Jloops=3"], "update_every goes on until duration is over: it needs loops=-1"),
    (["--", "--redis", "x"], "--redis: scripts/scenario says that itself"),
    (["--", "cache"], '"cache" is no flag'),
])
def test_a_wrong_option_is_refused_before_anything_is_done(place, more, told):
    demo = place.run(*words(place, "menu", *more))
    assert demo.code == 2 and demo.err.startswith("scenario: ") and told in demo.err, demo
    assert not place.runs.exists()


def test_a_wrong_scenario_and_help(place):
    demo = place.run(*words(place, "shoe"))
    assert demo.code == 2 and 'there is no scenario "shoe"; there are menu, account, tasks' in demo.err, demo
    assert place.run(SCRIPTS / "demo", "--scenario").code == 2
    answer = place.run(SCRIPTS / "demo", "--scenario=menu", "--help")
    assert answer.code == 0
    for word in ("--row", "--lock", "--load", "--requests", "--port", "--keep", "no-second-look", "expiries", "Exit code 0"):
        assert word in answer.out
