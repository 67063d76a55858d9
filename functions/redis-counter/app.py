"""Counts its requests in Redis, which runs in a storage machine (docs/howto/storage.md)."""
import http.server
import socket
import sys


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        with socket.create_connection(("127.0.0.1", 6379)) as redis, redis.makefile("rb") as answers:
            redis.sendall(b"INCR requests\r\n")
            count = answers.readline().strip(b":\r\n")
        body = b"request " + count + b"\n"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


port = int(sys.argv[1]) if len(sys.argv) > 1 else 8080
server = http.server.HTTPServer(("127.0.0.1", port), Handler)
print(f"listening on {port}", flush=True)
server.serve_forever()
