# SPDX-License-Identifier: Apache-2.0
"""scripts/setup with the real apt, dpkg and Maven, on a machine of the test's own: the files of this
one, with what is written kept in a folder (overlayfs), and no network."""
import contextlib
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import textwrap

import pytest

from bench import ROOT, call, run, wait_until
from needs import own
from tools import path_without

SETUP = ROOT / "scripts" / "setup"
INSTALL = ROOT / "scripts" / "lib" / "install-packages"
POLICY = "usr/sbin/policy-rc.d"
MINE = "#!/bin/sh\n# the administrator's own\nexit 104\n"
# A package with a service, as Debian's are: started by invoke-rc.d, enabled by deb-systemd-helper.
PACKAGE = "ladder-probe"


class Machine:
    """What is written to /etc, /usr and /var ends up in `written`. One command at a time."""

    def __init__(self, folder):
        self.folder = folder
        self.written = folder / "written"
        self.scratch = folder / "scratch"
        self.scratch.mkdir()
        self.apt = folder / "apt.conf"
        self.sources("")
        for part in ("etc", "usr", "var"):
            (self.written / part).mkdir(parents=True)
            (folder / "work" / part).mkdir(parents=True)

    def sources(self, text):
        """Where apt looks, instead of where this machine does."""
        (self.folder / "sources.list").write_text(text)
        self.apt.write_text(textwrap.dedent(f"""
            Dir::Etc::SourceList "{self.folder}/sources.list";
            Dir::Etc::SourceParts "/dev/null";
            Dir::State::Lists "{self.folder}/lists";
            Acquire::Retries "0";
            APT::Sandbox::User "root";
        """))
        (self.folder / "lists" / "partial").mkdir(parents=True, exist_ok=True)

    def words(self, command, network=False):
        around = own("mount", *([] if network else ["net"]))
        mounts = "; ".join(
            f"mount -t overlay -o lowerdir=/{part},upperdir={self.written}/{part},"
            f"workdir={self.folder}/work/{part} overlay /{part}" for part in ("etc", "usr", "var"))
        return [*around, "bash", "-c", f'set -e; {mounts}; ip link set lo up; exec "$@"', "machine", *map(str, command)]

    def env(self, **more):
        return {"APT_CONFIG": self.apt, "TMPDIR": self.scratch, **more}

    def run(self, *command, network=False, **env):
        return run(*self.words(command, network), env=self.env(**env))

    def start(self, *command, network=False):
        environment = {**os.environ, **{name: str(value) for name, value in self.env().items()}}
        return subprocess.Popen(
            self.words(command, network), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, env=environment,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler))

    def kill_all(self):
        """Every process that was started here: they inherit TMPDIR."""
        def alive():
            found = []
            for process in pathlib.Path("/proc").glob("[0-9]*"):
                try:
                    if f"TMPDIR={self.scratch}".encode() in (process / "environ").read_bytes():
                        found.append(int(process.name))
                except OSError:
                    pass
            return found
        for pid in alive():
            with contextlib.suppress(ProcessLookupError):  # one that ended with its parent
                os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not alive(), "the end of all")

    def write(self, path, text, mode=0o644):
        file = self.written / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(mode)
        return file

    def policy_stands_in(self):
        file = self.written / POLICY
        return file.exists() and "lockladder" in file.read_text()

    def leftovers(self):
        """Of the stand-in: nothing may be left beside the administrator's own."""
        sbin = self.written / "usr/sbin"
        return sorted(file.name for file in sbin.glob("policy-rc.d*") if file.is_file())

    def repository(self):
        """A package of the test's own, made by dpkg-deb, in a repository in a folder."""
        tree = self.folder / "package"
        (tree / "DEBIAN").mkdir(parents=True)
        (tree / "DEBIAN/control").write_text(textwrap.dedent(f"""\
            Package: {PACKAGE}
            Version: 1
            Architecture: all
            Maintainer: nobody <nobody@localhost>
            Description: says whether it was started
        """))
        (tree / "DEBIAN/postinst").write_text(textwrap.dedent(f"""\
            #!/bin/sh
            set -e
            deb-systemd-helper enable {PACKAGE}.service
            update-rc.d {PACKAGE} defaults
            invoke-rc.d {PACKAGE} start
        """))
        service = tree / "etc/init.d" / PACKAGE
        service.parent.mkdir(parents=True)
        service.write_text(textwrap.dedent(f"""\
            #!/bin/sh
            ### BEGIN INIT INFO
            # Provides: {PACKAGE}
            # Required-Start:
            # Required-Stop:
            # Default-Start: 2 3 4 5
            # Default-Stop:
            ### END INIT INFO
            touch {self.folder}/started
        """))
        unit = tree / "lib/systemd/system" / f"{PACKAGE}.service"
        unit.parent.mkdir(parents=True)
        unit.write_text("[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n")
        for file in (tree / "DEBIAN/postinst", service):
            file.chmod(0o755)
        place = self.folder / "repository"
        place.mkdir()
        deb = place / f"{PACKAGE}.deb"
        assert run("dpkg-deb", "--root-owner-group", "--build", tree, deb).returncode == 0
        digest = run("sha256sum", deb).stdout.split()[0]
        (place / "Packages").write_text(
            (tree / "DEBIAN/control").read_text() + f"Filename: ./{deb.name}\n"
            f"Size: {deb.stat().st_size}\nSHA256: {digest}\n")
        self.sources(f"deb [trusted=yes] file:{place} ./\n")


