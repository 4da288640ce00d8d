// The suspects of an incident: their scores, divided into parts.
import type { Schemas } from "../api/client.ts";
import { keepUnits, percent } from "../logic/format.ts";
import { parts, partsOf } from "../logic/incidents.ts";
import { Name, Sentence, useSteady } from "../components/names.tsx";

type Incident = Schemas["Incident"];
type Suspect = Schemas["IncidentSuspect"];

// scoreMeans explains the score of a suspect.
export const scoreMeans =
  "Caused by this service, averaged over all requests, affected or not: additional time as a share of the usual time, plus the share of requests that fail or get no answer";

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

// PartList lists the parts of a score with the colours of its bar.
export function PartList({ of: s }: { of: Suspect }) {
  return (
    <span className="parts">
      {partsOf(s).map(({ key, name, means, value }) => (
        <span key={key} title={means}>
          <i className={`part-${key}`} aria-hidden="true" />
          {name} {keepUnits(percent(value))}
        </span>
      ))}
    </span>
  );
}

// SuspectList lists suspects with their scores in little space. Once a place in the first one is located, that one is
// not divided into time in it and to it: such parts read like other shares of the place.
export function SuspectList({ of: suspects, located }: { of: Suspect[]; located: boolean }) {
  const max = Math.max(...suspects.map((s) => s.score));
  if (max === 0) return <p className="suspects dim small">No service stands out</p>;
  return (
    <div className="suspects">
      <p className="dim small" title={scoreMeans}>
        {suspects.length === 1 ? "Suspect" : "Suspects, the most likely first"}, with the time and failures added
      </p>
      <ol className="plain">
        {suspects.map((s, i) => (
          <li key={s.service}>
            <span className="suspect">
              <Name>{s.service}</Name>
              <strong className="number">+{percent(s.score)}</strong>
            </span>
            <ScoreBar of={s} max={max} />
            {(i > 0 || !located) && <PartList of={s} />}
          </li>
        ))}
      </ol>
    </div>
  );
}

// suspectColumns are the columns of the parts in exports.
export const suspectColumns = [...parts.map((part) => part.name), "unexplained"];

export const suspectCells = (s: Suspect) => [...parts.map((part) => s.parts[part.key]), s.parts.rest];
