// Controls: one of a few, one of many, and a text to look for.
import { type KeyboardEvent, useEffect, useState } from "react";
import { maxSearchLength } from "../url.ts";

// Choice is one of a few things, as buttons side by side.
export function Choice<T extends string>(props: {
  label: string;
  of: readonly (readonly [T, string])[];
  value: T;
  onPick: (value: T) => void;
}) {
  return (
    <div className="choice" role="group" aria-label={props.label}>
      {props.of.map(([value, text]) => (
        <button type="button" key={value} aria-pressed={value === props.value} onClick={() => props.onPick(value)}>
          {text}
        </button>
      ))}
    </div>
  );
}

// Select is one of many things.
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
