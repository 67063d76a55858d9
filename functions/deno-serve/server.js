const port = Number(Deno.args[0] ?? 8080);
let count = 0;

function letters(n) {
  const body = new Uint8Array(n);
  for (let i = 0; i < n; i++) body[i] = 97 + (i % 26);
  return body;
}

async function answer(request) {
  const path = new URL(request.url).pathname;
  const bytes = /^\/bytes\/(\d{1,9})$/.exec(path);
  if (request.method === "POST" && path === "/echo") {
    return new Response(await request.arrayBuffer());
  } else if (path === "/") {
    return new Response("Hello from Deno\n");
  } else if (path === "/count") {
    return new Response(`${++count}\n`);
  } else if (bytes) {
    return new Response(letters(Number(bytes[1])));
  } else if (path === "/spin") {
    for (;;);
  } else if (path === "/crash") {
    Deno.exit(3);
  }
  return new Response("not found\n", { status: 404 });
}

const onListen = () => console.log(`listening on ${port}`);
Deno.serve({ hostname: "127.0.0.1", port, onListen }, answer);
