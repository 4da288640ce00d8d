// Icicle draws boxes nested by calling context. Pointer, touch and arrow keys read the boxes; a click or Enter zooms into
// one.
import { useState } from "react";
import type { Box } from "../logic/icicle.ts";
import { useSize } from "./use-size.ts";

const rowHeight = 24;
const charWidth = 8; // px, of wide letters
const minTextWidth = 26; // px

type Look = { fill: string; ink: string; note: string; located?: boolean };

type Props = {
  boxes: Box[]; // in pre-order
  look: (b: Box) => Look;
  label: string;
  title: (b: Box) => string;
};

// Icicle fills each box and writes its label and note according to look.
export function Icicle({ boxes, look, label, title }: Props) {
  const [svg, { width }] = useSize<SVGSVGElement>({ width: 900, height: 0 });
  const [zoom, setZoom] = useState(""); // key of the box that takes the whole width; empty: none
  const [picked, setPicked] = useState<string>(); // key of the box that the keyboard reads
  const depth = Math.max(0, ...boxes.map((b) => b.depth)) + 1;
  const top = boxes.find((b) => b.key === zoom) ?? { x: 0, width: 1, key: "" };
  const shown = boxes.filter((b) => b.key.startsWith(top.key) || top.key.startsWith(b.key));
  const current = shown.find((b) => b.key === picked);
  const toggle = (b: Box) => setZoom(b.key === zoom || b.width > 0.999 ? "" : b.key);
  const key = (event: React.KeyboardEvent) => {
    if (event.key === "Escape") {
      setPicked(undefined);
      setZoom("");
      return;
    }
    if (event.key === "Enter" && current) {
      toggle(current);
      return;
    }
    const next = neighbour(shown, current, event.key);
    if (!next) return;
    event.preventDefault();
    setPicked(next.key);
  };
  return (
    <>
      <svg
        ref={svg}
        className="chart icicle"
        height={depth * rowHeight}
        role="slider"
        tabIndex={0}
        aria-label={label}
        aria-valuemin={0}
        aria-valuemax={Math.max(0, shown.length - 1)}
        aria-valuenow={current ? shown.indexOf(current) : 0}
        aria-valuetext={current ? title(current) : label}
        onKeyDown={key}
        onBlur={() => setPicked(undefined)}
      >
        {shown.map((b) => {
          const { fill, ink, note, located } = look(b);
          const x = Math.max(0, (b.x - top.x) / (top.width || 1));
          const w = Math.max(0.5, Math.min(1 - x, b.width / (top.width || 1)) * width - 1);
          const room = Math.floor((w - 8) / charWidth);
          const text = `${b.label}  ${note}`;
          return (
            <g
              key={b.key}
              className={`box${located ? " located" : ""}${b === current ? " picked" : ""}`}
              transform={`translate(${x * width} ${b.depth * rowHeight})`}
              data-tip={title(b)}
              onClick={() => toggle(b)}
            >
              <rect width={w} height={rowHeight - 2} rx="2" style={{ fill }} />
              {w > minTextWidth && (
                <svg width={w} height={rowHeight}>
                  <text x="4" y="15.5" style={{ fill: ink }}>
                    {text.length <= room
                      ? text
                      : `${[...text.slice(0, 2 * room)].slice(0, Math.max(1, room - 1)).join("")}…`}
                  </text>
                </svg>
              )}
            </g>
          );
        })}
      </svg>
      <p className="hint dim small" role="status">
        {current && title(current).replaceAll("\n", " · ")}
        {!current && zoom && (
          <button type="button" className="link" onClick={() => setZoom("")}>
            Show the whole path
          </button>
        )}
      </p>
    </>
  );
}

// neighbour returns the box that an arrow key leads to; undefined if there is none.
function neighbour(boxes: Box[], from: Box | undefined, key: string): Box | undefined {
  if (!from) return key.startsWith("Arrow") ? boxes[0] : undefined;
  const level = boxes.filter((b) => b.depth === from.depth);
  switch (key) {
    case "ArrowUp":
      return boxes.find((b) => b.depth === from.depth - 1 && b.children.includes(from));
    case "ArrowDown":
      return boxes.find((b) => b === from.children[0]);
    case "ArrowLeft":
      return level[level.indexOf(from) - 1];
    case "ArrowRight":
      return level[level.indexOf(from) + 1];
    default:
      return undefined;
  }
}

const heatSteps = [0.02, 0.1, 0.3, 0.6];

// heat returns the colours for a share, 0–1.
export function heat(share: number): { fill: string; ink: string } {
  const step = heatSteps.filter((from) => share >= from).length;
  return { fill: `var(--heat-${step})`, ink: step < 3 ? "var(--text)" : "var(--heat-ink)" };
}

// HeatLegend explains the colours of heat; share names their quantity.
export function HeatLegend({ share, located }: { share: string; located?: boolean }) {
  return (
    <div className="legend" aria-hidden="true">
      Share {share}:
      {["below 2 %", "2–10 %", "10–30 %", "30–60 %", "above 60 %"].map((text, i) => (
        <span key={text}>
          <i style={{ background: `var(--heat-${i})` }} />
          {text}
        </span>
      ))}
      {located && (
        <span>
          <i className="dashed" />
          located place
        </span>
      )}
    </div>
  );
}
