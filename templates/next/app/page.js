export default async function Page({ searchParams }) {
  const { name = "world" } = await searchParams;
  return <p>{`Hello ${name} from Next.js`}</p>;
}
