// Small pieces that every view uses.
import { type KeyboardEvent, type ReactNode, useEffect, useState } from "react";
import type { Failure, Schemas } from "../api/client.ts";
import type { Reading } from "../api/read.ts";
import { ago, stateWord, time } from "../compute/format.ts";
import { useNow, useZone } from "../settings.ts";
import { mostSought } from "../url.ts";

// When shows a time and how long ago it was.
export function When({ at, brief }: { at: string | null | undefined; brief?: boolean }) {
  const [zone] = useZone();
  const now = useNow();
  if (!at) return <span className="dim">not known</span>;
  return (
    <time dateTime={at} title={time(at, "utc", 0)}>
      {!brief && `${time(at, zone, now)}, `}
      <span className={brief ? "" : "dim"}>{ago(at, now)}</span>
    </time>
  );
}

// Loading says what is waited for, once it takes long enough to be noticed.
export function Loading({ what }: { what: string }) {
  const [late, setLate] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => setLate(true), 300);
    return () => clearTimeout(timer);
  }, []);
  return (
    <div className="state" aria-busy="true" role="status">
      {late && `Reading ${what} …`}
    </div>
  );
}

// Empty says that nothing is there, and what to do; as the whole page, or within one.
export function Empty({ title, children, page }: { title: string; children?: ReactNode; page?: boolean }) {
  return (
    <div className="state">
      {page ? <h1>{title}</h1> : <strong>{title}</strong>}
      {children && <p>{children}</p>}
    </div>
  );
}

export function Failed({ failure, again }: { failure: Failure; again?: () => void }) {
  return (
    <div className="state bad" role="alert">
      <strong>{failure.title}</strong>
      <p>{failure.detail}</p>
      {again && (
        <button type="button" onClick={again}>
          Try again
        </button>
      )}
    </div>
  );
}

// Stale says that what is shown could not be read again.
function Stale({ failure, again }: { failure: Failure; again: () => void }) {
  return (
    <p className="notice" role="status">
      <strong>Stale.</strong> This could not be read again: {failure.status === 0 ? `${failure.title}.` : failure.detail}{" "}
      <button type="button" onClick={again}>
        Try again
      </button>
    </p>
  );
}

// Read shows what was read, or why it is not there (yet). A value that could not be read again is shown as stale.
export function Read<T>({ of, what, children }: { of: Reading<T>; what: string; children: (value: T) => ReactNode }) {
  if (of.value === undefined) return of.failure ? <Failed failure={of.failure} again={of.again} /> : <Loading what={what} />;
  return (
    <>
      {of.failure && <Stale failure={of.failure} again={of.again} />}
      {children(of.value)}
    </>
  );
}

const glyphs: Record<string, string> = {
  none: "○", opened: "○", investigating: "◔", located: "◑", explained: "●", exhausted: "⊘", gone: "✓",
  on: "●", wanted: "◔", off: "○", baseline: "▪", forbidden: "⊘",
  current: "●", behind: "◔", lost: "⊘",
};

// State is a word with a shape: never colour alone. Pointing at it says what it means.
export function State({ of, title = meanings[of] }: { of: string; title?: string | undefined }) {
  return (
    <span className={`badge state-${of}`} title={title}>
      <span aria-hidden="true">{glyphs[of] ?? "○"}</span> {stateWord(of)}
    </span>
  );
}

// Tags are what kind of problem it is, with what that means.
export function Tags({ onset, kind }: { onset: Schemas["Onset"]; kind: Schemas["Kind"] }) {
  return (
    <>
      <span className="tag" title={meanings[onset]}>{onset}</span> <span className="tag" title={meanings[kind]}>{kindWords[kind]}</span>
    </>
  );
}

