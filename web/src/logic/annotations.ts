// Annotations: deploys and other events that may explain why requests changed.
import type { Schemas } from "../api/client.ts";

export type Annotation = Schemas["Annotation"];
type Span = { from: string; to: string };

export const labels = { deploy: "Deployed", flag: "Flag", change: "Change", other: "Event" };

export const describeAnnotation = (a: Annotation) => `${labels[a.kind]}: ${a.title}`;

// marksOf returns the marks of annotations in charts: where they began and, if they lasted, where they ended.
export const marksOf = (all: Annotation[]) =>
  all.flatMap((a) => {
    const [text, title] = [a.kind === "other" ? "event" : a.kind, describeAnnotation(a)];
    const begin = { at: Date.parse(a.at), text, title, annotation: true };
    return a.end ? [begin, { at: Date.parse(a.end), text: "end", title: `End of ${title}` }] : [begin];
  });

// annotationsSince returns the annotations of the given services, and those of no service, since the start of the first
// window, oldest first.
export function annotationsSince(windows: Span[], all: Annotation[], services: Set<string>): Annotation[] {
  const from = windows[0] ? Date.parse(windows[0].from) : Infinity;
  return all
    .filter((a) => (a.service === "" || services.has(a.service)) && Date.parse(a.at) >= from)
    .sort((a, b) => Date.parse(a.at) - Date.parse(b.at));
}

// annotationsByWindow returns the annotations, ascending, of each window. An annotation between two windows belongs to
// the later one, one after the last window to that one.
export function annotationsByWindow(windows: Span[], all: Annotation[]): Annotation[][] {
  const rows: Annotation[][] = windows.map(() => []);
  for (const a of all) {
    const at = windows.findIndex((w) => Date.parse(a.at) < Date.parse(w.to));
    rows.at(at)?.push(a);
  }
  return rows;
}
