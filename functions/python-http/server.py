import os
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

LETTERS = b"abcdefghijklmnopqrstuvwxyz"

count = 0


class Server(HTTPServer):
    request_queue_size = 128


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # a reply is two writes, head and body

    def reply(self, body: bytes, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        global count
        if self.path == "/":
            self.reply(b"Hello from Python\n")
        elif self.path == "/count":
            count += 1
            self.reply(b"%d\n" % count)
        elif self.path.startswith("/bytes/") and self.path[7:].isdecimal():
            n = int(self.path[7:])
            self.reply((LETTERS * (n // 26 + 1))[:n])
        elif self.path == "/spin":
            while True:
                pass
        elif self.path == "/crash":
            os._exit(3)
        else:
            self.reply(b"not found\n", 404)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path == "/echo":
            self.reply(body)
        else:
            self.reply(b"not found\n", 404)

    def log_message(self, *args) -> None:
        pass


port = int(sys.argv[1]) if len(sys.argv) > 1 else 8080
server = Server(("127.0.0.1", port), Handler)
print(f"listening on {port}", flush=True)
server.serve_forever()
