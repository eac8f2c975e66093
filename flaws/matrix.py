# SPDX-License-Identifier: Apache-2.0
"""Every rung under every scenario, each cell run for real on a Redis of its own, several at a time; what the
judge found is the cell's colour. `write` leaves matrix.json and one HTML page beside
the runs."""
import concurrent.futures
import contextlib
import html
import json
import os
import pathlib
import re
import sys
import textwrap
import threading
import time

from waiting import STOP

COLORS = {"OK": "32", **dict.fromkeys(("OVERSOLD", "STALE", "UNBALANCED", "REPEATED", "LOST_TASK"), "31"), "STAMPEDE": "33", "OVERLAP": "33",
          "DEADLOCK": "35", "UNDERSOLD": "36", "INCONCLUSIVE": "7"}
AGAIN_MAX = 5  # cells that are not as expected and are played again
WIDE = len("INCONCLUSIVE!")  # of a column of the terminal's table
PASTELS = {"31": "#f8c9c4", "32": "#d9f2df", "33": "#fbe3b0", "35": "#e3d0f5", "36": "#cfe8f5", "7": "#dddddd"}
SHADES = {word: PASTELS[color] for word, color in COLORS.items()}
MEANINGS = {
    "OK": "nothing was done wrongly, and nobody was kept out for ever",
    "OVERSOLD": "more was sold than there was, or a unit twice",
    "STALE": "an answer had an older menu than that of an update that was answered before",
    "UNBALANCED": "an update or a part of a transfer is lost, or an account holds something else than was written",
    "REPEATED": "a task was done twice",
    "LOST_TASK": "a task has no result, and nobody can pick it any more",
    "STAMPEDE": "the database was asked although another reader had asked it already",
    "OVERLAP": "two were inside the lock at once; nothing was oversold this time",
    "DEADLOCK": "the lock is held by nobody who could give it back, or its holders wait for themselves or for each other",
    "UNDERSOLD": "a buyer was rejected although enough was left; nothing was sold wrongly",
    "INCONCLUSIVE": "no try could show it; the cell says why",
}


class Cell:
    def __init__(self, rung, flaw, verdict, transcript, folder, spoiled):
        self.of = flaw.of
        self.rung, self.flaw, self.folder, self.inconclusive_tries, self.transcript = rung.name, flaw.name, folder, spoiled, transcript
        self.result = verdict["result"] if verdict else "inconclusive"
        self.expected = verdict["expected"] if verdict else []
        self.why = verdict.get("expected_why", "") if verdict else ""
        self.reasons = verdict["reasons"] if verdict else spoiled[-1:]
        self.agrees = bool(verdict) and verdict["agrees"]
        self.unstable = ""  # what it was before, if it was as expected only when it was played again

    @property
    def word(self):
        """The judge's result as its own table and the book print it."""
        return self.result.upper()

    def json(self):
        return {"rung": self.rung, "scenario": self.flaw, "result": self.result,
                "expected": self.expected, "why": self.why, "agrees": self.agrees, "reasons": self.reasons,
                "inconclusive_tries": self.inconclusive_tries, "unstable": self.unstable,
                "run": self.folder.name if self.folder else None}


@contextlib.contextmanager
def side_by_side(function, items, jobs):
    """function of each item, so many at once; the results in the items' order. An exception in the caller stops all."""
    pool = concurrent.futures.ThreadPoolExecutor(jobs)
    try:
        yield pool.map(function, items)
    except BaseException:
        STOP.set()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def run(pairs, perform, jobs, tell):
    """A cell for each (rung, scenario). perform(flaw, rung): a Cell. tell: called with each as it is done."""
    lock = threading.Lock()

    def one(pair):
        cell = perform(pair[1], pair[0])
        with lock:
            tell(cell)
        return cell
    with side_by_side(one, pairs, jobs) as cells:
        return list(cells)


def play_again(cells, pairs, perform):
    """The cells of these pairs that are not as expected, if they are few: each twice more, with nothing beside it. One that
    is as expected both times counts as that, and is called unstable: the machine was too slow for it among others, or it
    hides a rare fault."""
    wrong = [at for at, cell in enumerate(cells) if not cell.agrees]
    for at in wrong if len(wrong) <= AGAIN_MAX else ():
        was, (rung, flaw) = cells[at], pairs[at]
        print(f"{was.rung}, {was.flaw}: {was.word} was not expected; it runs twice more, alone", file=sys.stderr, flush=True)
        alone = [perform(flaw, rung) for _ in range(2)]
        if all(cell.agrees for cell in alone):
            alone[-1].unstable = f"{was.word} beside other cells: {'; '.join(was.reasons[:1])}"
            cells[at] = alone[-1]


def table(cells, color, columns):
    """For a terminal: a row a scenario, a column a rung, since the scenarios are more and have longer names. What is
    wider than so many columns stands below, and so do the rungs to which other scenarios can happen."""
    return "\n\n".join(part_of_table(some, color, columns) for some in apart(cells))


def apart(cells):
    """The cells of the ladder's rungs, those of ensembles, those of policies, and those of each other service."""
    return list(filter(None, ([cell for cell in cells if cell.of == of] for of in dict.fromkeys(cell.of for cell in cells))))


