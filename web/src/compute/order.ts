// Lists that change while somebody reads them.

// heldOrder returns what to show while the order is held: what was shown before stays in its place, with its new content, as long as it is
// still there. pending says how many changes wait: what is new, gone, or elsewhere.
export function heldOrder<T extends { id: string }>(before: T[], now: T[]): { items: T[]; pending: number } {
  const fresh = new Map(now.map((item) => [item.id, item]));
  const items = before.map((item) => fresh.get(item.id) ?? item);
  const held = new Set(before.map((item) => item.id));
  const left = before.filter((item) => fresh.has(item.id)).map((item) => item.id);
  const arrived = now.filter((item) => held.has(item.id)).map((item) => item.id);
  const moved = left.filter((id, i) => arrived[i] !== id).length;
  return { items, pending: moved + (before.length - left.length) + now.filter((item) => !held.has(item.id)).length };
}
