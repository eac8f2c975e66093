# SPDX-License-Identifier: Apache-2.0
"""For scripts/lint: how long lines are, and whether what Markdown links to is there."""
import os
import re
import subprocess
import sys

COLUMNS = {".c": 100, ".h": 100, ".sh": 120}
SCRIPT = 120  # of a file without an ending that is bash's
LINK = re.compile(r"(?<!\\)\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)


def files(*patterns):
    listed = subprocess.run(["git", "ls-files", "-z", *patterns], check=True, capture_output=True, text=True).stdout
    return [name for name in listed.split("\0") if name and os.path.isfile(name)]


def text_of(name):
    with open(name, encoding="utf-8", errors="replace") as file:
        return file.read()


def limit_of(name):
    ending = os.path.splitext(name)[1]
    if ending in COLUMNS:
        return COLUMNS[ending]
    if ending:
        return None
    with open(name, "rb") as file:
        first = file.readline()
    return SCRIPT if first.startswith(b"#!") and b"bash" in first else None


def too_long():
    for name in files():
        limit = limit_of(name)
        for number, line in enumerate(text_of(name).splitlines() if limit else (), 1):
            if len(line) > limit:
                yield f"{name}:{number}: {len(line)} columns; {limit} is the most"


def anchors(text):
    """As GitHub names the headings: in small letters, without punctuation, and with hyphens for blanks."""
    found = {}
    for heading in re.findall(r"^#+ +(.*?) *#*$", FENCE.sub("", text), re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        name = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        times = found[name] = found.get(name, -1) + 1
        if times:
            found[f"{name}-{times}"] = 0
    return set(found) | set(re.findall(r'<a (?:id|name)="([^"]+)"', text))


def broken_links():
    for name in files("*.md"):
        text = FENCE.sub(lambda match: "\n" * match[0].count("\n"), text_of(name))
        for number, line in enumerate(text.splitlines(), 1):
            for target in LINK.findall(re.sub(r"`[^`]*`", "", line)):
                path, _, anchor = target.partition("#")
                if re.match(r"[a-z]+:", target):
                    continue
                file = os.path.normpath(os.path.join(os.path.dirname(name), path)) if path else name
                if not os.path.exists(file):
                    yield f"{name}:{number}: there is no {target}"
                elif anchor and file.endswith(".md") and anchor not in anchors(text_of(file)):
                    yield f"{name}:{number}: {file} has no heading #{anchor}"


def main():
    found = list({"columns": too_long, "links": broken_links}[sys.argv[1]]())
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
