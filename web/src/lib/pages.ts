// Lists of many pages, of which only some are read again: what is known of them, and what must be read.

// Page is a page as it was read last, in a round of reading: those of earlier rounds are old. next is the cursor behind it, null at the end.
export type Page<T, L> = { items: T[]; next: string | null; round: number; list: L };

// due returns the first page that must be read: of the first one and those in sight, whichever is old or not there yet, up to one beyond; −1: none.
export function due<T, L>(pages: Page<T, L>[], round: number, first: number, last: number): number {
  if (!pages[0] || pages[0].round < round) return 0;
  for (let at = Math.max(1, first); at <= last + 1; at++) {
    const page = pages[at];
    if (page && (page.round >= round || at > last)) continue; // one beyond need not be new
    if (at < pages.length) return at;
    return pages.at(-1)!.next === null ? -1 : pages.length;
  }
  return -1;
}

// put returns the pages with one of them in its place. Those behind go where it is the last one; they are old where it ends elsewhere than before.
export function put<T, L>(pages: Page<T, L>[], at: number, page: Page<T, L>): Page<T, L>[] {
  const before = pages[at];
  const behind = page.next === null ? [] : pages.slice(at + 1);
  if (before && before.next !== page.next) behind.forEach((p, i) => (behind[i] = { ...p, round: 0 }));
  return [...pages.slice(0, at), page, ...behind];
}

// flat returns the items of all pages, each once: pages that were read at different times may both have one.
export function flat<T extends { id: string }, L>(pages: Page<T, L>[]): T[] {
  const newest = new Map<string, number>();
  for (const page of pages)
    for (const item of page.items) newest.set(item.id, Math.max(page.round, newest.get(item.id) ?? -1));
  const seen = new Set<string>();
  return pages.flatMap((page) =>
    page.items.filter((item) => newest.get(item.id) === page.round && !seen.has(item.id) && seen.add(item.id)),
  );
}
