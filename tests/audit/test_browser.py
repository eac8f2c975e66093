# SPDX-License-Identifier: Apache-2.0
"""timeline.svg in a real browser at 960 pixels: no text runs out of the picture or into another
one."""
import json
import os
import re
import shutil
import subprocess

import pytest
import shop
import small
from judge import audit
from simulate import simulate
from test_bruteforce import dirty

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")

# Every text's box, as the browser lays it out; written into the page for --dump-dom.
SCRIPT = """<script>
const boxes = [...document.querySelectorAll('svg text')].map(t => {
  const b = t.getBBox(); return [b.x, b.y, b.width, b.height, t.textContent]; });
const text = JSON.stringify(boxes).replace(/&/g, '&amp;').replace(/</g, '&lt;');
document.body.innerHTML = '<pre id="boxes">' + text + '</pre>';
</script>"""


def boxes_of(folder, tmp_path):
    with open(os.path.join(folder, "timeline.svg"), encoding="utf-8") as file:
        svg = file.read()
    page = tmp_path / "page.html"
    page.write_text('<!doctype html><meta charset="utf-8"><body style="margin:0">' + svg + SCRIPT,
                    encoding="utf-8")
    done = subprocess.run(
        [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage",
         "--disable-background-networking", "--disable-component-update", "--disable-sync",
         "--user-data-dir=" + str(tmp_path / "profile"), "--window-size=960,2000", "--dump-dom",
         page.as_uri()], capture_output=True, timeout=120, check=True, encoding="utf-8")
    text = re.search(r'<pre id="boxes">(.*?)</pre>', done.stdout, re.S).group(1)
    for code, character in (("&lt;", "<"), ("&gt;", ">"), ("&amp;", "&")):
        text = text.replace(code, character)
    return json.loads(text), float(re.search(r'height="(\d+)"', svg).group(1))


def worlds():
    long = "n" * 60
    made = {
        "set": simulate(1, 1500, rung="local", write="set", instances=["a", "b"],
                        items={"phone": 1000}),
        "ok": simulate(2, 1500, rung="watchdog", write="decr", instances=["a", "b"],
                       items={"phone": 1000}),
        "many": simulate(3, 600, rung="none", write="set", workers=16, instances=list("abcdefghij"),
                         items={"item-%d" % i: 20 for i in range(20)}),
        "long": simulate(4, 60, rung="local", write="decr", instances=[long + "1", "W" * 60],
                         items={"M" * 64: 40}, run=long * 4),
        "quantity": shop.clean(5, instances=["a", "b"], items={"phone": 999999}),
    }
    for make in small.ALL:
        made[make.__name__] = make()
    for seed in range(4):
        made["dirty-%d" % seed] = dirty(seed)
    return made


@pytest.mark.parametrize("name", list(worlds()))
def test_texts_keep_their_place(tmp_path, name):
    assert BROWSER, "chromium must be on PATH"
    folder = worlds()[name].write(str(tmp_path / "run"))
    audit(folder)
    boxes, height = boxes_of(folder, tmp_path)
    assert len(boxes) > 20
    for x, y, width, tall, text in boxes:
        assert x >= 0 and x + width <= 960 and y >= 0 and y + tall <= height, text
    for i, one in enumerate(boxes):
        for two in boxes[:i]:
            apart = (one[0] + one[2] <= two[0] + 1 or two[0] + two[2] <= one[0] + 1
                     or one[1] + one[3] <= two[1] + 4 or two[1] + two[3] <= one[1] + 4)
            assert apart, (one, two)
