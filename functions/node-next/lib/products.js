const KINDS = ["Lamp", "Chair", "Table", "Shelf", "Clock"];

export const products = Array.from({ length: 60 }, (_, n) => ({
  id: n + 1,
  name: `${KINDS[n % KINDS.length]} ${n + 1}`,
  cents: 995 + 250 * n,
}));

export function find(words) {
  const wanted = words.toLowerCase();
  return products.filter(({ name }) => name.toLowerCase().includes(wanted));
}

export function price({ cents }) {
  return `€ ${(cents / 100).toFixed(2)}`;
}
