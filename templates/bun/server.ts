const server = Bun.serve({
  hostname: "127.0.0.1",
  port: 8080,
  fetch(request) {
    const { pathname, searchParams } = new URL(request.url);
    if (pathname !== "/") return new Response("not found\n", { status: 404 });
    return new Response(`Hello ${searchParams.get("name") ?? "world"} from Bun\n`);
  },
});

console.log(`listening on ${server.port}`);
