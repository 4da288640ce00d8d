// Spans of a trace in the order in which a waterfall shows them, with what of each is on the critical path.
import type { Schemas } from "../api/client.ts";
import { duration } from "./format.ts";

type Trace = Schemas["Trace"];
type Span = Schemas["Span"];
export type Interval = { from: number; to: number };

// Gap is a long stretch of the critical path that no span accounts for: on the wire, or in the queue of a callee, or where nothing below a
// span ran that has a span of its own.
export type Gap = Interval & { wire: boolean };

// Row is a span of a waterfall, or a gap below the span whose time it is. Rows are in pre-order: what is below row i are those up to, and
// without, end.
export type Row = {
  id: string;
  span: Span;
  gap?: Gap;
  depth: number;
  end: number;
  parent: boolean; // there are spans below it
  critical: Interval[]; // where it alone is on the critical path
  wire: Interval[]; // parts of a client span outside of its server span: on the wire, or in the callee's queue
  through: boolean; // it, or one below it, is on the critical path
};

// leastGap is the part of the request from which a gap is long enough to have a name.
const leastGap = 0.02;

// gaps returns what is at least so long of sections of a span's own time on the critical path, in their order, while none of the spans below it,
// by start, was active.
function gaps(sections: Interval[], below: Span[], wire: Interval[], least: number): Gap[] {
  const found: Gap[] = [];
  for (const section of sections) {
    if (section.to - section.from < least) continue;
    const add = (to: number) => {
      const gap = { from, to: Math.min(to, section.to) };
      if (gap.to > gap.from && gap.to - gap.from >= least)
        found.push({ ...gap, wire: wire.some((w) => w.from <= gap.from && w.to >= gap.to) });
    };
    let from = section.from;
    for (const child of below) {
      if (child.start_ns >= section.to) break;
      add(child.start_ns);
      from = Math.max(from, child.start_ns + child.duration_ns);
    }
    add(section.to);
  }
  return found;
}

// what says what a row is, in words.
export function rowLabel({ span, gap }: Row): string {
  if (!gap) return `${span.service} ${span.name}`;
  const long = duration(gap.to - gap.from);
  return gap.wire
    ? `wait ${long}: on the wire, or in the callee's queue`
    : `gap ${long}: nothing instrumented ran here`;
}

// extent returns when a row was.
export const extent = ({ span, gap }: Row): Interval =>
  gap ?? { from: span.start_ns, to: span.start_ns + span.duration_ns };

// inCircles returns one span of each circle that parents lead round in.
function cycleStarts(byID: ReadonlyMap<string, Span>): Set<Span> {
  const found = new Set<Span>();
  const seen = new Set<Span>();
  for (const span of byID.values()) {
    const way = new Set<Span>();
    let at: Span | undefined = span;
    for (; at && !seen.has(at); at = byID.get(at.parent)) {
      seen.add(at);
      way.add(at);
    }
    if (at && way.has(at)) found.add(at);
  }
  return found;
}

// rows lays out a trace; children by start. Spans whose parent is missing stand at the top, and so does one of those that are each other's parents.
export function rows(trace: Trace, refined: boolean): Row[] {
  const byID = new Map(trace.spans.map((span) => [span.id, span]));
  const children = new Map<string, Span[]>();
  const cut = cycleStarts(byID);
  for (const span of byID.values()) {
    const parent = byID.has(span.parent) && !cut.has(span) ? span.parent : "";
    const list = children.get(parent);
    if (list) list.push(span);
    else children.set(parent, [span]);
  }
  const sections = sectionsOf(trace, refined);
  const all: Row[] = [];
  // Not recursive: a trace may be as deep as it is long.
  const stack: { span: Span; gap?: Gap; depth: number }[] = [...(children.get("") ?? [])]
    .reverse()
    .map((span) => ({ span, depth: 0 }));
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
    const { span, gap, depth } = stack.pop()!;
    close(depth);
    if (gap) {
      open.push(all.length);
      all.push({
        id: `${span.id}~${gap.from}`,
        span,
        gap,
        depth,
        end: 0,
        parent: false,
        critical: [],
        wire: [],
        through: true,
      });
      continue;
    }
    const below = children.get(span.id) ?? [];
    const critical = sections.get(span.id) ?? [];
    open.push(all.length);
    const wire = wireOf(span, below);
    all.push({
      id: span.id,
      span,
      depth,
      end: 0,
      parent: below.length > 0,
      critical,
      wire,
      through: critical.length > 0,
    });
    const named = below.length > 0 ? gaps(critical, below, wire, leastGap * trace.duration_ns) : [];
    let next = named.length - 1; // of those that are not on the stack, the last
    for (let i = below.length - 1; i >= 0; i--) {
      while (next >= 0 && named[next]!.from >= below[i]!.start_ns)
        stack.push({ span, gap: named[next--]!, depth: depth + 1 });
      stack.push({ span: below[i]!, depth: depth + 1 });
    }
    while (next >= 0) stack.push({ span, gap: named[next--]!, depth: depth + 1 });
  }
  close(0);
  return all;
}

function sectionsOf(trace: Trace, refined: boolean): Map<string, Interval[]> {
  const found = new Map<string, Interval[]>();
  for (const root of trace.roots) {
    for (const s of refined && root.refined.length > 0 ? root.refined : root.sections) {
      const list = found.get(s.span) ?? [];
      list.push({ from: s.start_ns, to: s.end_ns });
      found.set(s.span, list);
    }
  }
  return found;
}

function wireOf(span: Span, below: Span[]): Interval[] {
  const callee = span.kind === "client" ? below.find((child) => child.kind === "server") : undefined;
  if (!callee) return [];
  const end = span.start_ns + span.duration_ns;
  const calleeEnd = callee.start_ns + callee.duration_ns;
  return [
    { from: span.start_ns, to: Math.min(callee.start_ns, end) },
    { from: Math.max(calleeEnd, span.start_ns), to: end },
  ].filter((s) => s.to > s.from);
}

// shown returns the indexes of the rows that are not below a folded one and were during a part of the request; only those on the critical path
// if criticalOnly.
export function visibleRows(all: Row[], folded: ReadonlySet<string>, criticalOnly: boolean, part: Interval): number[] {
  const found: number[] = [];
  for (let i = 0; i < all.length; i++) {
    const row = all[i]!;
    if (criticalOnly && !row.through) {
      i = row.end - 1;
      continue;
    }
    const { from, to } = extent(row);
    if (from <= part.to && to >= part.from) found.push(i);
    if (folded.has(row.span.id)) i = row.end - 1;
  }
  return found;
}

// matching returns the indexes of the rows whose words hold a text, in any case; none for no text.
export function matching(all: Row[], text: string): ReadonlySet<number> {
  const low = text.toLowerCase();
  return new Set(low === "" ? [] : all.flatMap((row, i) => (rowLabel(row).toLowerCase().includes(low) ? [i] : [])));
}

// hits returns the places, among the rows shown, of those that match.
export const hits = (shown: number[], matching: ReadonlySet<number>) =>
  shown.flatMap((index, i) => (matching.has(index) ? [i] : []));

// step returns which of some hits, ascending, comes after, or before, a place, round and round.
export function step(hits: number[], at: number, by: 1 | -1): number | undefined {
  return by > 0 ? (hits.find((i) => i > at) ?? hits[0]) : (hits.findLast((i) => i < at) ?? hits.at(-1));
}
