// The suspects of an incident: their shares of the cost, divided into parts.
import type { Schemas } from "../api/client.ts";
import { keepUnits, percent } from "../logic/format.ts";
import { parts, partsOf } from "../logic/incidents.ts";
import { Sentence, useSteady } from "../components/names.tsx";

type Incident = Schemas["Incident"];
type Suspect = Schemas["IncidentSuspect"];

// shareMeans explains the share of a suspect.
export const shareMeans =
  "Share of this service in the cost of the incident: the time that it adds, and the requests that fail or get no answer";

// scoreText gives the score of a suspect, which the share hides.
export const scoreText = (s: Suspect) =>
  `Averaged over all requests, affected or not, it adds ${percent(s.score)} of their usual time or failures`;

// SteadySentence is the sentence of an incident as a heading. Names with links lead there.
export const SteadySentence = ({ of: x, links }: { of: Incident; links: ReadonlyMap<string, string> }) => (
  <Sentence of={useSteady(x.sentence_parts, x.sentence_parts, x.id)} links={links} />
);

// ScoreBar draws the score of a suspect, of a maximum, divided into its parts. It is hidden from screen readers: the
// parts are listed beside it.
export function ScoreBar({ of: s, max }: { of: Suspect; max: number }) {
  return (
    <div className="score" aria-hidden="true">
      {partsOf(s).map(({ key, value }) => (
        <i key={key} className={`part-${key}`} style={{ width: `${(value / max) * 100}%` }} />
      ))}
    </div>
  );
}

// PartList lists the parts of a share of a cost with the colours of its bar.
export function PartList({ of: s, cost }: { of: Suspect; cost: number }) {
  return (
    <span className="parts">
      {partsOf(s).map(({ key, name, means, value }) => (
        <span key={key} title={means}>
          <i className={`part-${key}`} aria-hidden="true" />
          {name} {keepUnits(percent(value / cost))}
        </span>
      ))}
    </span>
  );
}

// suspectColumns are the columns of the parts in exports.
export const suspectColumns = [...parts.map((part) => part.name), "unexplained"];

export const suspectCells = (s: Suspect) => [...parts.map((part) => s.parts[part.key]), s.parts.rest];
