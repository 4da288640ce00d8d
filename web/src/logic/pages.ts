// Page is a page of a list: its items, the cursor that it was read with, and the round in which it was read; higher is
// newer.
export type Page<T, L> = { items: T[]; cursor: string | undefined; round: number; list: L };

// mergePages returns the items of all pages, each once. An item in pages of different rounds keeps its position in the
// newest one.
export function mergePages<T extends { id: string }, L>(pages: Page<T, L>[]): T[] {
  const newest = new Map<string, number>();
  for (const page of pages) {
    for (const item of page.items) newest.set(item.id, Math.max(page.round, newest.get(item.id) ?? -1));
  }
  const seen = new Set<string>();
  return pages.flatMap((page) =>
    page.items.filter((item) => newest.get(item.id) === page.round && !seen.has(item.id) && seen.add(item.id)),
  );
}