// Bar is a share with its interval, drawn; the number stands beside it.
export function Bar({ of, low, high, most = 1 }: { of: number | null; low?: number | null; high?: number | null; most?: number }) {
  const at = (x: number | null | undefined) => `${Math.max(0, Math.min(1, (x ?? 0) / most)) * 100}%`;
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

// Path shows a calling context: its last operations, the whole of it on demand.
export function Path({ of }: { of: string[] }) {
  if (of.length < 2) return <span className="path">{of[0]}</span>;
  return (
    <span className="path" title={of.join(" → ")}>
      <span className="dim">{of.length > 3 && "… → "}{of.slice(-3, -1).map((op, i) => <span key={i}><bdi>{op}</bdi> → </span>)}</span>
      <bdi>{of.at(-1)}</bdi>
    </span>
  );
}

// Choice is one of a few things, as buttons side by side.
export function Choice<T extends string>(props: { label: string; of: readonly (readonly [T, string])[]; value: T; pick: (value: T) => void }) {
  return (
    <div className="choice" role="group" aria-label={props.label}>
      {props.of.map(([value, text]) => (
        <button type="button" key={value} aria-pressed={value === props.value} onClick={() => props.pick(value)}>
          {text}
        </button>
      ))}
    </div>
  );
}

// Select is one of many things.
export function Select(props: { label: string; of: readonly (readonly [string, string])[]; value: string; pick: (value: string) => void }) {
  return (
    <label className="select">
      <span>{props.label}</span>
      <select value={props.value} onChange={(e) => props.pick(e.target.value)}>
        {props.of.map(([value, text]) => (
          <option key={value} value={value}>
            {text}
          </option>
        ))}
      </select>
    </label>
  );
}

type SearchProps = { value: string; pick: (value: string) => void; label: string; step?: (by: 1 | -1) => void };

// Search is a text to look for. It is taken over when nobody types any more. With step, Enter goes from one thing found to the next.
export function Search({ value, pick, label, step }: SearchProps) {
  const [text, setText] = useState(value);
  useEffect(() => setText(value), [value]);
  useEffect(() => {
    if (text === value) return;
    const timer = setTimeout(() => pick(text), 250);
    return () => clearTimeout(timer);
  }, [text, value, pick]);
  const pressed = (event: KeyboardEvent<HTMLInputElement>) => {
    if (event.key === "Escape") event.currentTarget.blur();
    if (event.key !== "Enter") return;
    if (text !== value) pick(text);
    else step?.(event.shiftKey ? -1 : 1);
  };
  return (
    <input
      type="search" data-search value={text} onChange={(e) => setText(e.target.value)} placeholder={label} aria-label={label}
      maxLength={mostSought} onKeyDown={pressed}
    />
  );
}

// Facts are names with values, side by side.
export function Facts({ of }: { of: [name: string, value: ReactNode, title?: string][] }) {
  return (
    <dl className="facts">
      {of.map(([name, value, title]) => (
        <div key={name} title={title}>
          <dt className={title && "meant"}>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

export const kindWords: Record<Schemas["Kind"], string> = { variable: "variable", slow: "slow", shifted: "other paths" };

// meanings says what the words of problems and tracepoints mean, for whom they are new.
export const meanings: Record<string, string> = {
  changed: "These requests were better before",
  chronic: "These requests have been like this for as long as is known",
  variable: "Some of them take far longer than others",
  slow: "They take longer on average than expected",
  shifted: "They take other paths than they did, or fail as they did not",
  none: "Waits for its turn: worse problems are investigated first",
  opened: "Was noticed just now; the next epoch says where to look",
  investigating: "Tracepoints are switched on and off to find the place",
  located: "The place is known: there is nothing left to try below it",
  explained: "The place is known, and what it goes with",
  exhausted: "All that may be switched on was tried, and no place is certain",
  gone: "It is over, or the filter hides it now",
  on: "Switched on now",
  wanted: "Should be on; no agent has confirmed it yet",
  off: "Not switched on",
  baseline: "Part of what is always on",
  forbidden: "Somebody said that it must not be switched on",
  current: "Has what is on as it should be",
  behind: "Has not applied the last change of what is on",
  lost: "Was not heard of lately",
};

// useTitle names the page.
export function useTitle(title: string) {
  useEffect(() => {
    document.title = title ? `${title} · Sibyl` : "Sibyl";
  }, [title]);
}
