// Tables as CSV.

export type Cell = string | number | null | undefined;

// formula matches positions at which a spreadsheet may parse a formula: the start of a text, and the character after a
// separator of cells or rows, since pasted text is not always parsed as RFC 4180.
const formula = /(^|[\t\n\r;])(?=[ \t]*[=+\-@＝＋－＠])/g;

// csv formats rows according to RFC 4180. An apostrophe precedes text that a spreadsheet would evaluate as a formula.
export function csv(header: string[], rows: Cell[][]): string {
  return [header, ...rows].map((row) => row.map(field).join(",")).join("\r\n") + "\r\n";
}

function field(cell: Cell): string {
  if (cell === null || cell === undefined) return "";
  if (typeof cell === "number") return String(cell);
  const text = cell.replace(formula, "$1'");
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
