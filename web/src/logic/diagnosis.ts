// Links from the parts of a diagnosis to the sections of the problem's page that show their evidence.
import type { Schemas } from "../api/client.ts";

// Section names a part of the problem's page.
export type Section = "latency" | "edges" | "located" | "explanations";

type Evidence = Schemas["DiagnosisEvidence"];

// sectionOf returns the section that shows the evidence of a part; undefined without evidence.
export function sectionOf(evidence: Evidence | undefined): Section | undefined {
  switch (evidence?.kind) {
    case "latency":
    case "baseline":
    case "size":
      return "latency";
    case "edge":
      return "edges";
    case "location":
      return "located";
    case "variable":
      return "explanations";
    case "call_flow":
      return evidence.explanation === undefined ? "edges" : "explanations";
    default:
      return undefined; // a newer service may have more kinds
  }
}

// problemNames returns the names of operations that the diagnosis of a problem contains: the request type and the place,
// whose name a position may follow, as in "db SELECT, after cart GET".
export const problemNames = (p: Schemas["Problem"]) => [p.request_type_name, p.leading.split(", ")[0]!];

// firstAtPlaces returns the rank of the first of some problems in each place: one cause often slows requests of several
// groups and types.
export function firstAtPlaces(
  problems: readonly Pick<Schemas["Problem"], "leading" | "rank">[],
): ReadonlyMap<string, number> {
  const first = new Map<string, number>();
  for (const { leading, rank } of problems) if (leading) first.set(leading, Math.min(rank, first.get(leading) ?? rank));
  return first;
}
