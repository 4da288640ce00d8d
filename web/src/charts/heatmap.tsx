// HeatMap draws durations over time: a column for each window, as wide as it is long, darker where more of its requests
// are. Pointer, touch and arrow keys read the columns. Dots are sample
// traces, vertical lines are marks, other lines are percentiles of another day. Dragging horizontally selects a time range, diagonally a box of times and
// durations.
import { useState } from "react";
import type { Schemas } from "../api/client.ts";
import type { PastPoint } from "../logic/past.ts";
import { count, duration, time } from "../logic/format.ts";
import { type Drag, type Point, axis, cells, quantile, selection, ticksOf } from "../logic/heatmap.ts";
import { useNow, useZone } from "../settings.ts";
import { useSize } from "./use-size.ts";

// Mark is an event, drawn as a vertical line: solid with a triangle for a deploy, dashed for others.
export type Mark = { at: number; text: string; title: string; deploy?: boolean };
export type Dot = { at: number; ns: number; title: string; go: () => void };

type Props = {
  windows: Schemas["Window"][];
  marks: Mark[];
  dots: Dot[];
  behind?: PastPoint[];
  expected: number | null; // mean in ns
  label: string;
  brush: (from: number, to: number, longer: number, shorter: number) => void;
};

// Sizes in px.
const plotRoom = 230; // height of the plot with its margins
const left = 62;
const line = 12; // height of a line of labels
const foot = 20;
const labelDistance = 64; // between time labels, at least
const timeWidth = 50;

