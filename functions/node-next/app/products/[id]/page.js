import { notFound } from "next/navigation";
import { price, products } from "../../../lib/products";

export default async function Page({ params }) {
  const { id } = await params;
  const product = products.find((one) => String(one.id) === id);
  if (!product) notFound();
  return (
    <main>
      <h1>{product.name}</h1>
      <p>{price(product)}</p>
    </main>
  );
}
