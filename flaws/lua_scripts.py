# SPDX-License-Identifier: Apache-2.0
"""The scripts as the build embeds them: a line `-- include parts/x.lua` stands for that file."""
import hashlib
import re


def text(file):
    return re.sub(r"^-- include (parts/\w+\.lua)\n", lambda found: (file.parent / found[1]).read_text(encoding="utf-8"),
                  file.read_text(encoding="utf-8"), flags=re.MULTILINE)


def sha1(file):
    """What Redis knows it by."""
    return hashlib.sha1(text(file).encode()).hexdigest()
