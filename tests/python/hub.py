"""A server with the endpoints of the model hub that a download uses, for one repository whose files are those of a folder."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

COMMIT = hashlib.sha1(b"the only commit").hexdigest()


class Hub(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, repository: str, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.repository, self.folder = repository, folder
        self.requests: list[tuple[str, str]] = []
        self.endpoint = f"http://127.0.0.1:{self.server_address[1]}"

    def files(self) -> list[str]:
        return sorted(p.relative_to(self.folder).as_posix() for p in self.folder.rglob("*") if p.is_file())


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Hub

    def do_GET(self) -> None:
        self.serve(body=True)

    def do_HEAD(self) -> None:
        self.serve(body=False)

    def serve(self, body: bool) -> None:
        hub, path = self.server, self.path.split("?")[0]
        hub.requests.append((self.command, path))
        api, files = f"/api/models/{hub.repository}", f"/{hub.repository}/resolve/"
        if path in (f"{api}/revision/main", f"{api}/revision/{COMMIT}", api):
            siblings = [{"rfilename": name} for name in hub.files()]
            self.json(200, {"id": hub.repository, "sha": COMMIT, "private": False, "siblings": siblings, "tags": []}, body)
        elif path.startswith(f"{api}/tree/"):
            listed = [
                {"type": "file", "path": n, "size": (hub.folder / n).stat().st_size, "oid": self.etag(n)} for n in hub.files()
            ]
            self.json(200, listed, body)
        elif path.startswith(files) and (name := path[len(files) :].partition("/")[2]) in hub.files():
            self.file(name, body)
        else:
            self.json(404, {"error": "Repository not found"}, body, {"X-Error-Code": "RepoNotFound"})

    def etag(self, name: str) -> str:
        return hashlib.sha1((self.server.folder / name).read_bytes()).hexdigest()

    def file(self, name: str, body: bool) -> None:
        data = (self.server.folder / name).read_bytes()
        begin = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")[0])
        self.send_response(206 if begin else 200)
        if begin:
            self.send_header("Content-Range", f"bytes {begin}-{len(data) - 1}/{len(data)}")
        self.send_header("ETag", f'"{self.etag(name)}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("Content-Length", str(len(data) - begin))
        self.end_headers()
        if body:
            self.wfile.write(data[begin:])

    def json(self, status: int, value: object, body: bool, headers: dict[str, str] | None = None) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        for key, text in {"Content-Type": "application/json", "Content-Length": str(len(data)), **(headers or {})}.items():
            self.send_header(key, text)
        self.end_headers()
        if body:
            self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def serving(repository: str, folder: Path) -> Iterator[Hub]:
    hub = Hub(repository, folder)
    thread = threading.Thread(target=hub.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield hub
    finally:
        hub.shutdown()
        thread.join()
        hub.server_close()
