# SPDX-License-Identifier: Apache-2.0
"""Lines of the records of accounts are lost, doubled, cut or changed. A good run is never accused for that. What is lost of a
bad one never makes it a good one."""
import account
import test_account_bruteforce
from damage import Words, judged
from judge import SEEDS

EVENTS = ["invoke", "read", "writing", "wrote", "write_refused", "wants", "answered", "granted", "enter", "exit", "release", "refused",
          "fail", "unknown", "looked", "filled", "write", "restock", "stall", "end", "begin"]
# The last ones are not changed: nothing else tells the time or the token of that line.
WORDS = Words(EVENTS, ["", "a", "acc-0", "acc-1", "add", "transfer", "look", "none:1#1", None, True, [], {}],
              [-1, 0, 1, 2, 4, 99, 2**53, 1.5], {"t_ns", "sent_ns", "clock_ns_realtime", "token"})


def good(seed):
    """Of a killed instance the last lines may be lost, and nothing shows it; so none is killed."""
    return account.clean(seed, died=False, fault="none")


def test_a_good_run_is_never_accused():
    for first in range(0, 10 * SEEDS, 100):
        for seed, verdict in judged(good, first, False, WORDS):
            assert verdict["result"] in ("ok", "inconclusive"), (seed, verdict["reasons"])


def test_what_is_lost_excuses_nobody():
    def bad(seed):
        world = test_account_bruteforce.played(seed)
        return world if test_account_bruteforce.look(world)[0] != "ok" else bad(seed + 100_003)
    for first in range(0, 5 * SEEDS, 100):
        for seed, verdict in judged(bad, first, True, WORDS):
            assert verdict["result"] != "ok", (seed, verdict["reasons"])
