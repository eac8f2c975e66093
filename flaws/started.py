# SPDX-License-Identifier: Apache-2.0
"""A process of a service: its log, which tells its ports, and the requests that it is sent."""
import contextlib
import http.client
import json
import subprocess

from waiting import PATIENCE_S, Inconclusive, wait_until


class Started:
    """process: it runs already, and log_path is where it logs."""

    def __init__(self, name, process, log_path):
        self.name, self.process, self.log_path = name, process, log_path
        self.port = self.admin_port = None

    def wait_started(self, patience_s=PATIENCE_S):
        """Returns when it serves, and its ports are known."""
        wait_until(lambda: self.logged("started") or self.process.poll() is not None, f"instance {self.name} starts", patience_s)
        if self.process.poll() is not None:
            raise Inconclusive(f"instance {self.name} does not start: {self.log.decode(errors='replace').strip()}")
        self.port, self.admin_port = self.port_of("listening"), self.port_of("admin-listening")

    @property
    def log(self):
        with contextlib.suppress(FileNotFoundError), open(self.log_path, "rb") as log:
            return log.read()
        return b""

    def logged(self, event):
        """The lines of its log about that. The last one may not be whole yet."""
        lines = [json.loads(line) for line in self.log.splitlines() if line.startswith(b"{") and line.endswith(b"}")]
        return [line for line in lines if line["event"] == event]

    def port_of(self, event):
        found = self.logged(event)
        return int(found[0]["detail"].rsplit(":", 1)[1]) if found else None

    def exchange(self, method, path, port, body=None, headers=None, patience_s=2 * PATIENCE_S):
        """Status, headers and body of the answer."""
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=patience_s)
        try:
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()

    def end(self):
        """In order where it can: then its history has an end."""
        if self.process.poll() is None:
            self.process.terminate()
        self.wait_ended()

    def wait_ended(self, patience_s=PATIENCE_S):
        try:
            self.process.wait(patience_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
