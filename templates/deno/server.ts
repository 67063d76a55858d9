function answer(request: Request): Response {
  const { pathname, searchParams } = new URL(request.url);
  if (pathname !== "/") return new Response("not found\n", { status: 404 });
  return new Response(`Hello ${searchParams.get("name") ?? "world"} from Deno\n`);
}

Deno.serve({ hostname: "127.0.0.1", port: 8080 }, answer);
