// Names of services, operations and instances, set apart from prose.
import { useState } from "react";
import { pieces } from "../logic/incidents.ts";
import { useNow } from "../settings.ts";

// Name is a chip. Its text is isolated, as by bdi, inside of which a line may break before the first letter.
export const Name = ({ children }: { children: string }) => (
  <code className="name" dir="auto">
    {children}
  </code>
);

// OpName is the chip of an operation, in the weight of its surroundings.
export const OpName = ({ children }: { children: string }) => (
  <code className="name op" dir="auto">
    {children}
  </code>
);

// Prose is a text in which the names are set apart.
export const Prose = ({ names, children }: { names: Iterable<string>; children: string }) =>
  pieces(children, names).map(({ text, name }, i) =>
    name ? <Name key={i}>{text}</Name> : <span key={i}>{text}</span>,
  );

const held = 60_000; // ms

// useSteady returns a value that a heading shows. While somebody may be reading it, its numbers do not change: it
// follows at most once a minute, or at once if key changes, as when the place is located.
export function useSteady<T>(value: T, text: string, key: string): T {
  const now = useNow();
  const [shown, setShown] = useState({ value, text, key, at: now });
  if (key !== shown.key || (text !== shown.text && now - shown.at >= held)) {
    const next = { value, text, key, at: now };
    setShown(next);
    return value;
  }
  return shown.value;
}
