// Small components shared by all views.
import { type ReactNode, useEffect } from "react";
import { ago, time } from "../logic/format.ts";
import { useNow, useZone } from "../settings.ts";
import { Term } from "./tooltip.tsx";

// When shows a time and its age.
export function When({ at, brief }: { at: string | null | undefined; brief?: boolean }) {
  const [zone] = useZone();
  const now = useNow();
  if (!at) return <span className="dim">unknown</span>;
  return (
    <time dateTime={at} title={time(at, "utc", 0)}>
      {!brief && `${time(at, zone, now)}, `}
      <span className={brief ? "" : "dim"}>{ago(at, now)}</span>
    </time>
  );
}

// Bar draws a share with its interval, of a maximum. It is hidden from screen readers: the number is beside it.
export function Bar({
  of,
  low,
  high,
  max = 1,
}: {
  of: number | null;
  low?: number | null;
  high?: number | null;
  max?: number;
}) {
  const at = (x: number | null | undefined) => `${Math.max(0, Math.min(1, (x ?? 0) / max)) * 100}%`;
  return (
    <svg className="bar" width="100%" height="14" aria-hidden="true">
      <rect className="bar-back" x="0" y="3" width="100%" height="8" rx="2" />
      <rect className="bar-fill" x="0" y="3" width={at(of)} height="8" rx="2" />
      {low !== undefined && high !== undefined && low !== null && high !== null && high > low && (
        <g className="bar-whisker">
          <line x1={at(low)} x2={at(high)} y1="7" y2="7" />
          <line x1={at(low)} x2={at(low)} y1="2" y2="12" />
          <line x1={at(high)} x2={at(high)} y1="2" y2="12" />
        </g>
      )}
    </svg>
  );
}

// ContextPath shows the last operations of a calling context; its title is the whole path.
export function ContextPath({ of }: { of: string[] }) {
  if (of.length < 2) return <span className="path">{of[0]}</span>;
  return (
    <span className="path" title={of.join(" → ")}>
      <span className="dim">
        {of.length > 3 && "… → "}
        {of.slice(-3, -1).map((op, i) => (
          <span key={i}>
            <bdi>{op}</bdi> →{" "}
          </span>
        ))}
      </span>
      <bdi>{of.at(-1)}</bdi>
    </span>
  );
}

// Fact is a name with a value and perhaps a tooltip.
export type Fact = [name: string, value: ReactNode, title?: string];

// Facts lists names with values side by side.
export function Facts({ of }: { of: Fact[] }) {
  return (
    <dl className="facts">
      {of.map(([name, value, title]) => (
        <div key={name}>
          <dt>{title ? <Term title={title}>{name}</Term> : name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

// useTitle sets the title of the page.
export function useTitle(title: string) {
  useEffect(() => {
    document.title = title ? `${title} · Sibyl` : "Sibyl";
  }, [title]);
}
