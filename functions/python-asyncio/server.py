import asyncio
import os
import sys

LETTERS = b"abcdefghijklmnopqrstuvwxyz"

count = 0


def route(method: str, path: str, body: bytes) -> tuple[str, bytes]:
    global count
    match method, path:
        case "GET", "/":
            return "200 OK", b"Hello from Python\n"
        case "GET", "/count":
            count += 1
            return "200 OK", b"%d\n" % count
        case "POST", "/echo":
            return "200 OK", body
        case "GET", "/spin":
            while True:
                pass
        case "GET", "/crash":
            os._exit(3)
        case "GET", _ if path.startswith("/bytes/") and path[7:].isdecimal():
            n = int(path[7:])
            return "200 OK", (LETTERS * (n // 26 + 1))[:n]
    return "404 Not Found", b"not found\n"


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    """Serves one request; false when the connection is to be closed."""
    head = await reader.readuntil(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").rstrip().split("\r\n")
    method, path, version = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if headers.get("expect", "").lower() == "100-continue":
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    body = await reader.readexactly(int(headers.get("content-length", 0)))

    default = "keep-alive" if version == "HTTP/1.1" else "close"
    connection = headers.get("connection", default).lower()
    status, reply = route(method, path, body)
    writer.write(
        f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\n"
        f"Content-Length: {len(reply)}\r\nConnection: {connection}\r\n\r\n".encode() + reply
    )
    await writer.drain()
    return connection != "close"


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while await answer(reader, writer):
            pass
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError, ValueError):
        pass  # the client is done, vanished, or does not speak HTTP
    finally:
        writer.close()


async def main() -> None:
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 8080
    server = await asyncio.start_server(serve, "127.0.0.1", port, backlog=1024)
    print(f"listening on {port}", flush=True)
    await server.serve_forever()


asyncio.run(main())