@pytest.fixture
def machine(tmp_path):
    folder = tmp_path / "machine"
    folder.mkdir()
    machine = Machine(folder)
    # The machine may be one where this very file stands already.
    (machine.written / "usr/sbin").mkdir()
    if pathlib.Path("/", POLICY).exists():
        machine.write(POLICY, "#!/bin/sh\nexit 0\n", 0o755)
    return machine


# ---- Nothing is missing --------------------------------------------------------------------------

def newest(*folders):
    return max((file.lstat().st_ctime_ns, str(file)) for folder in folders
               for file in pathlib.Path(folder).rglob("*"))


def test_nothing_missing_touches_nothing():
    watched = (ROOT / ".cache/jmeter", "/var/lib/dpkg/info", "/usr/sbin")
    before = newest(*watched)
    for words in (["--check"], ["--for", "test", "--check"], [], ["--for", "run"]):
        done = run(SETUP, *words)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert newest(*watched) == before


def test_nothing_missing_needs_neither_root_nor_debian_nor_network(machine, clone, as_nobody):
    machine.write("etc/os-release", 'ID=fedora\nPRETTY_NAME="Fedora Linux 40"\n')
    (clone / ".cache").mkdir()
    shutil.copytree(ROOT / ".cache/jmeter", clone / ".cache/jmeter")
    done = machine.run(*as_nobody, clone / "scripts/setup")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


# ---- Something is missing ------------------------------------------------------------------------

def test_check_tells_and_installs_nothing(tmp_path):
    done = run(SETUP, "--check", env={"PATH": path_without(tmp_path, "redis-server", "jq")})
    assert done.returncode == 1
    assert done.stdout.split() == ["redis-server", "jq"]
    done = run(SETUP, "--check", env={"LADDER_CACHE": tmp_path})
    assert done.returncode == 1
    assert done.stdout == "JMeter 5.6 or later (from Maven Central)\n"
    done = run(SETUP, "--check", env={"LADDER_CACHE": tmp_path,
                                      "PATH": path_without(tmp_path / "bin", "mvn")})
    assert done.stdout == "maven\nJMeter 5.6 or later (from Maven Central)\n"


def test_a_spoilt_jmeter_counts_as_missing(tmp_path):
    shutil.copytree(ROOT / ".cache/jmeter", tmp_path / "jmeter")
    (tmp_path / "jmeter/bin/ApacheJMeter.jar").unlink()
    done = run(SETUP, "--check", env={"LADDER_CACHE": tmp_path})
    assert done.stdout == "JMeter 5.6 or later (from Maven Central)\n"


