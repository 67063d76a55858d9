"""An HTTPS server. The daemon passes its connections on as they are: only the machine has the key."""
import http.server
import ssl
import sys


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = f"Hello from {self.connection.version()}, connection {self.server.connections}\n".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_) -> None:
        pass


class Server(http.server.HTTPServer):
    connections = 0
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)

    def get_request(self):
        self.connections += 1
        client, address = super().get_request()
        return self.context.wrap_socket(client, server_side=True), address


port = int(sys.argv[1]) if len(sys.argv) > 1 else 8443
server = Server(("127.0.0.1", port), Handler)
server.context.load_cert_chain("certificate.pem", "key.pem")
print(f"listening on {port}", flush=True)
server.serve_forever()
