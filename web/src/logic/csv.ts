// Tables as text for other programs.

export type Cell = string | number | null | undefined;

// formula is where a spreadsheet may begin a cell with a formula: at the beginning of a text, and behind what others than RFC 4180 take for the end
// of a cell, or of a row, when lines are pasted.
const formula = /(^|[\t\n\r;])(?=[ \t]*[=+\-@＝＋－＠])/g;

// csv writes rows as RFC 4180 has them. Text that a spreadsheet would take for a formula is told apart by a quote.
export function csv(header: string[], rows: Cell[][]): string {
  return [header, ...rows].map((row) => row.map(field).join(",")).join("\r\n") + "\r\n";
}

function field(cell: Cell): string {
  if (cell === null || cell === undefined) return "";
  if (typeof cell === "number") return String(cell);
  const text = cell.replace(formula, "$1'");
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
