# SPDX-License-Identifier: Apache-2.0
"""Lines of records of tasks are lost, doubled, cut or changed. A good run is never accused for that. What is lost of a bad one
never makes it a good one."""
import tasks
import test_menu_fuzz
import test_tasks_bruteforce
from damage import judged
from judge import SEEDS

EVENTS = ["looked", "picked", "pick_refused", "worked", "sending", "result", "result_refused"]
WORDS = test_menu_fuzz.WORDS._replace(events=test_menu_fuzz.EVENTS + EVENTS)


def test_a_good_run_is_never_accused():
    for first in range(0, 10 * SEEDS, 100):
        for seed, verdict in judged(tasks.clean, first, False, WORDS):
            assert verdict["result"] in ("ok", "inconclusive"), (seed, verdict["reasons"])


def test_what_is_lost_excuses_nobody():
    def bad(seed):
        world = test_tasks_bruteforce.played(seed)
        return world if test_tasks_bruteforce.look(world)["result"] != "ok" else bad(seed + 100_003)
    for first in range(0, 5 * SEEDS, 100):
        for seed, verdict in judged(bad, first, True, WORDS):
            assert verdict["result"] != "ok", (seed, verdict["reasons"])
