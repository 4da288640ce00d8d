// Lines draws series over time with uPlot: a linear time axis and a logarithmic value axis. Series of another day are
// drawn behind them, as quiet lines.
import { useContext, useEffect, useEffectEvent, useRef } from "react";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { dayAndTime, duration, time } from "../logic/format.ts";
import { ThemeContext, useNow, useZone } from "../settings.ts";
import type { Mark } from "./heatmap.tsx";

export type Series = { name: string; values: (number | null)[]; color: string; dash?: number[] };

type Props = {
  at: number[]; // ms, ascending
  series: Series[];
  behind?: { at: number[]; series: Series[] };
  marks: Mark[];
  label: string;
  brush?: (from: number, to: number) => void;
};

const longSpan = 30 * 3_600_000; // ms, from which the axis names days
const manyPoints = 100; // from which lines have no dots

export function Lines({ at, series, behind, marks, label, brush }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const [zone] = useZone();
  const now = useNow();
  const theme = useContext(ThemeContext);
  const onBrush = useEffectEvent((from: number, to: number) => brush?.(from, to));
  const format = useEffectEvent((ms: number) => time(ms, zone, now));
  const day = useEffectEvent((ms: number) => dayAndTime(ms, zone));
  const brushable = brush !== undefined;
  const data = JSON.stringify({ at, series, behind, marks }); // compared by value: an update without change redraws nothing
  useEffect(() => {
    const { at, series, behind, marks } = JSON.parse(data) as Pick<Props, "at" | "series" | "behind" | "marks">;
    const element = box.current!;
    const style = getComputedStyle(document.documentElement);
    const color = (name: string) => style.getPropertyValue(`--${name}`);
    const axis = {
      stroke: color("dim"),
      grid: { stroke: color("line"), width: 1 },
      ticks: { stroke: color("line"), width: 1 },
      font: "11px system-ui, sans-serif",
    };
    const chart = new uPlot(
      {
        width: element.clientWidth,
        height: 210,
        ms: 1,
        tzDate: (ts) => (zone === "utc" ? uPlot.tzDate(new Date(ts), "Etc/UTC") : new Date(ts)),
        scales: {
          x: { time: true },
          y: { distr: 3, range: (_u, low, high) => (low > 0 ? [low * 0.8, high * 1.25] : [1e6, 1e9]) },
        },
        axes: [
          {
            ...axis,
            values: (u, ticks) => {
              const long = u.scales["x"]!.max! - u.scales["x"]!.min! > longSpan;
              return ticks.map((t) => (long ? day(t) : format(t).replace(" UTC", "").slice(-8)));
            },
            space: 96,
          },
          {
            ...axis,
            size: 64,
            values: (_u, ticks) => ticks.map((t) => (t === null ? "" : duration(t))),
            splits: (_u, _axis, low, high) => splits(low, high),
            filter: (_u, ticks) => ticks,
          },
        ],
        series: [
          { value: (_u, v) => (v === null ? "–" : format(v)), label: "Time" },
          ...(behind?.series ?? []).map((s) => ({
            label: s.name,
            stroke: color(s.color),
            width: 1,
            alpha: 0.75,
            points: { show: false },
            ...(s.dash ? { dash: s.dash } : {}),
            value: (_u: uPlot, v: number | null) => duration(v),
          })),
          ...series.map((s) => ({
            label: s.name,
            stroke: color(s.color),
            width: 2,
            points: { size: at.length > manyPoints ? 0 : 6, fill: color("raised") },
            ...(s.dash ? { dash: s.dash } : {}),
            value: (_u: uPlot, v: number | null) => duration(v),
          })),
        ],
        cursor: { drag: { x: brushable, y: false, setScale: false } },
        hooks: {
          draw: [(u) => drawMarks(u, marks, color("dim"))],
          setSelect: [
            (u) => {
              if (u.select.width > 4)
                onBrush(u.posToVal(u.select.left, "x"), u.posToVal(u.select.left + u.select.width, "x"));
            },
          ],
        },
      },
      aligned(at, series, behind),
      element,
    );
    const watch = new ResizeObserver(() => chart.setSize({ width: element.clientWidth, height: 210 }));
    watch.observe(element);
    return () => {
      watch.disconnect();
      chart.destroy();
    };
  }, [data, brushable, zone, theme]);
  return <div ref={box} role="img" aria-label={label} className="lines" />;
}

// aligned returns the values of all series at the times of all of them. Missing values are no gaps, null is one.
function aligned(at: number[], series: Series[], behind: Props["behind"]): uPlot.AlignedData {
  const present: uPlot.AlignedData = [at, ...series.map((s) => s.values)];
  return behind ? uPlot.join([[behind.at, ...behind.series.map((s) => s.values)], present]) : present;
}

// splits returns about five round values, evenly spaced on a logarithmic axis.
function splits(low: number, high: number): number[] {
  const round = (x: number) => Number(x.toPrecision(x / low > 20 ? 1 : 2));
  return [...new Set([0.05, 0.27, 0.5, 0.73, 0.95].map((part) => round(low * (high / low) ** part)))];
}

function drawMarks(u: uPlot, marks: Mark[], color: string) {
  const { ctx, bbox } = u;
  ctx.save();
  ctx.strokeStyle = ctx.fillStyle = color;
  ctx.textAlign = "left";
  ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
  const labelled: number[] = [];
  for (const mark of marks) {
    const x = u.valToPos(mark.at, "x", true);
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    ctx.setLineDash(mark.annotation ? [] : [4, 4]);
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    if (labelled.some((other) => Math.abs(other - x) < 50 * devicePixelRatio)) continue;
    labelled.push(x);
    ctx.fillText(mark.text, x + 3 * devicePixelRatio, bbox.top + 11 * devicePixelRatio);
  }
  ctx.restore();
}
