import type { ReactNode } from "react";
import { count } from "../logic/format.ts";
import { Term } from "./tooltip.tsx";

type Order = "ascending" | "descending";

// Column is the head of a column. title is a tooltip that explains it; sort makes it a button that sorts by it.
export type Column = string | { text: string; number?: boolean; title?: string; sort?: { by: () => void; is?: Order } };

type Props = { label: string; head: Column[]; className?: string; children: ReactNode };

const head = (text: string, title?: string) => (title ? <Term title={title}>{text}</Term> : text);

// Table scrolls horizontally if the page is too narrow. Its children are rows.
export function Table({ label, head: columns, className, children }: Props) {
  return (
    <div className={className ? `scroll ${className}` : "scroll"} tabIndex={0} role="group" aria-label={label}>
      <table>
        <thead>
          <tr>
            {columns.map((column) => {
              const { text, number, title, sort }: Exclude<Column, string> =
                typeof column === "string" ? { text: column } : column;
              return (
                <th
                  key={text}
                  scope="col"
                  className={number ? "number" : undefined}
                  title={sort && title}
                  aria-sort={sort?.is}
                >
                  {sort ? (
                    <button type="button" className="sort" onClick={sort.by}>
                      {text} <span aria-hidden="true">{sort.is && (sort.is === "ascending" ? "▴" : "▾")}</span>
                    </button>
                  ) : (
                    head(text, title)
                  )}
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
