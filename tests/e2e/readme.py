# SPDX-License-Identifier: Apache-2.0
"""The run that both READMEs show."""
import re

from place import ROOT


def shown(name):
    """The block behind the mark."""
    return re.search(r"<!-- demo -->\n```\n(.*?)```", (ROOT / name).read_text(), re.S)[1]


def without_numbers(text):
    text = re.sub(r"-?\d[\d.]*", "0", text)
    # Which of the two the mutex and DECR end in is luck; the judge accepts both.
    text = re.sub(r"(OVERSOLD\|OVERLAP )(OVERSOLD \(\+0\)|OVERLAP)", r"\1either", text)
    return [" ".join(line.split()) for line in text.splitlines()]
