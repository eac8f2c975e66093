# SPDX-License-Identifier: Apache-2.0
"""Lines of a menu's records are lost, doubled, cut or changed. A good run is never accused for that. What is lost of a bad
one never makes it a good one."""
import menu
import test_menu_bruteforce
from damage import Words, judged
from judge import SEEDS

EVENTS = ["invoke", "looked", "query", "queried", "filled", "fill_refused", "updated", "deleted", "answered", "granted", "enter",
          "exit", "release", "refused", "fail", "unknown", "read", "write", "restock", "stall", "end", "begin"]
# The last ones are not changed: a line has but one clock, so another time may be a true one.
WORDS = Words(EVENTS, ["", "a", "on", "cache", "update", "none:1#1", None, True, [], {}],
              [-1, 0, 1, 4, 99, 2**53, 1.5], {"t_ns", "sent_ns", "clock_ns_realtime"})


def test_a_good_run_is_never_accused():
    for first in range(0, 10 * SEEDS, 100):
        for seed, verdict in judged(menu.clean, first, False, WORDS):
            assert verdict["result"] in ("ok", "inconclusive"), (seed, verdict["reasons"])


def test_what_is_lost_excuses_nobody():
    def bad(seed):
        world = test_menu_bruteforce.played(seed)
        return world if test_menu_bruteforce.look(world)["result"] != "ok" else bad(seed + 100_003)
    for first in range(0, 5 * SEEDS, 100):
        for seed, verdict in judged(bad, first, True, WORDS):
            assert verdict["result"] != "ok", (seed, verdict["reasons"])
