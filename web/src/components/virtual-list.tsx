import { useVirtualizer } from "@tanstack/react-virtual";
import { type CSSProperties, type ReactNode, useEffect, useRef } from "react";

// Focus is the row to scroll into view when id changes. at is its index; below 0: none. If rows are added or removed
// above it, the list does not scroll.
type Focus = { id: string; at: number };

type Props = {
  count: number;
  height: number; // px, of every row
  focus: Focus;
  label: string;
  head?: ReactNode;
  row: (i: number) => ReactNode;
};

const overscan = 8; // rows rendered out of view, so that scrolling shows no blank
const context = 3; // rows that stay in view above and below the focused one

// VirtualList is a scrolling list of rows of equal height that renders only the rows in view. head stays on top.
export function VirtualList({ count, height, focus, label, head, row }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const virtualizer = useVirtualizer({
    count,
    estimateSize: () => height,
    getScrollElement: () => box.current,
    initialRect: { width: 0, height: 600 },
    overscan,
    scrollPaddingStart: context * height,
    scrollPaddingEnd: context * height,
  });
  const focused = useRef("");
  useEffect(() => {
    if (focus.at < 0 || focused.current === focus.id) return;
    focused.current = focus.id;
    virtualizer.scrollToIndex(focus.at);
  }, [focus.id, focus.at, virtualizer]);
  const rows = virtualizer.getVirtualItems();
  return (
    <div className="virtual" ref={box} tabIndex={0} role="group" aria-label={label}>
      {head}
      <div style={{ height: virtualizer.getTotalSize(), position: "relative" }}>
        <div style={{ transform: `translateY(${rows[0]?.start ?? 0}px)` }}>{rows.map(({ index }) => row(index))}</div>
      </div>
    </div>
  );
}

// indent indents the name of a row.
export const indent = (n: number) => ({ "--depth": n }) as CSSProperties;
