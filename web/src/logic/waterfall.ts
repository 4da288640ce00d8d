// Rows of a waterfall: the spans of a trace and the gaps between them, with their parts of the critical path.
import type { Schemas } from "../api/client.ts";
import { duration } from "./format.ts";
import { spanName } from "./waits.ts";

type Trace = Schemas["Trace"];
type Span = Schemas["Span"];
export type Interval = { from: number; to: number };

// Gap is a long interval of a span's self time in which no child ran: uninstrumented work or, if wire is set, time on
// the wire or in the callee's queue.
export type Gap = Interval & { wire: boolean };

// Row is a span of a waterfall, or a gap below its span. Rows are in pre-order: the descendants of row i are i+1 to
// end-1.
export type Row = {
  id: string;
  span: Span;
  gap?: Gap;
  depth: number;
  end: number;
  parent: boolean; // has child spans
  critical: Interval[]; // its self time on the critical path
  wire: Interval[]; // parts of a client span outside its server span: on the wire or in the callee's queue
  onPath: boolean; // it or a descendant is on the critical path
};

const minGap = 0.02; // fraction of the request from which a gap is shown

// gaps returns the intervals of at least min ns in the sections of a span in which none of its children ran. Children
// are sorted by start.
function gaps(sections: Interval[], children: Span[], wire: Interval[], min: number): Gap[] {
  const found: Gap[] = [];
  for (const section of sections) {
    if (section.to - section.from < min) continue;
    const add = (to: number) => {
      const gap = { from, to: Math.min(to, section.to) };
      if (gap.to > gap.from && gap.to - gap.from >= min)
        found.push({ ...gap, wire: wire.some((w) => w.from <= gap.from && w.to >= gap.to) });
    };
    let from = section.from;
    for (const child of children) {
      if (child.start_ns >= section.to) break;
      add(child.start_ns);
      from = Math.max(from, child.start_ns + child.duration_ns);
    }
    add(section.to);
  }
  return found;
}

// Total is the self time on the critical path of all spans with the same service and name. row is the longest of them.
export type Total = { text: string; ns: number; count: number; row: Row };

// ownTime returns the self time on the critical path of a row.
export const ownTime = (row: Row) => row.critical.reduce((sum, c) => sum + c.to - c.from, 0);

// totals returns the totals of rows, the largest first: hundreds of short waits or queries may add up to most of a trace.
export function totals(all: Row[]): Total[] {
  const found = new Map<string, Total>();
  for (const row of all) {
    if (row.critical.length === 0) continue;
    const [text, ns] = [rowLabel(row), ownTime(row)];
    const t = found.get(text);
    if (!t) found.set(text, { text, ns, count: 1, row });
    else found.set(text, { text, ns: t.ns + ns, count: t.count + 1, row: ns > ownTime(t.row) ? row : t.row });
  }
  return [...found.values()].sort((a, b) => b.ns - a.ns);
}

// rowLabel returns the text of a row, which a search matches.
export function rowLabel({ span, gap }: Row): string {
  if (!gap) return `${span.service} ${spanName(span.name)}`;
  const long = duration(gap.to - gap.from);
  return gap.wire
    ? `wait ${long}: on the wire, or in the callee's queue`
    : `gap ${long}: nothing instrumented ran here`;
}

// extent returns the interval of a row.
export const extent = ({ span, gap }: Row): Interval =>
  gap ?? { from: span.start_ns, to: span.start_ns + span.duration_ns };

// cycleStarts returns one span of each cycle of parents.
function cycleStarts(byID: ReadonlyMap<string, Span>): Set<Span> {
  const found = new Set<Span>();
  const seen = new Set<Span>();
  for (const span of byID.values()) {
    const path = new Set<Span>();
    let at: Span | undefined = span;
    for (; at && !seen.has(at); at = byID.get(at.parent)) {
      seen.add(at);
      path.add(at);
    }
    if (at && path.has(at)) found.add(at);
  }
  return found;
}

// rows returns the rows of a trace, children by start. Spans without a known parent are roots, and so is one span of
// each cycle.
export function rows(trace: Trace, refined: boolean): Row[] {
  const byID = new Map(trace.spans.map((span) => [span.id, span]));
  const children = new Map<string, Span[]>();
  const cycles = cycleStarts(byID);
  for (const span of byID.values()) {
    const parent = byID.has(span.parent) && !cycles.has(span) ? span.parent : "";
    const list = children.get(parent);
    if (list) list.push(span);
    else children.set(parent, [span]);
  }
  const sections = sectionsOf(trace, refined);
  const all: Row[] = [];
  // Iterative, since every span of a trace may be the parent of the next.
  const stack: { span: Span; gap?: Gap; depth: number }[] = [...(children.get("") ?? [])]
    .reverse()
    .map((span) => ({ span, depth: 0 }));
  const open: number[] = [];
  const close = (depth: number) => {
    while (open.length > 0 && all[open.at(-1)!]!.depth >= depth) {
      const i = open.pop()!;
      all[i]!.end = all.length;
      const above = open.at(-1);
      if (above !== undefined && all[i]!.onPath) all[above]!.onPath = true;
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
        onPath: true,
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
      onPath: critical.length > 0,
    });
    const found = below.length > 0 ? gaps(critical, below, wire, minGap * trace.duration_ns) : [];
    let next = found.length - 1; // the last gap that is not on the stack
    for (let i = below.length - 1; i >= 0; i--) {
      while (next >= 0 && found[next]!.from >= below[i]!.start_ns)
        stack.push({ span, gap: found[next--]!, depth: depth + 1 });
      stack.push({ span: below[i]!, depth: depth + 1 });
    }
    while (next >= 0) stack.push({ span, gap: found[next--]!, depth: depth + 1 });
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

// visibleRows returns the indexes of the rows that overlap a range and have no collapsed ancestor. With criticalOnly,
// it omits rows off the critical path.
export function visibleRows(all: Row[], folded: ReadonlySet<string>, criticalOnly: boolean, range: Interval): number[] {
  const found: number[] = [];
  for (let i = 0; i < all.length; i++) {
    const row = all[i]!;
    if (criticalOnly && !row.onPath) {
      i = row.end - 1;
      continue;
    }
    const { from, to } = extent(row);
    if (from <= range.to && to >= range.from) found.push(i);
    if (folded.has(row.span.id)) i = row.end - 1;
  }
  return found;
}

// matchingRows returns the indexes of the rows whose label contains a text, ignoring case; none for the empty text.
export function matchingRows(all: Row[], text: string): ReadonlySet<number> {
  const lower = text.toLowerCase();
  return new Set(lower === "" ? [] : all.flatMap((row, i) => (rowLabel(row).toLowerCase().includes(lower) ? [i] : [])));
}

// matchPositions returns the positions of the matching rows among the visible ones.
export const matchPositions = (visible: number[], matching: ReadonlySet<number>) =>
  visible.flatMap((index, i) => (matching.has(index) ? [i] : []));

// nextMatch returns the position after or before a given one, wrapping around; undefined without matches. Positions are
// ascending.
export function nextMatch(positions: number[], at: number, by: 1 | -1): number | undefined {
  return by > 0
    ? (positions.find((i) => i > at) ?? positions[0])
    : (positions.findLast((i) => i < at) ?? positions.at(-1));
}