def test_jmeter_home_serves_instead(tmp_path):
    done = run(SETUP, env={"LADDER_CACHE": tmp_path, "JMETER_HOME": ROOT / ".cache/jmeter"})
    assert (done.returncode, done.stderr) == (0, "")
    assert not list(tmp_path.glob("jmeter*"))
    done = run(SETUP, env={"JMETER_HOME": tmp_path})
    assert done.returncode == 2
    assert f"JMETER_HOME is {tmp_path}, but there is no bin/ApacheJMeter.jar in it" in done.stderr


@pytest.mark.parametrize("words,sentence", [
    (["--for", "fun"], '--for is "fun": it must be one of: rung run test bench zookeeper etcd'),
    (["--for"], "--for needs a value"),
    (["--dry-run"], '"--dry-run" is not understood. Options: --check --for --help'),
])
def test_what_it_refuses(words, sentence):
    done = run(SETUP, *words)
    assert done.returncode == 2
    assert sentence in done.stderr


def test_without_root_and_sudo(clone, as_nobody):
    farm = path_without(clone / "open", "redis-server", "sudo")
    for folder in (farm, farm.parent):
        folder.chmod(0o755)
    done = run(*as_nobody, clone / "scripts/setup", env={"PATH": farm, "LADDER_CACHE": clone / "open",
                                                         "JMETER_HOME": None})
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "missing: redis-server" in done.stderr
    assert "Installing takes root, and there is no sudo." in done.stderr
    assert "As root: apt-get install --no-install-recommends redis-server" in done.stderr


def test_sudo_that_would_ask_where_nobody_can_answer(clone, as_nobody):
    """A stand-in: sudo, as it answers --non-interactive when it needs a password."""
    farm = path_without(clone / "open", "redis-server", "sudo")
    (farm / "sudo").write_text("#!/bin/sh\necho 'sudo: a password is required' >&2\nexit 1\n")
    (farm / "sudo").chmod(0o755)
    done = run(*as_nobody, clone / "scripts/setup", env={"PATH": farm, "LADDER_CACHE": clone / "open"})
    assert done.returncode == 2 or not as_nobody
    assert "there is no terminal to ask on. Run scripts/setup in a terminal first" in done.stderr


def test_not_debian(machine, tmp_path):
    machine.write("etc/os-release", 'ID=fedora\nPRETTY_NAME="Fedora Linux 40"\n')
    done = machine.run(SETUP, PATH=path_without(tmp_path, "redis-server"))
    assert done.returncode == 2
    assert "missing: redis-server" in done.stderr
    assert "this is Fedora Linux 40: scripts/setup installs on Debian 12 and 13 only" in done.stderr


def test_no_network_for_apt(machine):
    machine.sources("deb http://deb.debian.org/debian stable main\n")
    done = machine.run(INSTALL, "no-such-package")
    assert done.returncode == 2
    assert "Debian's packages could not be fetched (unknown: no-such-package): is there a network" \
        in done.stderr
    assert "Failed to fetch http://deb.debian.org/debian/" in done.stderr
    assert machine.leftovers() in ([], ["policy-rc.d"]) and not machine.policy_stands_in()


def test_a_package_that_apt_cannot_find(machine):
    machine.repository()
    done = machine.run(INSTALL, "no-such-package")
    assert done.returncode == 2
    assert 'apt finds no package no-such-package. Debian 12 and 13 have them: is "main"' in done.stderr
    assert not machine.policy_stands_in()


def test_no_network_for_jmeter(machine, tmp_path):
    done = machine.run(SETUP, LADDER_CACHE=tmp_path / "cache")
    assert done.returncode == 2
    assert "JMeter could not be fetched from Maven Central" in done.stderr
    assert "Is there a network?" in done.stderr
    assert not (tmp_path / "cache/jmeter").exists()


