// The sentence that says what is wrong, with its numbers linked to the evidence that they come from.

// Evidence names the parts of the problem's page.
export type Evidence = "latency" | "edges" | "explanations";

export type Piece = { text: string; evidence?: Evidence };

const number = /\ball(?= of (?:what|the) )|\d[\d.,]*(?:\s?(?:%(?:\s?±\s?[\d.]+)?|×|ns|µs|ms|s|min|h)(?![\p{L}\d]))/gu;

// pieces splits a diagnosis. Clauses are divided by semicolons: the first says how slow, then where, then why.
export function pieces(diagnosis: string): Piece[] {
  const clauses = diagnosis.split(/(?<=;) /);
  return clauses.flatMap((clause, i) => {
    const text = i + 1 < clauses.length ? `${clause} ` : clause;
    const evidence = evidenceOf(clause, i);
    return evidence === "explanations" ? [{ text: text.trimEnd(), evidence }, ...(text.endsWith(" ") ? [{ text: " " }] : [])] : linked(text, evidence);
  });
}

function evidenceOf(clause: string, index: number): Evidence {
  if (/of the variance|of what is wrong|of the difference|of the excess/.test(clause)) return "edges";
  return index === 0 ? "latency" : "explanations";
}

function linked(text: string, evidence: Evidence): Piece[] {
  const found: Piece[] = [];
  let end = 0;
  for (const match of text.matchAll(number)) {
    if (match.index > end) found.push({ text: text.slice(end, match.index) });
    found.push({ text: match[0], evidence });
    end = match.index + match[0].length;
  }
  if (end < text.length) found.push({ text: text.slice(end) });
  return found;
}
