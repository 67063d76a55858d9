import Link from "next/link";
import { find, price } from "../lib/products";
import Basket from "./basket";

// Rendered for each request: it depends on the query.
export default async function Page({ searchParams }) {
  const { q = "" } = await searchParams;
  const found = find(String(q));
  return (
    <main>
      <h1>{`${found.length} products`}</h1>
      <form>
        <input name="q" defaultValue={String(q)} aria-label="Search" /> <button>Search</button>
      </form>
      <Basket />
      <ul>
        {found.map((product) => (
          <li key={product.id}>
            <Link href={`/products/${product.id}`}>{product.name}</Link> {price(product)}
          </li>
        ))}
      </ul>
    </main>
  );
}
