"""A line server that counts the lines of its client. Its TCP function begins at 1 for each: a clean machine."""
import asyncio
import sys

lines = 0


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    global lines
    writer.write(b"hello, what do you say?\n")
    while line := await reader.readline():
        lines += 1
        writer.write(b"%d: %s" % (lines, line))
        await writer.drain()
    writer.close()


async def main() -> None:
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 7007
    server = await asyncio.start_server(serve, "127.0.0.1", port)
    print(f"listening on {port}", flush=True)
    await server.serve_forever()


asyncio.run(main())
