// Sparkline draws a few values, oldest first, without axes; from 0 on if zero is set.
export function Sparkline({ of, label, zero }: { of: number[]; label: string; zero?: boolean }) {
  if (of.length < 2) return null;
  const low = zero ? 0 : Math.min(...of);
  const high = Math.max(...of);
  const [width, height] = [92, 18];
  const points = of.map(
    (v, i) =>
      `${((i / (of.length - 1)) * (width - 4) + 2).toFixed(1)},${(height - 2 - ((v - low) / (high - low || 1)) * (height - 4)).toFixed(1)}`,
  );
  const [x, y] = points.at(-1)!.split(",");
  return (
    <svg width={width} height={height} role="img" aria-label={label} data-tip={label} className="spark">
      <polyline points={points.join(" ")} />
      <circle cx={x} cy={y} r="2" />
    </svg>
  );
}
