import type { ReactNode } from "react";
import { count } from "../lib/format.ts";

// Column is the head of a column: its text; whether numbers stand below it; what it means, if the text alone does not say.
export type Column = string | { text: string; number?: true; title?: string };

// Listing is a table that is scrolled by itself where the page is too narrow for it. Its rows are the children.
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

// Further says that a list goes on behind what is shown of it, if it does, and how to see the rest.
export function TruncationNote({ list, how }: { list: { items: unknown[]; next_cursor: string | null }; how: string }) {
  if (list.next_cursor === null) return null;
  return (
    <p className="under">
      These are the first {count(list.items.length)}, and there are more. {how}
    </p>
  );
}