export function HeatMap({ windows, marks, dots, behind = [], expected, label, brush }: Props) {
  const [svg, { width }] = useSize<SVGSVGElement>({ width: 700, height: 0 });
  const [drag, setDrag] = useState<Drag>();
  const [pointed, setPointed] = useState<number>(); // column
  const [zone] = useZone();
  const now = useNow();
  const all = cells(windows);
  const scale = axis(windows);
  const past = [...behind.flatMap((p) => [p.p50, p.p99]), expected].filter((ns) => ns !== null);
  const low = Math.log(Math.max(1, Math.min(...all.map((c) => c.low), ...past)));
  const high = Math.log(Math.max(...all.map((c) => c.high), ...past));
  const plot = { width: width - left - 6, height: plotRoom - line - 6 - foot };
  const y = (ns: number) => top + plot.height * (1 - (Math.log(Math.max(1, ns)) - low) / (high - low || 1));
  const x = (ms: number) => left + scale.position(ms) * plot.width;
  const lines = labelLines(marks.map((m) => ({ x: x(m.at), always: m.deploy === true })));
  const top = 6 + line * Math.max(1, ...lines);
  const height = top + plot.height + foot;
  const columns = windows.map((w) => {
    const [from, to] = [x(Date.parse(w.from)), x(Date.parse(w.to))];
    return { x: from, width: Math.max(1, to - from - (to - from > 4 ? 1 : 0)) };
  });
  const maxShare = Math.max(...all.map((c) => c.share));
  const at = (event: React.PointerEvent): Point => {
    const box = svg.current!.getBoundingClientRect();
    return [
      Math.max(0, Math.min(1, (event.clientX - box.left - left) / plot.width)),
      Math.max(0, Math.min(1, (event.clientY - box.top - top) / plot.height)),
    ];
  };
  const picked = drag && selection(drag);
  const nanos = (y: number) => Math.exp(high - y * (high - low));
  const end = () => {
    if (picked)
      brush(
        scale.time(picked.x[0]),
        scale.time(picked.x[1]),
        picked.y[1] < 1 ? nanos(picked.y[1]) : 0,
        picked.y[0] > 0 ? nanos(picked.y[0]) : Infinity,
      );
    setDrag(undefined);
  };
  const ends = windows.length > 0 ? [Date.parse(windows[0]!.from), Date.parse(windows.at(-1)!.to)] : [0, 1];
  const columnAt = (position: number) => {
    const ms = scale.time(position);
    return windows.findLastIndex((w) => Date.parse(w.from) <= ms);
  };
  const key = (event: React.KeyboardEvent) => {
    const from = pointed ?? windows.length;
    const next = { ArrowLeft: from - 1, ArrowRight: from + 1, Home: 0, End: windows.length - 1 }[event.key];
    if (event.key === "Escape") setPointed(undefined);
    if (next === undefined) return;
    event.preventDefault();
    setPointed(Math.max(0, Math.min(windows.length - 1, next)));
  };
  const read = pointed === undefined ? undefined : windows[pointed];
  const readout = read
    ? `${time(read.from, zone, now)} to ${time(read.to, zone, now)}: ${count(read.count)} requests, mean ${duration(read.mean_ns)}, P50 ${duration(quantile(read.latency, 0.5))}, P99 ${duration(quantile(read.latency, 0.99))}${read.failed > 0 ? `, ${count(read.failed)} failed` : ""}`
    : "";
  const drawing = (
    <svg
      ref={svg}
      className="chart"
      height={height}
      role="slider"
      tabIndex={0}
      aria-label={label}
      aria-valuemin={0}
      aria-valuemax={Math.max(0, windows.length - 1)}
      aria-valuenow={pointed ?? Math.max(0, windows.length - 1)}
      aria-valuetext={readout || label}
      style={{ touchAction: "pan-y", cursor: "crosshair" }}
      onPointerDown={(e) => (setPointed(columnAt(at(e)[0])), e.button === 0 && setDrag([at(e), at(e)]))}
      onPointerMove={(e) => (setPointed(columnAt(at(e)[0])), drag && setDrag([drag[0], at(e)]))}
      onPointerUp={end}
      onPointerLeave={() => (setDrag(undefined), setPointed(undefined))}
      onBlur={() => setPointed(undefined)}
      onKeyDown={key}
    >
      {all.map((c) => (
        <rect
          key={`${c.column} ${c.low}`}
          x={columns[c.column]!.x}
          y={y(c.high)}
          width={columns[c.column]!.width}
          height={Math.max(1, y(c.low) - y(c.high))}
          style={{ fill: `var(--heat-${c.share > 0 ? 1 + Math.min(3, Math.floor((3.999 * c.share) / maxShare)) : 0})` }}
        />
      ))}
      {pointed !== undefined && columns[pointed] && (
        <rect
          className="column-pointed"
          x={columns[pointed].x - 1}
          width={columns[pointed].width + 2}
          y={top}
          height={plot.height}
        />
      )}
      {expected !== null && (
        <g>
          <line className="expected" x1={left} x2={width - 6} y1={y(expected)} y2={y(expected)} strokeDasharray="5 4" />
          <text className="axis halo" x={width - 8} y={y(expected) - 4} textAnchor="end">
            expected {duration(expected)}
          </text>
        </g>
      )}
      {[0.04, 0.35, 0.66, 0.96].map((part) => {
        const ns = Number(Math.exp(low + (high - low) * part).toPrecision(2));
        return (
          <text key={part} className="axis" x={left - 6} y={y(ns) + 4} textAnchor="end">
            {duration(ns)}
          </text>
        );
      })}
      {ticksOf(ends[0]!, ends[1]!, Math.max(2, Math.floor(plot.width / labelDistance) - 1))
        .filter((ms) => x(ms) < width - timeWidth)
        .map((ms) => (
          <g key={ms}>
            <line className="tick" x1={x(ms)} x2={x(ms)} y1={top + plot.height} y2={top + plot.height + 4} />
            <text className="axis" x={x(ms)} y={height - 5}>
              {time(ms, zone, now).replace(" UTC", "").slice(-8, -3)}
            </text>
          </g>
        ))}
      {(["p99", "p50"] as const).map((of) => (
        <polyline
          key={of}
          className="past"
          points={behind
            .filter((p) => p[of] !== null)
            .map((p) => `${x(p.at).toFixed(1)},${y(p[of]!).toFixed(1)}`)
            .join(" ")}
          strokeDasharray={of === "p50" ? "6 4" : "none"}
        />
      ))}
      {marks.map((m, i) => (
        <g key={i} data-tip={m.title}>
          <line
            x1={x(m.at)}
            x2={x(m.at)}
            y1={top - 4}
            y2={top + plot.height}
            style={{ stroke: "var(--text)", strokeDasharray: m.deploy ? "none" : "3 3", opacity: 0.7 }}
          />
          {m.deploy && (
            <path
              d={`M${x(m.at)} ${top + plot.height - 7} l5 8 h-10 z`}
              style={{ fill: "var(--text)", stroke: "var(--raised)" }}
            />
          )}
          {lines[i]! > 0 && (
            <text
              className="axis"
              x={x(m.at)}
              y={line * lines[i]! - 1}
              textAnchor={x(m.at) > width - 40 ? "end" : "middle"}
            >
              {m.text}
            </text>
          )}
        </g>
      ))}
      {dots.map((d) => (
        <circle
          key={`${d.at} ${d.ns}`}
          cx={x(d.at)}
          cy={y(d.ns)}
          r="4.5"
          style={{ fill: "var(--raised)", stroke: "var(--text)", strokeWidth: 1.6, cursor: "pointer" }}
          onPointerDown={(e) => e.stopPropagation()}
          onClick={d.go}
          data-tip={d.title}
        />
      ))}
      {picked && (
        <rect
          x={left + picked.x[0] * plot.width}
          width={(picked.x[1] - picked.x[0]) * plot.width}
          y={top + picked.y[0] * plot.height}
          height={(picked.y[1] - picked.y[0]) * plot.height}
          style={{ fill: "var(--accent)", opacity: 0.25 }}
        />
      )}
    </svg>
  );
  return (
    <div className="heat">
      <p className="readout small" role="status">
        {readout}
      </p>
      {drawing}
    </div>
  );
}

const maxLines = 3;

// labelLines returns the line above the chart for the label of each mark, from 1 on; 0: no label. Labels that are
// always shown move to further lines if the first is full.
function labelLines(marks: { x: number; always: boolean }[]): number[] {
  const taken: number[][] = Array.from({ length: maxLines }, () => []);
  return marks.map(({ x, always }) => {
    const at = taken
      .slice(0, always ? maxLines : 1)
      .findIndex((line) => line.every((other) => Math.abs(other - x) > 46));
    if (at >= 0) taken[at]!.push(x);
    return at + 1;
  });
}
