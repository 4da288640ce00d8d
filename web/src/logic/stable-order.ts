// Stable order of lists that change while someone reads them.

// stableOrder returns the items to show while the order is held: those shown before in their old order, with their new
// content if they still exist, then those that follow all of them. pending counts the items that have moved,
// disappeared or appeared in between.
export function stableOrder<T extends { id: string }>(before: T[], now: T[]): { items: T[]; pending: number } {
  const fresh = new Map(now.map((item) => [item.id, item]));
  const items = before.map((item) => fresh.get(item.id) ?? item);
  const held = new Set(before.map((item) => item.id));
  const left = before.filter((item) => fresh.has(item.id)).map((item) => item.id);
  const arrived = now.filter((item) => held.has(item.id)).map((item) => item.id);
  const moved = left.filter((id, i) => arrived[i] !== id).length;
  const end = now.findLastIndex((item) => held.has(item.id)) + 1;
  const behind = end > 0 ? now.slice(end) : [];
  return {
    items: [...items, ...behind],
    pending: moved + (before.length - left.length) + (now.length - left.length - behind.length),
  };
}