def part_of_table(cells, color, columns):
    rungs = list(dict.fromkeys(cell.rung for cell in cells))
    flaws = list(dict.fromkeys(cell.flaw for cell in cells))
    by_place = {(cell.rung, cell.flaw): cell for cell in cells}
    left = max(map(len, flaws))
    fit = max(1, (columns - left) // (WIDE + 2))

    def part(shown):
        names = [textwrap.wrap(rung.replace("_", "-"), WIDE - 1) for rung in shown]  # it breaks lines behind a "-"
        for at in range(max(map(len, names))):
            line = " " * left + "".join(f"  {name[at] if at < len(name) else '':<{WIDE}}" for name in names)
            yield line.rstrip().replace("-", "_")
        for flaw in flaws:
            line = f"{flaw:<{left}}"
            for rung in shown:
                cell = by_place.get((rung, flaw))
                if cell is None:  # it cannot happen to that rung
                    line += " " * (WIDE + 2)
                    continue
                word = f"{cell.word + ('' if cell.agrees else '!'):<{WIDE}}"
                line += "  " + (f"\033[{COLORS[cell.word]}m{word}\033[0m" if color else word)
            yield line.rstrip() if not color else line
    return "\n\n".join("\n".join(part(rungs[at:at + fit])) for at in range(0, len(rungs), fit))


# ---- The page --------------------------------------------------------------------------------------

STYLE = """body{font:15px/1.45 sans-serif;margin:2em auto;max-width:1400px;padding:0 1em;color:#222}
table{border-collapse:collapse;font-size:13px}th,td{border:1px solid #bbb;padding:.3em .5em;text-align:left}
td.cell{cursor:pointer;text-align:center;padding:.3em .1em;font-size:11px}div.wide{overflow-x:auto}td.cell:hover,td.cell:focus{outline:2px solid #222}
th.fault{writing-mode:vertical-rl;transform:rotate(180deg);font-weight:400;max-height:24em}
td.wrong{outline:3px solid #c00}pre{background:#f4f4f4;padding:1em;overflow-x:auto;font-size:12.5px}
section{display:none;border-top:2px solid #222;margin-top:2em}section:target{display:block}
svg{max-width:100%;height:auto}a{color:inherit;text-decoration:none}.key span{padding:.1em .6em;margin-right:.4em}"""


def alone(svg, number):
    """The picture's names made its own: many pictures stand in one page."""
    svg = re.sub(r"<\?xml[^>]*\?>", "", svg)
    names = set(re.findall(r'\bid="([^"]+)"', svg))
    for name in names:
        own = f"p{number}-{name}"
        svg = svg.replace(f'id="{name}"', f'id="{own}"').replace(f"#{name})", f"#{own})").replace(f'"#{name}"', f'"#{own}"')
    return svg


def page(cells, flaws, took_s):
    titles = {flaw.name: flaw.title for flaw in flaws}
    numbers = {cell: number for number, cell in enumerate(cells)}
    escape = html.escape
    out = ["<!doctype html><html lang=en><meta charset=utf-8><title>lockladder: every rung under every fault</title>",
           f"<style>{STYLE}</style><h1>Every rung under every fault</h1>",
           f"<p>{len(cells)} cells, each run for real on servers of its own, in {took_s:.0f} s; "
           f"{sum(cell.agrees for cell in cells)} are as expected. Click a cell to see what happened in it.</p><p class=key>"]
    out += [f'<span style="background:{SHADES[word]}">{word}</span> {escape(meaning)}<br>' for word, meaning in MEANINGS.items()]
    out.append("</p>")
    for some in apart(cells):
        by_place = {(cell.rung, cell.flaw): cell for cell in some}
        names = [name for name in titles if any(cell.flaw == name for cell in some)]
        out.append("<div class=wide><table><tr><th></th>" + "".join(
            f'<th class=fault><b>{escape(name)}</b>: {escape(titles[name])}</th>' for name in names) + "</tr>")
        for rung in dict.fromkeys(cell.rung for cell in some):
            out.append(f"<tr><th>{escape(rung)}</th>")
            for name in names:
                cell = by_place.get((rung, name))
                out.append("<td></td>" if cell is None else
                           f'<td class="cell{"" if cell.agrees else " wrong"}" style="background:{SHADES[cell.word]}">'
                           f'<a href="#c{numbers[cell]}">{cell.word}</a></td>')
            out.append("</tr>")
        out.append("</table></div>")
    for number, cell in enumerate(cells):
        picture = cell.folder / "timeline.svg" if cell.folder else None
        out.append(f'<section id="c{number}"><h2>{escape(cell.rung)}: {escape(titles[cell.flaw])}</h2>')
        out.append(f"<p><b>{cell.word}</b>; expected: {escape(', '.join(e.upper() for e in cell.expected))}. "
                   f"{escape(cell.why)}.</p>")
        if picture and picture.exists():
            out.append(alone(picture.read_text(encoding="utf-8"), number))
        out.append(f"<pre>{escape(cell.transcript)}</pre><p>{'<br>'.join(map(escape, cell.reasons[:4]))}</p></section>")
    return "\n".join(out) + "</html>\n"


def write(cells, flaws, folder, took_s):
    folder = pathlib.Path(folder)
    (folder / "matrix.json").write_text(
        json.dumps({"took_s": round(took_s, 1), "cells": [cell.json() for cell in cells]}, indent=1) + "\n", encoding="utf-8")
    (folder / "matrix.html").write_text(page(cells, flaws, took_s), encoding="utf-8")


def progress(total):
    """Says how far it is, on a terminal in one line."""
    done, began = [0], time.monotonic()

    def tell(cell):
        done[0] += 1
        text = f"{done[0]} of {total}: {cell.rung}, {cell.flaw}: {cell.word}{'' if cell.agrees else ' (not as expected)'}"
        if sys.stderr.isatty():
            print(f"\r\033[K{text}", end="\n" if done[0] == total else "", file=sys.stderr, flush=True)
        elif done[0] % 20 == 0 or done[0] == total or not cell.agrees:
            print(f"{text}, {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    return tell


def default_jobs():
    return max(2, 2 * (os.cpu_count() or 1))
