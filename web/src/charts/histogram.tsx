// Histogram draws the distribution of durations on a logarithmic axis.
import type { Schemas } from "../api/client.ts";
import { count, duration } from "../logic/format.ts";
import { mergeBins } from "../logic/bins.ts";
import { useSize } from "./use-size.ts";

const minHeight = 150; // px
const foot = 20;

const labelWidth = 90; // px

export function Histogram({
  bins,
  p50,
  p99,
  label,
}: {
  bins: Schemas["Bin"][];
  p50: number | null;
  p99: number | null;
  label: string;
}) {
  const [svg, size] = useSize<SVGSVGElement>({ width: 600, height: minHeight });
  const { width } = size;
  const height = Math.max(minHeight, size.height);
  const bars = mergeBins(bins);
  const low = Math.log(Math.max(1, bars[0]?.low ?? 1));
  const high = Math.log(Math.max(2, bars.at(-1)?.high ?? 2));
  const x = (ns: number) => ((Math.log(Math.max(1, ns)) - low) / (high - low || 1)) * width;
  const tallest = Math.max(1, ...bars.map((b) => b.count));
  const plot = height - foot - 14;
  // The label of P50 is on the left of its line if that of P99 would cover it.
  const isClose = p50 !== null && p99 !== null && x(p99) - x(p50) < 2 * labelWidth && x(p50) > labelWidth;
  const isLast = p99 !== null && x(p99) > width - labelWidth; // its label is on the left, too
  const isLow = isClose && isLast && x(p99) - x(p50) < labelWidth; // there is no room beside it
  const marks = [
    ["P50", p50, isClose, isLow ? 23 : 11],
    ["P99", p99, isLast, 11],
  ] as const;
  return (
    <svg ref={svg} className="chart fills" height={height} role="img" aria-label={label}>
      {bars.map((b) => (
        <rect
          key={b.low}
          className="bar-fill"
          x={x(b.low) + 0.5}
          width={Math.max(1, x(b.high) - x(b.low) - 1)}
          y={14 + plot * (1 - b.count / tallest)}
          height={Math.max(1, (plot * b.count) / tallest)}
          data-tip={`${duration(b.low)} to ${duration(b.high)}: ${count(b.count)} requests`}
        />
      ))}
      <line x1="0" x2={width} y1={height - foot} y2={height - foot} style={{ stroke: "var(--strong-line)" }} />
      <text className="axis" x="0" y={height - 6}>
        {duration(Math.exp(low))}
      </text>
      <text className="axis" x={width} y={height - 6} textAnchor="end">
        {duration(Math.exp(high))}
      </text>
      {marks.map(
        ([name, at, before, y]) =>
          at !== null && (
            <g key={name}>
              <line
                x1={x(at)}
                x2={x(at)}
                y1="12"
                y2={height - foot}
                style={{ stroke: "var(--text)", strokeDasharray: "3 3" }}
              />
              <text className="axis halo" x={x(at) + (before ? -4 : 4)} y={y} textAnchor={before ? "end" : "start"}>
                {name} {duration(at)}
              </text>
            </g>
          ),
      )}
    </svg>
  );
}
