# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# What scripts/format and scripts/lint share: the formatter, and which files are whose.

# of_version_14 PROGRAM: its name there; 1 when it is not. Other versions format a little differently, and find other
# things.
of_version_14() {
    local name
    for name in "$1-14" "$1"; do
        if "$name" --version 2>/dev/null | grep -q 'version 14\.'; then
            printf '%s\n' "$name"
            return
        fi
    done
    return 1
}

c_files() {
    git ls-files '*.c' '*.h'
}

# Those that are bash's: by their first lines.
shell_files() {
    git ls-files | xargs -d '\n' grep -lE -m 1 '^#!.*bash|^# shellcheck shell=bash'
}

python_files() {
    git ls-files '*.py'
    git ls-files scripts tests | xargs -d '\n' grep -lE -m 1 '^#!/usr/bin/python3' | grep -v '\.py$'
}
