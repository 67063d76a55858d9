"""An ASGI application. Run as a program, it serves itself with uvicorn."""
import os
import sys

import uvicorn

LETTERS = b"abcdefghijklmnopqrstuvwxyz"

count = 0


async def read_body(receive) -> bytes:
    chunks, more = [], True
    while more:
        message = await receive()
        chunks.append(message.get("body", b""))
        more = message.get("more_body", False)
    return b"".join(chunks)


async def route(method: str, path: str, receive) -> tuple[int, bytes]:
    global count
    match method, path:
        case "GET", "/":
            return 200, b"Hello from Python\n"
        case "GET", "/count":
            count += 1
            return 200, b"%d\n" % count
        case "POST", "/echo":
            return 200, await read_body(receive)
        case "GET", "/spin":
            while True:
                pass
        case "GET", "/crash":
            os._exit(3)
        case "GET", _ if path.startswith("/bytes/") and path[7:].isdecimal():
            n = int(path[7:])
            return 200, (LETTERS * (n // 26 + 1))[:n]
    return 404, b"not found\n"


async def app(scope, receive, send) -> None:
    assert scope["type"] == "http"
    status, body = await route(scope["method"], scope["path"], receive)
    headers = [(b"content-type", b"text/plain"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class Server(uvicorn.Server):
    async def startup(self, sockets=None) -> None:
        await super().startup(sockets)
        print(f"listening on {self.config.port}", flush=True)


if __name__ == "__main__":
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 8080
    config = uvicorn.Config(app, port=port, loop="asyncio", http="h11", lifespan="off", log_level="warning")
    Server(config).run()