# ---- What an installation leaves running ---------------------------------------------------------

def test_a_service_is_neither_started_nor_enabled(machine):
    machine.repository()
    done = machine.run(INSTALL, PACKAGE)
    assert done.returncode == 0, done.stderr
    status = (machine.written / "var/lib/dpkg/status").read_text()
    assert f"Package: {PACKAGE}\nStatus: install ok installed" in status
    assert not (machine.folder / "started").exists()
    wants = machine.written / "etc/systemd/system/multi-user.target.wants"
    if shutil.which("systemctl"):
        assert f"not started, and not enabled at boot: {PACKAGE}.service" in done.stderr
        assert not (wants / f"{PACKAGE}.service").is_symlink()
    assert not machine.policy_stands_in()
    assert not list(machine.scratch.iterdir())


def test_the_package_would_have_started(machine):
    """So that the test above means something: by apt-get alone it is started and enabled."""
    machine.repository()
    machine.write(POLICY, "#!/bin/sh\nexit 0\n", 0o755)
    for words in (["update"], ["install", "--yes", PACKAGE]):
        assert machine.run("apt-get", *words).returncode == 0
    assert (machine.folder / "started").exists()


@pytest.mark.parametrize("good", [True, False])
def test_a_policy_that_was_there_comes_back(machine, good):
    machine.repository()
    policy = machine.write(POLICY, MINE, 0o750)
    done = machine.run(INSTALL, PACKAGE if good else "no-such-package")
    assert done.returncode == (0 if good else 2)
    assert policy.read_text() == MINE
    assert policy.stat().st_mode & 0o777 == 0o750
    assert machine.leftovers() == ["policy-rc.d"]


class SilentServer:
    """Takes connections and never answers."""

    def __init__(self):
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]


@pytest.mark.parametrize("blow,code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_ctrl_c_while_apt_waits(machine, blow, code):
    server = SilentServer()
    machine.sources(f"deb [trusted=yes] http://127.0.0.1:{server.port}/ ./\n")
    policy = machine.write(POLICY, MINE, 0o750)
    setup = machine.start(INSTALL, PACKAGE, network=True)
    connection, _ = server.socket.accept()  # apt is waiting, the stand-in is there
    assert machine.policy_stands_in()
    setup.send_signal(blow)
    setup.communicate(timeout=120)
    assert setup.returncode == code
    assert policy.read_text() == MINE
    assert policy.stat().st_mode & 0o777 == 0o750
    assert machine.leftovers() == ["policy-rc.d"]
    assert not list(machine.scratch.iterdir())
    connection.settimeout(60)
    while connection.recv(4096):  # apt is gone too: its end of the connection is closed
        pass


def test_a_setup_that_was_killed_is_made_good_by_the_next(machine):
    server = SilentServer()
    machine.sources(f"deb [trusted=yes] http://127.0.0.1:{server.port}/ ./\n")
    policy = machine.write(POLICY, MINE, 0o750)
    setup = machine.start(INSTALL, PACKAGE, network=True)
    server.socket.accept()
    machine.kill_all()
    setup.communicate(timeout=60)
    assert machine.policy_stands_in()
    machine.repository()
    done = machine.run(INSTALL, PACKAGE)
    assert done.returncode == 0, done.stderr
    assert not (machine.folder / "started").exists()
    assert policy.read_text() == MINE
    assert machine.leftovers() == ["policy-rc.d"]


# ---- The lists -----------------------------------------------------------------------------------

def test_every_list_holds_the_one_for_running():
    lists = {purpose: dict(line.split() for line in call("setup_list", purpose).stdout.splitlines())
             for purpose in ("rung", "run", "test", "bench")}
    assert lists["rung"].items() <= lists["run"].items()
    assert lists["run"]["redis-server"] == "redis-server"
    assert lists["run"].items() <= lists["test"].items()
    assert lists["run"].items() <= lists["bench"].items()
