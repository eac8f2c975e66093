# SPDX-License-Identifier: Apache-2.0
"""The statistics of many rounds: medians, ratios with an interval, and whether a bar was reached."""
import random
import statistics

RESAMPLES = 10_000


class Rounds:
    """The rounds of one load, by contestant and processes, in the order in which they were run."""

    def __init__(self, rows, seed):
        self.rows = rows
        self.seed = seed

    def of(self, contestant, figure, processes=None):
        return [row[figure] for row in self.rows if row["who"] == contestant
                and processes in (None, row["processes"])]

    def median(self, contestant, figure, processes=None):
        values = self.of(contestant, figure, processes)
        return statistics.median(values) if values else None

    def ratio(self, one, other, figure):
        """The ratio of the medians, and the ends of its 95 % interval. The bootstrap draws pairs of neighbouring
        rounds, so a disturbance of both does not favour one."""
        pairs = list(zip(self.of(one, figure), self.of(other, figure)))
        if not pairs or not all(b > 0 for _, b in pairs):
            return None
        chance = random.Random(self.seed)

        def once(sample):
            return statistics.median(a for a, _ in sample) / statistics.median(b for _, b in sample)
        drawn = sorted(once(chance.choices(pairs, k=len(pairs))) for _ in range(RESAMPLES))
        return once(pairs), drawn[int(0.025 * RESAMPLES)], drawn[int(0.975 * RESAMPLES) - 1]


# A bar: its text, a function that measures it (None: not measured), its limit, and its direction.

def ratio_bar(one, other, least, words="sales/s", figure="sales_per_s"):
    def seen(rounds):
        ratio = rounds.ratio(one, other, figure)
        return ratio and ratio[0]
    return f"{words}, {one} / {other}", seen, least, "least"


def faster_bar(one, other):
    def seen(rounds):
        ratio = rounds.ratio(one, other, "sales_per_s")
        return ratio and ratio[1]
    return f"sales/s, {one} / {other}, lower end of the interval", seen, 1.0, "above"


def median_bar(contestant, figure, limit, way):
    return (f"{figure.replace('_', ' ')}, {contestant}",
            lambda rounds: rounds.median(contestant, figure), limit, way)


def cost_bar(one, other, most, figure="us_per_sale"):
    def seen(rounds):
        ratio = rounds.ratio(one, other, figure)
        return ratio and ratio[0]
    return f"time of a pair, {one} / {other}", seen, most, "most"


def most_bar(contestant, figure, most):
    def seen(rounds):
        return max((rounds.median(contestant, figure, n) for n in processes_of(rounds, contestant)),
                   default=None)
    return f"{figure.replace('_', ' ')}, {contestant}, the most of any size", seen, most, "most"


def same_bar(contestant, figure, most):
    def seen(rounds):
        medians = [rounds.median(contestant, figure, n) for n in processes_of(rounds, contestant)]
        return max(medians) / min(medians) if len(medians) > 1 else None
    return f"{figure.replace('_', ' ')}, {contestant}, most / least of all sizes", seen, most, "most"


def processes_of(rounds, contestant):
    return sorted({row["processes"] for row in rounds.rows if row["who"] == contestant})


WAYS = {"least": ("at least", lambda seen, limit: seen >= limit),
        "most": ("at most", lambda seen, limit: seen <= limit),
        "above": ("above", lambda seen, limit: seen > limit)}


def judge(bars, rounds):
    """Yields (text, verdict) of each bar."""
    for words, look, limit, way in bars:
        seen = look(rounds)
        name, holds = WAYS[way]
        if seen is None:
            yield f"{words} (bar: {name} {limit:g})", "not measured"
        else:
            yield (f"{words}: {seen:.3g} (bar: {name} {limit:g})",
                   "reached" if holds(seen, limit) else "missed")


def tell_bars(bars, rounds, rows):
    """Prints the verdict of each bar. True if every round was valid, the warm-ups too, and no bar was missed."""
    well = all(row["verdict"] == "ok" for row in rows)
    for words, verdict in judge(bars, rounds):
        print(f"  {words}: {verdict}", flush=True)
        well &= verdict != "missed"
    return well
