// The sentence that says what is wrong, with its numbers linked to the evidence that they come from.

// Evidence names the parts of the problem's page.
export type Evidence = "latency" | "edges" | "investigation" | "explanations";

export type Piece = { text: string; evidence?: Evidence };

const number =
  /\ball(?= of (?:what|the) )|(?<=CoV (?:at equal size )?)\d[\d.]*|\d[\d.,]*(?:\s?(?:%(?:\s?±\s?[\d.]+)?|×|ns|µs|ms|s|min|h)(?![\p{L}\d]))/gu;

// clauses says how those begin that are evidence as a whole, and which evidence; names may hold anything, so nothing else divides.
const clauses: [RegExp, Evidence][] = [
  [/^located: /, "investigation"],
  [/^(?:it goes with|most where) /, "explanations"],
];

// pieces splits a diagnosis: how slow, then where, then why.
export function parseDiagnosis(diagnosis: string): Piece[] {
  return diagnosis.split(/(?<=;) (?=located: |it goes with |most where )/).flatMap((clause, i) => {
    const before: Piece[] = i > 0 ? [{ text: " " }] : [];
    const evidence = clauses.find(([begins]) => begins.test(clause))?.[1];
    return [...before, ...(evidence && i > 0 ? [{ text: clause, evidence }] : numbers(clause))];
  });
}

// numbers links those up to where the place is named to how slow it is, the share of the place to the edges.
function numbers(clause: string): Piece[] {
  const at = clause.search(
    /(?<=; )(?:all|\S+ %(?: ± \S+)?) of (?:the variance|what is wrong) is |(?<=; )most of it at /,
  );
  if (at < 0) return linked(clause, "latency");
  const place = clause.slice(at);
  const named = place.search(/(?<= (?:is|at) )/);
  return [
    ...linked(clause.slice(0, at), "latency"),
    ...linked(place.slice(0, named), "edges"),
    { text: place.slice(named) },
  ];
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
