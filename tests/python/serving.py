"""A server under test and plain clients for it.

    with Server(model, "-np", "4") as server:
        status, headers, body = server.post("/v1/completions", {"prompt": "a"})
        events = server.stream("/v1/completions", {"prompt": "a", "stream": True})
"""
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import time

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
RIDGE = os.environ.get("RIDGE_BIN", os.path.abspath("build/release/bin/ridge"))


class Server:
    PATIENCE_S = 180  # for what comes at once, but for a machine that does something else

    def __init__(self, model, *arguments):
        self.command = [RIDGE, "serve", "-m", model, "--port", "0", "--json", *arguments]

    def __enter__(self):
        self.child = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        text, self.document = "", None
        while self.document is None:
            line = self.child.stdout.readline()
            if not line:
                raise AssertionError(f"the server ended early: {self.child.communicate()[1]}")
            text += line
            if line == "}\n":
                self.document = json.loads(text)
        self.port, self.model = int(self.document["url"].rsplit(":", 1)[1]), self.document["model"]
        return self

    def __exit__(self, *_):
        if self.child.poll() is None:
            self.child.kill()
        self.child.communicate()

    def stop(self, *signals):
        """(status, stderr) after these signals, each sent when the one before was seen: nobody can connect any more."""
        for i, number in enumerate(signals):
            self.child.send_signal(number)
            end = time.monotonic() + self.PATIENCE_S
            while i + 1 < len(signals) and self.takes_connections():
                if time.monotonic() > end:
                    raise AssertionError("the server still takes connections")
                time.sleep(0.01)
        _, err = self.child.communicate(timeout=self.PATIENCE_S)
        return self.child.returncode, err

    def takes_connections(self):
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=self.PATIENCE_S).close()
            return True
        except ConnectionError:
            return False

    def request(self, method, path, body=None, headers=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=self.PATIENCE_S)
        try:
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            return answer.status, dict((k.lower(), v) for k, v in answer.getheaders()), answer.read()
        finally:
            connection.close()

    def get(self, path, headers=None):
        return self.request("GET", path, headers=headers)

    def post(self, path, body, headers=None):
        """(status, document)"""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        status, _, text = self.request("POST", path, data, headers)
        return status, json.loads(text)

    def stream(self, path, body):
        """The events of a stream, [DONE] left out; it must be there."""
        status, headers, text = self.request("POST", path, json.dumps({**body, "stream": True}).encode())
        if status != 200:
            raise AssertionError(f"{status} {text}")
        blocks = text.decode("utf-8").split("\n\n")
        assert blocks[-1] == "" and blocks[-2] == "data: [DONE]", text[-100:]
        return [json.loads(block.removeprefix("data: ")) for block in blocks[:-2]]

    def metrics(self):
        """name{labels without the model's} -> value"""
        out = {}
        for line in self.get("/metrics")[2].decode().splitlines():
            found = re.fullmatch(r"([\w:]+)\{([^}]*)\} (\S+)", line)
            if found:
                labels = ",".join(l for l in found[2].split(",") if not l.startswith("model_name="))
                out[found[1] + (f"{{{labels}}}" if labels else "")] = float(found[3])
        return out

    def until(self, condition, seconds=PATIENCE_S):
        """Waits for the metrics to meet a condition; the last ones seen."""
        end = time.monotonic() + seconds
        while not condition(seen := self.metrics()):
            if time.monotonic() > end:
                raise AssertionError(f"not reached in {seconds} s: {seen}")
            time.sleep(0.02)
        return seen

    def raw(self, data, half_close=False, timeout=PATIENCE_S):
        """Everything that comes back for these bytes until the server closes the connection."""
        got = b""
        with socket.create_connection(("127.0.0.1", self.port), timeout=timeout) as link:
            try:
                link.sendall(data)
                if half_close:
                    link.shutdown(socket.SHUT_WR)
                while piece := link.recv(1 << 16):
                    got += piece
            except ConnectionError:
                pass
        return got

    def open_stream(self, path, body):
        """A socket on which the answer begins to come."""
        data = json.dumps({**body, "stream": True}).encode()
        link = socket.create_connection(("127.0.0.1", self.port), timeout=self.PATIENCE_S)
        link.sendall(head(path, len(data)) + data)
        return link


def head(path, length, method="POST", more=""):
    return f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n{more}\r\n".encode()


def idle(metrics):
    return metrics["ridge:num_requests_running"] == 0 and metrics["ridge:num_requests_waiting"] == 0


SIGINT, SIGTERM = signal.SIGINT, signal.SIGTERM
