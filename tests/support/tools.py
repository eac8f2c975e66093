# SPDX-License-Identifier: Apache-2.0
"""Which of the machine's tools a test lets a command find."""
import pathlib


def path_without(folder, *tools):
    """A PATH on which those tools are not to be found: a folder of links to all others."""
    farm = folder / "bin"
    farm.mkdir(exist_ok=True)
    farm.chmod(0o755)
    for place in ("/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin"):
        for file in pathlib.Path(place).iterdir():
            if file.name not in tools and not (farm / file.name).is_symlink():
                (farm / file.name).symlink_to(file)
    return farm
