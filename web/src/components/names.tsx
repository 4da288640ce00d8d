// Sentences, and the names of services, operations and instances, which are set apart from prose.
import { useState } from "react";
import { Link } from "wouter";
import { type Phrase, phraseText, sameWords } from "../logic/sentences.ts";
import { useNow, useZone } from "../settings.ts";

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

type SentenceProps = { of: readonly Phrase[]; links?: ReadonlyMap<string, string> };

// Sentence is a sentence in which the names are set apart. Those with links lead there.
export const Sentence = ({ of, links }: SentenceProps) =>
  of.map((phrase, i) => <PhraseText key={i} of={phrase} to={links?.get(phrase.text)} />);

function PhraseText({ of: phrase, to }: { of: Phrase; to: string | undefined }) {
  const [zone] = useZone();
  const now = useNow();
  const text = phraseText(phrase, zone, now);
  switch (phrase.kind) {
    case "name":
      return to ? (
        <a href={to}>
          <Name>{text}</Name>
        </a>
      ) : (
        <Name>{text}</Name>
      );
    case "incident":
      return <Link href={`/incidents/${text}`}>{text}</Link>;
    default:
      return <span>{text}</span>;
  }
}

const held = 60_000; // ms

// useSteady returns a value that a heading shows, with its sentence. While somebody may be reading it, its numbers do
// not change: it follows at most once a minute, or at once if id or the words change, as when the place is located.
export function useSteady<T>(value: T, sentence: readonly Phrase[], id: string): T {
  const now = useNow();
  const [shown, setShown] = useState({ value, sentence, id, at: now });
  if (id !== shown.id || !sameWords(sentence, shown.sentence) || (value !== shown.value && now - shown.at >= held)) {
    setShown({ value, sentence, id, at: now });
    return value;
  }
  return shown.value;
}
