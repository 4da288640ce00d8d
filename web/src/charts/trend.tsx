// Trend draws a number over time in bins of equal length, with its usual value as a dashed line and events as marks. Its
// values are read by pointer, touch and keys: arrows, Home and End.
import { type KeyboardEvent, type PointerEvent, useState } from "react";
import { time } from "../logic/format.ts";
import { useNow, useZone } from "../settings.ts";
import type { Mark } from "./heatmap.tsx";
import { useSize } from "./use-size.ts";

type Props = {
  label: string;
  from: number; // ms
  bin: number; // ms
  values: readonly (number | null)[];
  usual: number | null;
  format: (value: number | null) => string;
  marks?: readonly Mark[];
  least?: number; // of the top of the axis
};

const height = 96;
const [top, foot, left] = [6, 18, 60];

export function Trend({ label, from, bin, values, usual, format, marks = [], least = 0 }: Props) {
  const [svg, { width }] = useSize<SVGSVGElement>({ width: 320, height });
  const [at, setAt] = useState<number>();
  const [zone] = useZone();
  const now = useNow();
  const n = values.length;
  const most = Math.max(least, usual ?? 0, ...values.map((v) => v ?? 0)) || 1;
  const plot = { width: Math.max(40, width - left - 8), height: height - top - foot };
  const x = (i: number) => left + ((i + 0.5) / n) * plot.width;
  const y = (v: number) => top + plot.height * (1 - v / (most * 1.08));
  const clock = (ms: number) => time(ms, zone, now).replace(" UTC", "").slice(-8, -3);
  const point = (event: PointerEvent<SVGSVGElement>) => {
    const box = event.currentTarget.getBoundingClientRect();
    setAt(Math.max(0, Math.min(n - 1, Math.floor(((event.clientX - box.left - left) / plot.width) * n))));
  };
  const key = (event: KeyboardEvent) => {
    const last = at ?? n;
    const next = { ArrowLeft: last - 1, ArrowRight: last + 1, Home: 0, End: n - 1 }[event.key];
    if (event.key === "Escape") setAt(undefined);
    if (next === undefined) return;
    event.preventDefault();
    setAt(Math.max(0, Math.min(n - 1, next)));
  };
  const read = (i: number) => `${clock(from + i * bin)}: ${format(values[i]!)}`;
  return (
    <div className="trend">
      <p className="readout small" role="status">
        {at !== undefined && at < n ? read(at) : usual !== null && <span className="dim">usually {format(usual)}</span>}
      </p>
      <svg
        ref={svg}
        className="chart"
        height={height}
        role="slider"
        tabIndex={0}
        aria-label={label}
        aria-valuemin={0}
        aria-valuemax={Math.max(0, n - 1)}
        aria-valuenow={at ?? Math.max(0, n - 1)}
        aria-valuetext={n > 0 ? read(Math.min(n - 1, at ?? n - 1)) : "no data"}
        style={{ touchAction: "pan-y" }}
        onPointerMove={point}
        onPointerDown={point}
        onPointerLeave={() => setAt(undefined)}
        onBlur={() => setAt(undefined)}
        onKeyDown={key}
      >
        <line className="grid" x1={left} x2={width - 8} y1={y(0)} y2={y(0)} />
        <line className="grid" x1={left} x2={width - 8} y1={y(most)} y2={y(most)} />
        <text className="axis" x={left - 6} y={y(most) + 4} textAnchor="end">
          {format(most)}
        </text>
        <text className="axis" x={left - 6} y={y(0)} textAnchor="end">
          {format(0)}
        </text>
        {values.map(
          (v, i) =>
            v !== null &&
            v > 0 && (
              <rect
                key={i}
                className={i === at ? "trend-bar pointed" : "trend-bar"}
                x={x(i) - (0.5 * plot.width) / n + 0.5}
                width={Math.max(1, plot.width / n - 1)}
                y={y(v)}
                height={Math.max(1, y(0) - y(v))}
              />
            ),
        )}
        {usual !== null && usual > 0 && (
          <line className="usual" x1={left} x2={width - 8} y1={y(usual)} y2={y(usual)} strokeDasharray="5 4" />
        )}
        {marks
          .filter((m) => m.at >= from && m.at <= from + n * bin)
          .map((m, i) => {
            const at = left + ((m.at - from) / (n * bin)) * plot.width;
            return (
              <g key={i} data-tip={m.title}>
                <line
                  className="mark"
                  x1={at}
                  x2={at}
                  y1={top}
                  y2={y(0)}
                  strokeDasharray={m.annotation ? "none" : "3 3"}
                />
                {m.annotation && <path className="mark-annotation" d={`M${at} ${y(0) - 7} l5 8 h-10 z`} />}
              </g>
            );
          })}
        <text className="axis" x={left} y={height - 4}>
          {clock(from)}
        </text>
        <text className="axis" x={width - 8} y={height - 4} textAnchor="end">
          {clock(from + n * bin)}
        </text>
      </svg>
    </div>
  );
}
