"use client";
import { useState } from "react";

export default function Basket() {
  const [count, setCount] = useState(0);
  return <button onClick={() => setCount(count + 1)}>{`Basket: ${count}`}</button>;
}
