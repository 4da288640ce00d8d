// Spans of a trace in the order in which a waterfall shows them, with what of each is on the critical path.
import type { Schemas } from "../api/client.ts";

type Trace = Schemas["Trace"];
type Span = Schemas["Span"];
export type Stretch = { from: number; to: number };

// Row is a span of a waterfall. Rows are in pre-order: the spans below row i are those up to, and without, end.
export type Row = {
  span: Span;
  depth: number;
  end: number;
  parent: boolean; // there are spans below it
  critical: Stretch[]; // where it alone is on the critical path
  wire: Stretch[]; // parts of a client span outside of its server span: on the wire, or in the callee's queue
  through: boolean; // it, or one below it, is on the critical path
};

// rows lays out a trace; children by start. Spans whose parent is missing stand at the top.
export function rows(trace: Trace, refined: boolean): Row[] {
  const byID = new Map(trace.spans.map((span) => [span.id, span]));
  const children = new Map<string, Span[]>();
  for (const span of trace.spans) {
    const parent = byID.has(span.parent) && span.parent !== span.id ? span.parent : "";
    const list = children.get(parent);
    if (list) list.push(span);
    else children.set(parent, [span]);
  }
  const sections = sectionsOf(trace, refined);
  const all: Row[] = [];
  // Not recursive: a trace may be as deep as it is long. What was visited is not visited again, whatever parents say.
  const stack: { span: Span; depth: number }[] = [...(children.get("") ?? [])].reverse().map((span) => ({ span, depth: 0 }));
  const open: number[] = [];
  const close = (depth: number) => {
    while (open.length > 0 && all[open.at(-1)!]!.depth >= depth) {
      const i = open.pop()!;
      all[i]!.end = all.length;
      const above = open.at(-1);
      if (above !== undefined && all[i]!.through) all[above]!.through = true;
    }
  };
  while (stack.length > 0) {
    const { span, depth } = stack.pop()!;
    close(depth);
    const below = children.get(span.id) ?? [];
    const critical = sections.get(span.id) ?? [];
    open.push(all.length);
    all.push({ span, depth, end: 0, parent: below.length > 0, critical, wire: wireOf(span, below), through: critical.length > 0 });
    for (let i = below.length - 1; i >= 0; i--) stack.push({ span: below[i]!, depth: depth + 1 });
  }
  close(0);
  return all;
}

function sectionsOf(trace: Trace, refined: boolean): Map<string, Stretch[]> {
  const found = new Map<string, Stretch[]>();
  for (const root of trace.roots) {
    for (const s of refined && root.refined.length > 0 ? root.refined : root.sections) {
      const list = found.get(s.span) ?? [];
      list.push({ from: s.start_ns, to: s.end_ns });
      found.set(s.span, list);
    }
  }
  return found;
}

function wireOf(span: Span, below: Span[]): Stretch[] {
  const callee = span.kind === "client" ? below.find((child) => child.kind === "server") : undefined;
  if (!callee) return [];
  const end = span.start_ns + span.duration_ns;
  const calleeEnd = callee.start_ns + callee.duration_ns;
  return [
    { from: span.start_ns, to: Math.min(callee.start_ns, end) },
    { from: Math.max(calleeEnd, span.start_ns), to: end },
  ].filter((s) => s.to > s.from);
}

// shown returns the indexes of the rows that are not below a folded one; only those on the critical path if so wished.
export function shown(all: Row[], folded: ReadonlySet<string>, criticalOnly: boolean): number[] {
  const found: number[] = [];
  for (let i = 0; i < all.length; i++) {
    const row = all[i]!;
    if (criticalOnly && !row.through) {
      i = row.end - 1;
      continue;
    }
    found.push(i);
    if (folded.has(row.span.id)) i = row.end - 1;
  }
  return found;
}

// Contrast is a value of an attribute that slow requests have more often, or less, than others.
export type Contrast = { key: string; value: string; service: string; slow: number; rest: number };

// contrasts compares attributes of traces: the part of the slow ones, and of the rest, in which some span of a service has the value; by
// falling difference. What all have alike is left out, and so is what tells every trace from every other.
export function contrasts(slow: Trace[], rest: Trace[]): Contrast[] {
  const tally = new Map<string, Contrast>();
  const add = (trace: Trace, field: "slow" | "rest", of: number) => {
    const seen = new Set<string>();
    for (const span of trace.spans) {
      for (const { key, value } of span.attributes) {
        const name = `${span.service}\n${key}\n${value}`;
        if (key.startsWith("sibyl.") || seen.has(name)) continue;
        seen.add(name);
        const found = tally.get(name) ?? { key, value, service: span.service, slow: 0, rest: 0 };
        found[field] += 1 / of;
        tally.set(name, found);
      }
    }
  };
  slow.forEach((trace) => add(trace, "slow", slow.length));
  rest.forEach((trace) => add(trace, "rest", rest.length));
  const least = 1 / Math.max(1, slow.length) + 1e-9;
  return [...tally.values()]
    .filter((c) => Math.abs(c.slow - c.rest) > least)
    .sort((a, b) => Math.abs(b.slow - b.rest) - Math.abs(a.slow - a.rest) || a.key.localeCompare(b.key));
}
