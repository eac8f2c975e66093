# SPDX-License-Identifier: Apache-2.0
"""Copies the sources without build results, so that a test can change and build them."""
import pathlib
import shutil

ROOT = pathlib.Path(__file__).resolve().parents[2]


def copy_of_clone(folder):
    shutil.copytree(ROOT, folder, symlinks=True,
                    ignore=lambda at, names: {".git", ".cache", "build", "runs", "__pycache__"} & set(names)
                    if pathlib.Path(at) == ROOT else {"__pycache__"} & set(names))
    return folder
