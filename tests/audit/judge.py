# SPDX-License-Identifier: Apache-2.0
"""Runs the judge on many folders at once and reads what it wrote."""
import json
import os
import shutil
import subprocess
import tempfile

from needs import memory_folder

JUDGE = os.environ["LADDER_AUDIT"]
BATCH = 100
FOLDERS = memory_folder(1 << 30)  # thousands of small files; all the tests side by side take half of that
SEEDS = int(os.environ.get("LADDER_AUDIT_SEEDS", "200"))


def audit(*arguments, timeout=120):
    return subprocess.run([JUDGE, *map(str, arguments)], capture_output=True, timeout=timeout,
                          check=False, encoding="utf-8", errors="replace")


def verdict_of(folder):
    with open(os.path.join(folder, "verdict.json"), encoding="utf-8") as file:
        return json.load(file)


class judge:  # pylint: disable=invalid-name
    """with judge({key: world}) as {key: (verdict, folder)}: the folders live as long."""

    def __init__(self, worlds):
        self.worlds = worlds

    def __enter__(self):
        self.root = tempfile.mkdtemp(prefix="ladder-audit-", dir=FOLDERS)
        try:
            return self.audit_all()
        except BaseException:
            shutil.rmtree(self.root)
            raise

    def audit_all(self):
        folders = {key: world.write(os.path.join(self.root, str(key)))
                   for key, world in self.worlds.items()}
        keys = list(folders)
        for i in range(0, len(keys), BATCH):
            done = audit(*[folders[key] for key in keys[i:i + BATCH]])
            assert done.returncode in (0, 1, 2), done.stderr
            assert done.stderr == "", done.stderr
        return {key: (verdict_of(folder), folder) for key, folder in folders.items()}

    def __exit__(self, *_):
        shutil.rmtree(self.root)
