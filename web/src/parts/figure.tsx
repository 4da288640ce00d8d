// Figure is a chart with its table, and both as files.
import { type ReactNode, useId, useRef } from "react";
import { type Cell, csv } from "../compute/csv.ts";
import { toggled, useSet } from "../url.ts";
import { Listing } from "./listing.tsx";
import { type Item, Menu } from "./menu.tsx";
import { picture } from "./picture.ts";
import { copy, say } from "./said.tsx";

export type Table = { header: string[]; rows: Cell[][] };

type Props = {
  id?: string;
  title: string;
  hint?: ReactNode;
  table: () => Table;
  tools?: ReactNode;
  children: ReactNode;
  tableOnly?: boolean;
  pictured?: boolean | (() => Promise<Blob>);
};

const mark = "\ufeff"; // tells spreadsheets that a file is UTF-8

// save has the browser save data under a name.
export function save(name: string, data: Blob) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(data);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

// files are what a menu offers of a table under a title.
export const files = (title: string, table: () => Table): Item[] => {
  const text = () => {
    const { header, rows } = table();
    return csv(header, rows);
  };
  return [
    { text: "Copy as CSV", act: () => void copy(text()) },
    { text: "Save as CSV", act: () => save(`${named(title)}.csv`, new Blob([mark, text()], { type: "text/csv" })) },
  ];
};

const named = (title: string) => title.toLowerCase().replaceAll(/[^a-z0-9]+/g, "-");

// Figure with tableOnly is a table in itself; one that is also pictured has a drawing to save, or what makes one.
export function Figure({ id, title, hint, table, tools, children, tableOnly, pictured }: Props) {
  const [tables, setTables] = useSet("tables"); // of the figures that are shown as such
  const asTable = tables.has(named(title));
  const body = useRef<HTMLDivElement>(null);
  const heading = useId();
  const drawn = () => (typeof pictured === "function" ? pictured() : picture(body.current!));
  const items = [
    ...(tableOnly
      ? []
      : [
          {
            text: asTable ? "Show the chart" : "Show the table",
            act: () => setTables(toggled(tables, named(title), !asTable)),
          },
        ]),
    ...files(title, table),
    ...((tableOnly && !pictured) || asTable
      ? []
      : [
          {
            text: "Save as PNG",
            act: () =>
              void drawn().then(
                (png) => save(`${named(title)}.png`, png),
                (error: unknown) => say(`No picture: ${String(error)}`),
              ),
          },
        ]),
  ];
  return (
    <section className="figure" id={id} aria-labelledby={heading}>
      <header>
        <h2 id={heading}>{title}</h2>
        <div className="tools">
          {tools}
          <Menu label={`${title}: table and files`} items={items} icon="⋯" />
        </div>
      </header>
      {hint && <p className="hint">{hint}</p>}
      <div ref={body}>{asTable ? <Plain {...table()} /> : children}</div>
    </section>
  );
}

function Plain({ header, rows }: Table) {
  return (
    <Listing label="Table" head={header}>
      {rows.map((row, i) => (
        <tr key={i}>
          {row.map((cell, k) => (
            <td key={k} className={typeof cell === "number" ? "number" : ""}>
              {cell ?? "–"}
            </td>
          ))}
        </tr>
      ))}
    </Listing>
  );
}
