"""Two small servers on loopback that behave as Hugging Face's hub, Ollama's registry and the storage behind them do.

  with FakeHub() as hub:
      hub.add_repository("me/tiny", {"tiny-Q4_K_M.gguf": data})
      hub.add_ollama("library/tiny", "latest", [layer(data)])
      hub.script("storage", {"cut": 1000}, {"status": 429, "retry_after": 1})   # the next two requests for a file
      ... HF_ENDPOINT=hub.endpoint, RIDGE_OLLAMA_REGISTRY=hub.endpoint

The hub answers at 127.0.0.1 and redirects file requests to the storage at another host name (localhost) and port, as the real ones do.
`hub.requests` lists every request: server, path, headers.
"""
import hashlib
import http.server
import json
import re
import socket
import ssl
import threading
import time
import urllib.parse

REVISION = "0123456789abcdef0123456789abcdef01234567"


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def layer(data, kind="model", digest=None, size=None):
    return {"mediaType": f"application/vnd.ollama.image.{kind}", "digest": digest or "sha256:" + sha256(data),
            "size": len(data) if size is None else size, "data": data}


class Request:
    def __init__(self, server, path, headers):
        self.server, self.path, self.headers = server, path, headers
        self.range = headers.get("Range")
        self.token = headers.get("Authorization")
        self.sent = 0

    def __repr__(self):
        return f"{self.server} {self.path} range={self.range} token={self.token} sent={self.sent}"


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, body=b"", headers=()):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        try:
            self.handle_get()
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def handle_get(self):
        hub, kind = self.server.hub, self.server.kind
        path = urllib.parse.unquote(self.path)
        request = Request(kind, path, self.headers)
        with hub.lock:
            hub.requests.append(request)
        if kind == "storage":
            return self.file(request, hub.blobs.get(path.split("?")[0].rsplit("/", 1)[-1]), hub.next_of("storage"))
        step = hub.next_of("api")
        if step:
            return self.misbehave(request, step)
        found = re.fullmatch(r"/api/models/([^/]+/[^/?]+)\?blobs=true", path)
        if found:
            repository = hub.repositories.get(found[1])
            if repository is None:
                return self.answer(404, b'{"error":"Repository not found"}')
            if repository.get("token") and self.headers.get("Authorization") != "Bearer " + repository["token"]:
                return self.answer(401, b'{"error":"Access to model is restricted"}')
            return self.answer(200, json.dumps(repository["document"]).encode(), [("Content-Type", "application/json")])
        found = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path)
        if found and found[1] in hub.repositories:
            data = hub.repositories[found[1]]["files"].get(found[3])
            return self.redirect(data)
        found = re.fullmatch(r"/v2/(.+)/manifests/([^/]+)", path)
        if found:
            manifest = hub.manifests.get((found[1], found[2]))
            if manifest is None or "manifest.v2+json" not in self.headers.get("Accept", ""):
                return self.answer(404, b'{"errors":[{"code":"MANIFEST_UNKNOWN"}]}')
            return self.answer(200, manifest)
        found = re.fullmatch(r"/v2/(.+)/blobs/sha256:([0-9a-f]{64})", path)
        if found:
            return self.redirect(hub.by_claim.get(found[2]))
        return self.answer(404)

    def redirect(self, data):
        hub = self.server.hub
        if data is None:
            return self.answer(404)
        key = sha256(data)
        hub.blobs[key] = data
        return self.answer(302, b"moved", [("Location", hub.redirect_to or f"{hub.storage}/objects/{key}?signature=x")])

    def misbehave(self, request, step):
        if "location" in step:
            return self.answer(302, b"", [("Location", step["location"])])
        if "body" in step:
            return self.answer(200, step["body"])
        headers = [("Retry-After", str(step["retry_after"]))] if "retry_after" in step else []
        return self.answer(step["status"], b"<html>no</html>", headers)

    def file(self, request, data, step):
        step = step or {}
        if "status" in step or "location" in step:
            return self.misbehave(request, step)
        if data is None:
            return self.answer(404)
        if "instead" in step:
            data = step["instead"]
        start, status = 0, 200
        found = re.fullmatch(r"bytes=(\d+)-", request.range or "")
        if found and not step.get("no_range"):
            start, status = int(found[1]), 206
            if start >= len(data):
                return self.answer(416, b"", [("Content-Range", f"bytes */{len(data)}")])
        if step.get("wrong_range") and status == 206:
            start -= 1
        body = data[start:]
        self.send_response(status)
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Accept-Ranges", "bytes")
        if step.get("no_length"):
            self.send_header("Connection", "close")
            self.close_connection = True
        else:
            self.send_header("Content-Length", str(len(body)))
        if status == 206:
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        self.end_headers()
        limit = step.get("cut", step.get("stall_after", len(body)))
        speed = step.get("bytes_per_second")
        piece = 16384 if speed else 1 << 20
        for at in range(0, min(limit, len(body)), piece):
            part = body[at:min(at + piece, limit)]
            request.sent += len(part)  # first: whoever has it all may be done before this thread goes on
            self.wfile.write(part)
            if speed:
                time.sleep(len(part) / speed)
        if "stall_after" in step:
            self.server.hub.stop.wait(600)
        if "cut" in step or "stall_after" in step:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        pass  # clients that break off, or do not trust the certificate, are part of the tests


class FakeHub:
    def __init__(self, certificate=None):
        self.lock = threading.Lock()
        self.stop = threading.Event()
        self.requests, self.repositories, self.manifests, self.blobs, self.by_claim = [], {}, {}, {}, {}
        self.scripts = {"api": [], "storage": []}
        self.redirect_to = None
        self.servers = []
        for kind in ("hub", "storage"):
            server = Server(("127.0.0.1", 0), Handler)
            server.hub, server.kind = self, kind
            if certificate and kind == "hub":
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                context.load_cert_chain(*certificate)
                server.socket = context.wrap_socket(server.socket, server_side=True)
            self.servers.append(server)
            threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        self.endpoint = f"{'https' if certificate else 'http'}://127.0.0.1:{self.servers[0].server_port}"
        self.storage = f"http://localhost:{self.servers[1].server_port}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop.set()
        for server in self.servers:
            server.shutdown()
            server.server_close()

    def add_repository(self, name, files, token=None, claims=None, extra=()):
        """files: path -> bytes. claims: path -> what the listing says instead (size, sha256). extra: raw siblings."""
        siblings = [{"rfilename": "README.md", "size": 10}, *extra]
        for path, data in files.items():
            claim = {"size": len(data), "sha256": sha256(data), **(claims or {}).get(path, {})}
            siblings.append({"rfilename": path, "size": claim["size"], "blobId": "b" * 40,
                             "lfs": {"sha256": claim["sha256"], "size": claim["size"], "pointerSize": 134}})
        self.repositories[name] = {"files": files, "token": token, "document": {"id": name, "sha": REVISION, "siblings": siblings}}

    def add_ollama(self, name, tag, layers):
        for item in layers:
            self.by_claim[item["digest"].split(":")[-1]] = item["data"]
        listed = [{k: v for k, v in item.items() if k != "data"} for item in layers]
        self.manifests[name, tag] = json.dumps({"schemaVersion": 2, "layers": listed}).encode()

    def script(self, kind, *steps):
        """What the next requests of a kind ('api': the hub's own answers; 'storage': files) meet, one step each."""
        with self.lock:
            self.scripts[kind].extend(steps)

    def next_of(self, kind):
        with self.lock:
            return self.scripts[kind].pop(0) if self.scripts[kind] else None

    def of(self, server):
        with self.lock:
            return [r for r in self.requests if r.server == server]
