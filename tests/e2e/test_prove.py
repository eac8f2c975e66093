# SPDX-License-Identifier: Apache-2.0
"""scripts/prove: repeats, counts, plots."""
import csv
import json
import os
import socket

import pytest

from place import SCRIPTS


def test_it_counts_plots_and_agrees(place):
    out = place.folder / "proof"
    proof = place.run(SCRIPTS / "prove", "--runs", "1", "--lock", "local,watchdog",
                      "--write", "decr", "--instances", "2,3", "--out", out, *place.ports.options)
    assert proof.code == 0, proof
    with open(out / "summary.csv", encoding="utf-8") as lines:
        runs = list(csv.DictReader(lines))
    assert [(run["rung"], run["instances"], run["agrees"]) for run in runs] == [
        ("local", "2", "yes"), ("watchdog", "2", "yes"), ("local", "3", "yes")]
    assert (runs[1]["sold"], runs[1]["left"], runs[1]["overlaps"]) == ("1000", "0", "0")
    assert "3 of 3 runs agreed" in proof.out
    assert (out / "table.txt").read_text() in proof.out
    assert [line.split(",")[0] for line in (out / "oversell.csv").read_text().splitlines()] == [
        "instances", "2", "3"]
    assert "</svg>" in (out / "oversell.svg").read_text()
    place.check_nothing_is_left(3)


def test_it_leaves_a_running_shop_alone_and_no_folder_behind(shop):
    parts, lock = shop.parts(), shop.get("/lock", shop.ports.instance(0) + 1)
    ports, out = shop.ports, shop.folder / "proof"
    proof = shop.run(SCRIPTS / "prove", "--lock", "redlock", "--out", out, *ports.options, *ports.lock_option)
    assert proof.code == 2 and f"a shop is up on port {ports.nginx} already" in proof.err, proof
    assert f"scripts/shop down --port {ports.nginx} ends it" in proof.err
    assert "scripts/prove --port 8890 --base-port 8100 --redis-port 7001 --lock-port 7130" in proof.err
    assert (shop.parts(), json.loads(shop.get("/lock", ports.instance(0) + 1))) == (parts, json.loads(lock))
    assert shop.shop("status").code == 0 and not out.exists()


def test_a_busy_port_is_told_before_anything_is_run(place):
    out = place.folder / "proof"
    with socket.create_server(("127.0.0.1", place.ports.base)):
        proof = place.run(SCRIPTS / "prove", "--lock", "local", "--out", out, *place.ports.options)
    assert proof.code == 2, proof
    assert f"port {place.ports.base}, wanted for instance a, is taken by python3, pid {os.getpid()}. End that, or " \
        "choose another with --base-port. Another shop beside it needs ports of its own: scripts/prove --port" in proof.err
    assert not out.exists()
    place.check_nothing_is_left()


@pytest.mark.parametrize("words, told", [
    (["--runs", "0"], "a whole number from 1 to 1000"),
    (["--lock", "setmx"], "it must be one of"),
    (["--lock", "fenced", "--write", "set"], "leave --write set out"),
    (["--instances", "2,x"], "a whole number from 1 to 16"),
    (["--run", "3"], "\"--run\" is not understood"),
])
def test_a_wrong_option_is_refused(place, words, told):
    proof = place.run(SCRIPTS / "prove", *words)
    assert proof.code == 2
    assert told in proof.err
