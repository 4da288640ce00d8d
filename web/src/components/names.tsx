// Names of services, operations and instances, set apart from prose.
import { useState } from "react";
import { wordsOf } from "../logic/format.ts";
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

type ProseProps = { names: Iterable<string>; links?: ReadonlyMap<string, string>; children: string };

// Prose is a text in which the names are set apart. Those with links lead there.
export const Prose = ({ names, links, children }: ProseProps) =>
  pieces(children, names).map(({ text, name }, i) => {
    if (!name) return <span key={i}>{text}</span>;
    const to = links?.get(text);
    const chip = <Name key={i}>{text}</Name>;
    return to ? (
      <a key={i} href={to}>
        {chip}
      </a>
    ) : (
      chip
    );
  });

const held = 60_000; // ms

// useSteady returns a value that a heading shows, with its text. While somebody may be reading it, its numbers do not
// change: it follows at most once a minute, or at once if id or the words change, as when the place is located.
export function useSteady<T>(value: T, text: string, id: string): T {
  const now = useNow();
  const [shown, setShown] = useState({ value, text, id, at: now });
  if (id !== shown.id || wordsOf(text) !== wordsOf(shown.text) || (text !== shown.text && now - shown.at >= held)) {
    setShown({ value, text, id, at: now });
    return value;
  }
  return shown.value;
}
