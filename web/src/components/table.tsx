import type { ReactNode } from "react";
import { count } from "../logic/format.ts";

// Column is the head of a column. title is a tooltip that explains it.
export type Column = string | { text: string; number?: true; title?: string };

type Props = { label: string; head: Column[]; className?: string; children: ReactNode };

// Table scrolls horizontally if the page is too narrow. Its children are rows.
export function Table({ label, head, className, children }: Props) {
  return (
    <div className={className ? `scroll ${className}` : "scroll"} tabIndex={0} role="group" aria-label={label}>
      <table>
        <thead>
          <tr>
            {head.map((column) => {
              const { text, number, title } = typeof column === "string" ? { text: column } : column;
              return (
                <th key={text} scope="col" className={number && "number"} title={title}>
                  {text}
                </th>
              );
            })}
          </tr>
        </thead>
        <tbody>{children}</tbody>
      </table>
    </div>
  );
}

// TruncationNote shows, below an incomplete list, how to see the other items.
export function TruncationNote({ list, how }: { list: { items: unknown[]; next_cursor: string | null }; how: string }) {
  if (list.next_cursor === null) return null;
  return (
    <p className="under">
      Showing the first {count(list.items.length)}; there are more. {how}
    </p>
  );
}
