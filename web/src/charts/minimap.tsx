// Minimap draws a whole trace into one strip, and the part of it that is looked at as a box that pointers and keys move.
import { type PointerEvent, memo, useContext, useEffect, useRef, useState } from "react";
import { count, duration } from "../logic/format.ts";
import { type Row, type Interval, extent } from "../logic/waterfall.ts";
import { between, moved, scaled } from "../logic/zoom.ts";
import { ThemeContext } from "../settings.ts";
import { useSize } from "./use-size.ts";

// part is what is looked at, of the whole. See is told while it changes, keep when it has.
type Props = {
  rows: Row[];
  whole: number;
  part: Interval;
  see: (part: Interval) => void;
  keep: (part: Interval) => void;
};

type Drag = { from: number; part: Interval; how: "all" | "from" | "to" | "new" };

const height = 56;

export function Minimap({ rows, whole, part, see, keep }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const [drag, setDrag] = useState<Drag>();
  const time = (event: PointerEvent) => {
    const { left, width } = box.current!.getBoundingClientRect();
    return Math.max(0, Math.min(1, (event.clientX - left) / width)) * whole;
  };
  const dragged = (event: PointerEvent, d: Drag): Interval => {
    const at = time(event);
    if (d.how === "all") return moved(d.part, at - d.from, whole);
    const fixed = { from: d.part.to, to: d.part.from, new: d.from }[d.how];
    return between(fixed, at, whole);
  };
  const begin = (event: PointerEvent) => {
    if (event.button !== 0) return;
    event.currentTarget.setPointerCapture(event.pointerId);
    const grip = (event.target as HTMLElement).dataset.grip as Drag["how"] | undefined;
    const zoomed = part.from > 0 || part.to < whole;
    setDrag({ from: time(event), part, how: grip === "all" && !zoomed ? "new" : (grip ?? "new") });
  };
  const end = (event: PointerEvent) => {
    // A click is not meant to look at next to nothing.
    if (drag && Math.abs(time(event) - drag.from) > whole / 200) keep(dragged(event, drag));
    else if (drag) keep(drag.part);
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
    "aria-valuetext": how === "all" ? `${duration(part.from)} to ${duration(part.to)}` : duration(now),
    onKeyDown: (event: React.KeyboardEvent) => {
      const step = (whole / 100) * (event.shiftKey ? 10 : 1);
      const does: Record<string, () => Interval> = {
        ArrowLeft: () => press(-step),
        ArrowRight: () => press(step),
        Home: () => press(-whole),
        End: () => press(whole),
        "+": () => scaled(part, 0.5, whole),
        "-": () => scaled(part, 2, whole),
        Escape: () => ({ from: 0, to: whole }),
      };
      const act = does[event.key];
      if (!act) return;
      event.preventDefault();
      event.stopPropagation();
      keep(act());
    },
  });
  return (
    // eslint-disable-next-line jsx-a11y/no-static-element-interactions -- the sliders in it do the same with keys
    <div
      className="minimap"
      ref={box}
      style={{ height }}
      onPointerDown={begin}
      onPointerMove={(e) => drag && see(dragged(e, drag))}
      onPointerUp={end}
      onPointerCancel={() => (setDrag(undefined), drag && keep(drag.part))}
      onDoubleClick={() => keep({ from: 0, to: whole })}
    >
      <Strip rows={rows} whole={whole} />
      <div className="minimap-out" style={{ left: 0, width: percent(part.from) }} />
      <div className="minimap-out" style={{ right: 0, width: percent(whole - part.to) }} />
      <div
        className="minimap-part"
        style={{ left: percent(part.from), width: percent(part.to - part.from) }}
        {...slider("all", "Visible range; plus and minus zoom, Escape shows all", part.from, (by) =>
          moved(part, by, whole),
        )}
      />
      <div
        className="minimap-grip"
        style={{ left: percent(part.from) }}
        {...slider("from", "Start of the visible range", part.from, (by) =>
          between(Math.min(part.from + by, part.to), part.to, whole),
        )}
      />
      <div
        className="minimap-grip"
        style={{ left: percent(part.to) }}
        {...slider("to", "End of the visible range", part.to, (by) =>
          between(part.from, Math.max(part.to + by, part.from), whole),
        )}
      />
    </div>
  );
}

// Strip is the drawing. It is made anew only when the trace is another, or the room for it.
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
    const draw = (s: Interval, i: number, least: number) =>
      context.fillRect(
        (s.from / (whole || 1)) * width,
        4 + i * lane,
        Math.max(1, ((s.to - s.from) / (whole || 1)) * width),
        Math.max(least, Math.min(6, lane - 1)),
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
