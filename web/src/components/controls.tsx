// Form controls: choices, selects and search fields.
import { type KeyboardEvent, useEffect, useState } from "react";
import { count } from "../logic/format.ts";
import { maxSearchLength } from "../url.ts";

// Choice selects one of a few values with buttons side by side.
export function Choice<T extends string>(props: {
  label: string;
  of: readonly (readonly [T, string])[];
  value: T;
  pick: (value: T) => void;
}) {
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

// More shows, below a list, the number of items that it leaves out, or that it shows on demand. what says more about
// them.
export function More(props: { rest: number; what?: string; shown: boolean; toggle: () => void }) {
  if (props.rest <= 0) return null;
  return (
    <p className="under">
      <button type="button" className="link" aria-expanded={props.shown} onClick={props.toggle}>
        {props.shown ? "Fewer" : `${count(props.rest)} more${props.what ?? ""}`}
      </button>
    </p>
  );
}

// Select selects one of many values.
export function Select(props: {
  label: string;
  of: readonly (readonly [string, string])[];
  value: string;
  pick: (value: string) => void;
}) {
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

// Search is a search field. It calls pick when typing pauses. With step, Enter moves to the next match.
export function Search({ value, pick, label, step }: SearchProps) {
  const [text, setText] = useState(value);
  const [previous, setPrevious] = useState(value);
  if (previous !== value) {
    setPrevious(value);
    setText(value);
  }
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
      type="search"
      data-search
      value={text}
      onChange={(e) => setText(e.target.value)}
      placeholder={label}
      aria-label={label}
      maxLength={maxSearchLength}
      onKeyDown={pressed}
    />
  );
}
