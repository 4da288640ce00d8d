// Minimap draws a whole trace into one strip, with a box around the visible range that pointers and keys move.
import { type PointerEvent, memo, useContext, useEffect, useRef, useState } from "react";
import { count, duration } from "../logic/format.ts";
import { type Row, type Interval, extent } from "../logic/waterfall.ts";
import { rangeBetween, scaleRange, shiftRange } from "../logic/zoom.ts";
import { ThemeContext } from "../settings.ts";
import { useSize } from "./use-size.ts";

// range is the visible range. onDrag is called while it changes, onChange when it has changed.
type Props = {
  rows: Row[];
  whole: number;
  range: Interval;
  onDrag: (range: Interval) => void;
  onChange: (range: Interval) => void;
};

type Drag = { from: number; range: Interval; how: "all" | "from" | "to" | "new" };

const height = 56;

export function Minimap({ rows, whole, range, onDrag, onChange }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const [drag, setDrag] = useState<Drag>();
  const time = (event: PointerEvent) => {
    const { left, width } = box.current!.getBoundingClientRect();
    return Math.max(0, Math.min(1, (event.clientX - left) / width)) * whole;
  };
  const dragged = (event: PointerEvent, d: Drag): Interval => {
    const at = time(event);
    if (d.how === "all") return shiftRange(d.range, at - d.from, whole);
    const fixed = { from: d.range.to, to: d.range.from, new: d.from }[d.how];
    return rangeBetween(fixed, at, whole);
  };
  const begin = (event: PointerEvent) => {
    if (event.button !== 0) return;
    event.currentTarget.setPointerCapture(event.pointerId);
    const grip = (event.target as HTMLElement).dataset.grip as Drag["how"] | undefined;
    const zoomed = range.from > 0 || range.to < whole;
    setDrag({ from: time(event), range, how: grip === "all" && !zoomed ? "new" : (grip ?? "new") });
  };
  const end = (event: PointerEvent) => {
    // A click selects nothing.
    if (drag && Math.abs(time(event) - drag.from) > whole / 200) onChange(dragged(event, drag));
    else if (drag) onChange(drag.range);
    setDrag(undefined);
  };
  const percent = (ns: number) => `${(ns / (whole || 1)) * 100}%`;
  const slider = (how: "from" | "to" | "all", name: string, now: number, press: (by: number) => Interval) => ({
    role: "slider",
    tabIndex: 0,
    "data-grip": how,
    "aria-label": name,
    "aria-valuemin": 0,
    "aria-valuemax": Math.round(whole),
    "aria-valuenow": Math.round(now),
    "aria-valuetext": how === "all" ? `${duration(range.from)} to ${duration(range.to)}` : duration(now),
    onKeyDown: (event: React.KeyboardEvent) => {
      const step = (whole / 100) * (event.shiftKey ? 10 : 1);
      const does: Record<string, () => Interval> = {
        ArrowLeft: () => press(-step),
        ArrowRight: () => press(step),
        Home: () => press(-whole),
        End: () => press(whole),
        "+": () => scaleRange(range, 0.5, whole),
        "-": () => scaleRange(range, 2, whole),
        Escape: () => ({ from: 0, to: whole }),
      };
      const act = does[event.key];
      if (!act) return;
      event.preventDefault();
      event.stopPropagation();
      onChange(act());
    },
  });
  return (
    // eslint-disable-next-line jsx-a11y/no-static-element-interactions -- its sliders handle keys
    <div
      className="minimap"
      ref={box}
      style={{ height }}
      onPointerDown={begin}
      onPointerMove={(e) => drag && onDrag(dragged(e, drag))}
      onPointerUp={end}
      onPointerCancel={() => (setDrag(undefined), drag && onChange(drag.range))}
      onDoubleClick={() => onChange({ from: 0, to: whole })}
    >
      <Strip rows={rows} whole={whole} />
      <div className="minimap-out" style={{ left: 0, width: percent(range.from) }} />
      <div className="minimap-out" style={{ right: 0, width: percent(whole - range.to) }} />
      <div
        className="minimap-part"
        style={{ left: percent(range.from), width: percent(range.to - range.from) }}
        {...slider("all", "Visible range; plus and minus zoom, Escape shows all", range.from, (by) =>
          shiftRange(range, by, whole),
        )}
      />
      <div
        className="minimap-grip"
        style={{ left: percent(range.from) }}
        {...slider("from", "Start of the visible range", range.from, (by) =>
          rangeBetween(Math.min(range.from + by, range.to), range.to, whole),
        )}
      />
      <div
        className="minimap-grip"
        style={{ left: percent(range.to) }}
        {...slider("to", "End of the visible range", range.to, (by) =>
          rangeBetween(range.from, Math.max(range.to + by, range.from), whole),
        )}
      />
    </div>
  );
}

// Strip is the drawing. It is redrawn only when the trace or its size changes.
const Strip = memo(function Strip({ rows, whole }: { rows: Row[]; whole: number }) {
  const [canvasRef, { width }] = useSize<HTMLCanvasElement>({ width: 0, height: 0 });
  const theme = useContext(ThemeContext);
  useEffect(() => {
    const { devicePixelRatio: ratio } = window;
    const to = canvasRef.current!;
    const context = to.getContext("2d");
    if (!context || width === 0) return;
    to.width = width * ratio;
    to.height = height * ratio;
    context.scale(ratio, ratio);
    const colour = (name: string) => getComputedStyle(to).getPropertyValue(name);
    const lane = (height - 8) / Math.max(1, rows.length);
    const draw = (s: Interval, i: number, minHeight: number) =>
      context.fillRect(
        (s.from / (whole || 1)) * width,
        4 + i * lane,
        Math.max(1, ((s.to - s.from) / (whole || 1)) * width),
        Math.max(minHeight, Math.min(6, lane - 1)),
      );
    context.fillStyle = colour("--span");
    rows.forEach((row, i) => !row.gap && draw(extent(row), i, 1));
    context.fillStyle = colour("--critical");
    rows.forEach((row, i) => row.critical.forEach((s) => draw(s, i, 2)));
  }, [canvasRef, rows, whole, width, theme]);
  return (
    <canvas
      ref={canvasRef}
      role="img"
      aria-label={`Overview of the trace: ${count(rows.filter((r) => !r.gap).length)} spans in ${duration(whole)}, critical path highlighted`}
    />
  );
});
