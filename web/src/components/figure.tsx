// Figure is a chart or a table with a menu that exports it.
import { type ReactNode, useId, useRef } from "react";
import { type Cell, csv } from "../logic/csv.ts";
import { toggled, useSet } from "../url.ts";
import { Table } from "./table.tsx";
import { type Item, Menu } from "./menu.tsx";
import { chartImage } from "./export-image.ts";
import { copyText, showToast } from "./toast.tsx";

export type TableData = { header: string[]; rows: Cell[][] };

type Props = {
  id?: string;
  title: string;
  hint?: ReactNode;
  table: () => TableData;
  tools?: ReactNode;
  children: ReactNode;
  tableOnly?: boolean;
  folded?: boolean;
  image?: boolean | (() => Promise<Blob>);
};

const byteOrderMark = "\ufeff"; // marks a file as UTF-8 for spreadsheets

// saveFile has the browser download data under a name.
export function saveFile(name: string, data: Blob) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(data);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

// exportItems returns the menu items that copy and save a table as CSV.
export const exportItems = (title: string, table: () => TableData): Item[] => {
  const text = () => {
    const { header, rows } = table();
    return csv(header, rows);
  };
  return [
    { text: "Copy as CSV", act: () => void copyText(text()) },
    {
      text: "Save as CSV",
      act: () => saveFile(`${slug(title)}.csv`, new Blob([byteOrderMark, text()], { type: "text/csv" })),
    },
  ];
};

const slug = (title: string) => title.toLowerCase().replaceAll(/[^a-z0-9]+/g, "-");

// Figure shows its children or, on demand, the table. With tableOnly, the children are a table. image, if the figure
// has one to save, is true for a canvas or SVG among the children, or a function that renders it. A folded figure shows
// only its title until one unfolds it.
export function Figure({ id, title, hint, table, tools, children, tableOnly, folded = false, image }: Props) {
  const [tables, setTables] = useSet("tables"); // slugs of the figures shown as tables
  const [unfolded, setUnfolded] = useSet("unfolded"); // slugs of folded figures
  const shown = !folded || unfolded.has(slug(title));
  const asTable = tables.has(slug(title));
  const body = useRef<HTMLDivElement>(null);
  const heading = useId();
  const drawn = () => (typeof image === "function" ? image() : chartImage(body.current!));
  const items = [
    ...(tableOnly
      ? []
      : [
          {
            text: asTable ? "Show the chart" : "Show the table",
            act: () => setTables(toggled(tables, slug(title), !asTable)),
          },
        ]),
    ...exportItems(title, table),
    ...((tableOnly && !image) || asTable
      ? []
      : [
          {
            text: "Save as PNG",
            act: () =>
              void drawn().then(
                (png) => saveFile(`${slug(title)}.png`, png),
                (error: unknown) => showToast(`Could not export the image: ${String(error)}`),
              ),
          },
        ]),
  ];
  return (
    <section className="figure" id={id} aria-labelledby={heading}>
      <header>
        <h2 id={heading}>
          {folded ? (
            <button
              type="button"
              className="unfold"
              aria-expanded={shown}
              onClick={() => setUnfolded(toggled(unfolded, slug(title), !shown))}
            >
              {title}
            </button>
          ) : (
            title
          )}
        </h2>
        <div className="tools">
          {tools}
          {shown && <Menu label={`${title}: table and export`} items={items} icon="⋯" />}
        </div>
      </header>
      {shown && hint && <p className="hint">{hint}</p>}
      {shown && <div ref={body}>{asTable ? <DataTable {...table()} /> : children}</div>}
    </section>
  );
}

function DataTable({ header, rows }: TableData) {
  return (
    <Table label="Table" head={header}>
      {rows.map((row, i) => (
        <tr key={i}>
          {row.map((cell, k) => (
            <td key={k} className={typeof cell === "number" ? "number" : ""}>
              {cell ?? "–"}
            </td>
          ))}
        </tr>
      ))}
    </Table>
  );
}
