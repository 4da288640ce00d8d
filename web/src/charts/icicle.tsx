// Icicle draws boxes nested by calling context.
import type { Box } from "../logic/icicle.ts";
import { useSize } from "./use-size.ts";

const rowHeight = 24;
const charWidth = 6.6; // px, on average
const minTextWidth = 26; // px

type Look = { fill: string; ink: string; note: string };

// Icicle fills each box and writes its label and note according to look.
export function Icicle({
  boxes,
  look,
  label,
  title,
}: {
  boxes: Box[];
  look: (b: Box) => Look;
  label: string;
  title: (b: Box) => string;
}) {
  const [svg, { width }] = useSize<SVGSVGElement>({ width: 900, height: 0 });
  const depth = Math.max(0, ...boxes.map((b) => b.depth)) + 1;
  return (
    <svg ref={svg} className="chart" height={depth * rowHeight} role="img" aria-label={label}>
      {boxes.map((b) => {
        const { fill, ink, note } = look(b);
        const w = Math.max(0.5, b.width * width - 1);
        const room = Math.floor((w - 8) / charWidth);
        const text = `${b.label}  ${note}`;
        return (
          <g key={b.key} transform={`translate(${b.x * width} ${b.depth * rowHeight})`}>
            <title>{title(b)}</title>
            <rect width={w} height={rowHeight - 2} rx="2" style={{ fill }} />
            {w > minTextWidth && (
              <text x="4" y="15.5" style={{ fill: ink }}>
                {text.length <= room
                  ? text
                  : `${[...text.slice(0, 2 * room)].slice(0, Math.max(1, room - 1)).join("")}…`}
              </text>
            )}
          </g>
        );
      })}
    </svg>
  );
}

const heatSteps = [0.02, 0.1, 0.3, 0.6];

// heat returns the colours for a share, 0–1.
export function heat(share: number): { fill: string; ink: string } {
  const step = heatSteps.filter((from) => share >= from).length;
  return { fill: `var(--heat-${step})`, ink: step < 3 ? "var(--text)" : "var(--heat-ink)" };
}
