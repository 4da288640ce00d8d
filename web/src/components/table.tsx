import type { ReactNode } from "react";
import { count } from "../logic/format.ts";

// Column is the head of a column. title explains it if the text does not.
export type Column = string | { text: string; number?: true; title?: string };

// Table scrolls horizontally if the page is too narrow. Its children are rows.
export function Table({ label, head, children }: { label: string; head: Column[]; children: ReactNode }) {
  return (
    <div className="scroll" tabIndex={0} role="group" aria-label={label}>
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

// TruncationNote says that a list has more items than are shown, and how to see them.
export function TruncationNote({ list, how }: { list: { items: unknown[]; next_cursor: string | null }; how: string }) {
  if (list.next_cursor === null) return null;
  return (
    <p className="under">
      Showing the first {count(list.items.length)}; there are more. {how}
    </p>
  );
}
