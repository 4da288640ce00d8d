import { type Range, defaultRangeExtractor, useWindowVirtualizer } from "@tanstack/react-virtual";
import { type ReactNode, type Ref, useEffect, useRef, useState } from "react";

type Props = {
  count: number;
  columns: number;
  estimate: number; // height of a row in px
  setView: (first: number, last: number) => void;
  id: (i: number) => string;
  // row renders a tr with the given ref and with i as its data-index.
  row: (i: number, measure: Ref<HTMLTableRowElement>) => ReactNode;
};

const overscan = 12; // rows rendered out of view, so that scrolling shows no blank

// VirtualTbody is the body of a long table in the page. It renders only the rows near the view, which may differ in
// height, and the focused one. It calls setView with the first and the last row near the view.
export function VirtualTbody({ count, columns, estimate, setView, id, row }: Props) {
  const body = useRef<HTMLTableSectionElement>(null);
  const [top, setTop] = useState(0); // px from the top of the page
  useEffect(() => {
    const measure = () => {
      if (body.current) setTop(Math.round(body.current.getBoundingClientRect().top + window.scrollY));
    };
    const observer = new ResizeObserver(measure); // a banner above the table changes the height of the page
    observer.observe(document.body);
    return () => observer.disconnect();
  }, []);
  const virtualizer = useWindowVirtualizer({
    count,
    estimateSize: () => estimate,
    getItemKey: id,
    overscan,
    rangeExtractor: (range) => withFocused(range, body.current),
    scrollMargin: top,
  });
  const rows = virtualizer.getVirtualItems();
  const first = virtualizer.range?.startIndex ?? 0;
  const last = Math.min(count - 1, (virtualizer.range?.endIndex ?? 0) + overscan);
  useEffect(() => {
    if (last >= first) setView(first, last);
  }, [first, last, setView]);
  const parts: ReactNode[] = [];
  let end = top;
  for (const { key, index, start, end: next } of rows) {
    if (start > end) parts.push(<Spacer key={`before ${String(key)}`} columns={columns} height={start - end} />);
    parts.push(row(index, virtualizer.measureElement));
    end = next;
  }
  const rest = top + virtualizer.getTotalSize() - end;
  return (
    <tbody ref={body}>
      {parts}
      {rest > 0 && <Spacer columns={columns} height={rest} />}
    </tbody>
  );
}

function withFocused(range: Range, body: HTMLElement | null): number[] {
  const rows = defaultRangeExtractor(range);
  const focused =
    body?.contains(document.activeElement) && document.activeElement?.closest<HTMLElement>("[data-index]");
  const index = focused ? Number(focused.dataset.index) : -1;
  return index < 0 || index >= range.count || rows.includes(index) ? rows : [...rows, index].sort((a, b) => a - b);
}

// Spacer takes the space of rows that are not rendered.
function Spacer({ columns, height }: { columns: number; height: number }) {
  return (
    <tr aria-hidden="true">
      <td colSpan={columns} style={{ height, padding: 0, border: 0 }} />
    </tr>
  );
}
