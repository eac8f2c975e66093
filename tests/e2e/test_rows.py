# SPDX-License-Identifier: Apache-2.0
"""scripts/lib/rows: a load for every rung, and the judge's word."""
import json

from place import ROOT, SCRIPTS


def test_every_rung_does_what_the_ladder_says(place):
    """As the load job of the compose file does it: all that is known of the shop is where it is. Written by GET and
    SET, which shows most; with DECR the two that let others in show something else, and one of the others stands for
    all."""
    assert place.shop("up", "--work-ms", 1, *place.ports.lock_option).code == 0
    rungs = [rung["name"] for rung in json.loads((ROOT / "docs" / "reference" / "rungs.json").read_text())["rungs"]
             if rung["engine"] in ("none", "redis")]
    loads = [[f"{rung}:set" for rung in rungs[at:at + 2]] for at in range(0, len(rungs), 2)]
    loads += [["none:decr", "local:decr", "setnx:decr"], ["fenced", "fenced_textbook", "fair:fenced"]]
    ports, folder = place.ports, place.state / str(place.ports.nginx)
    for rows in loads:  # a few at a time: a busy machine takes a minute for a row
        load = place.run(
            SCRIPTS / "lib" / "rows", "--http", f"127.0.0.1:{ports.nginx}",
            "--operators", f"127.0.0.1:{ports.operators}",
            "--redis", f"127.0.0.1:{ports.redis}", "--nginx-log", folder / "nginx" / "access.log",
            "--instance", f"a=127.0.0.1:{ports.instance(0) + 1}",
            "--instance", f"b=127.0.0.1:{ports.instance(1) + 1}",
            "--histories", folder / "history", "--runs", place.runs,
            *[f"--row={row}" for row in rows], "-Jstock=50", "-Jthreads=100")
        assert load.code == 0, load
        assert f"{len(rows)} of {len(rows)} rows did what the ladder says." in load.out
    assert place.shop("down").code == 0


def test_rows_needs_to_know_where_the_shop_is(place):
    assert "--instance NAME=HOST:PORT is missing" in place.run(SCRIPTS / "lib" / "rows").err
