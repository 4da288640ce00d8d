import { type ReactNode, useEffect, useRef, useState } from "react";

// Chunks is the body of a long table: rows of any height, of which only those near what is in sight exist. Others leave as much room as they took,
// or are guessed to take. see is told the first and the last row of what is near.
export function VirtualTbody(props: {
  count: number;
  columns: number;
  guess: number;
  see: (first: number, last: number) => void;
  row: (i: number) => ReactNode;
}) {
  const { count, see } = props;
  const near = useRef(new Set<number>());
  const [, changed] = useState(0);
  const watch = useRef<IntersectionObserver>(undefined);
  watch.current ??= new IntersectionObserver(
    (entries) => {
      for (const e of entries)
        near.current[e.isIntersecting ? "add" : "delete"](Number((e.target as HTMLElement).dataset["chunk"]));
      changed((n) => n + 1);
    },
    { rootMargin: "800px" },
  );
  useEffect(() => () => watch.current?.disconnect(), []);
  const sight = [...near.current].filter((i) => i * size < count);
  const first = Math.min(...sight) * size;
  const last = Math.min(count, (Math.max(...sight) + 1) * size) - 1;
  useEffect(() => {
    if (last >= first && Number.isFinite(first)) see(first, last);
  }, [first, last, see]);
  return Array.from({ length: Math.ceil(count / size) }, (_, i) => (
    <Chunk
      key={i}
      number={i}
      watch={watch.current!}
      shown={near.current.has(i) || (i === 0 && near.current.size === 0)}
      columns={props.columns}
      room={(Math.min(count, (i + 1) * size) - i * size) * props.guess}
    >
      {() => Array.from({ length: Math.min(size, count - i * size) }, (_, k) => props.row(i * size + k))}
    </Chunk>
  ));
}

const size = 25; // rows

// Chunk is some rows of the table, or the room of them.
function Chunk({
  number,
  watch,
  shown,
  columns,
  room,
  children,
}: {
  number: number;
  watch: IntersectionObserver;
  shown: boolean;
  columns: number;
  room: number;
  children: () => ReactNode;
}) {
  const body = useRef<HTMLTableSectionElement>(null);
  const height = useRef<number>(undefined);
  useEffect(() => {
    const element = body.current!;
    watch.observe(element);
    return () => watch.unobserve(element);
  }, [watch]);
  useEffect(() => {
    if (shown) height.current = body.current!.offsetHeight;
  });
  return (
    <tbody ref={body} data-chunk={number}>
      {shown || body.current?.contains(document.activeElement) ? (
        children()
      ) : (
        <tr aria-hidden="true">
          <td colSpan={columns} style={{ height: height.current ?? room, padding: 0, border: 0 }} />
        </tr>
      )}
    </tbody>
  );
}
