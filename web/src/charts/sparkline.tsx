type Props = {
  of: number[]; // oldest first
  label: string;
  zero?: boolean; // the scale begins at zero
  onset?: number; // index of the value before which a line is drawn
  wide?: boolean; // as wide as its container
};

// Sparkline draws a few values without axes.
export function Sparkline({ of, label, zero, onset, wide }: Props) {
  if (of.length < 2) return null;
  const low = zero ? 0 : Math.min(...of);
  const high = Math.max(...of);
  const [width, height] = wide ? [300, 44] : [92, 18];
  const x = (i: number) => ((i / (of.length - 1)) * (width - 4) + 2).toFixed(1);
  const y = (v: number) => (height - 2 - ((v - low) / (high - low || 1)) * (height - 4)).toFixed(1);
  return (
    <svg
      {...(wide ? { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none" } : { width })}
      height={height}
      role="img"
      aria-label={label}
      data-tip={label}
      className={wide ? "spark wide" : "spark"}
    >
      {onset !== undefined && onset > 0 && <line x1={x(onset - 0.5)} x2={x(onset - 0.5)} y1="0" y2={height} />}
      <polyline points={of.map((v, i) => `${x(i)},${y(v)}`).join(" ")} />
      {!wide && <circle cx={x(of.length - 1)} cy={y(of.at(-1)!)} r="2" />}
    </svg>
  );
}
