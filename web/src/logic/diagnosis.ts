// Links from the parts of a diagnosis to the sections of the problem's page that show their evidence.
import type { Schemas } from "../api/client.ts";
import type { Phrase } from "./sentences.ts";

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

// bySection joins the neighbouring parts of a diagnosis whose evidence is in one section.
export function bySection(parts: readonly Phrase[]): { section: Section | undefined; of: Phrase[] }[] {
  const all: { section: Section | undefined; of: Phrase[] }[] = [];
  for (const part of parts) {
    const section = sectionOf(part.evidence);
    const last = all.at(-1);
    if (last && last.section === section) last.of.push(part);
    else all.push({ section, of: [part] });
  }
  return all;
}

// firstAtPlaces returns the rank of the first of some problems in each place: one cause often slows requests of several
// groups and types.
export function firstAtPlaces(
  problems: readonly Pick<Schemas["Problem"], "leading" | "rank">[],
): ReadonlyMap<string, number> {
  const first = new Map<string, number>();
  for (const { leading, rank } of problems) if (leading) first.set(leading, Math.min(rank, first.get(leading) ?? rank));
  return first;
}
