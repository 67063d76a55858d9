import { find } from "../../../lib/products";

export function GET(request) {
  return Response.json(find(request.nextUrl.searchParams.get("q") ?? ""));
}
