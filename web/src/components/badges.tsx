// Badges for the states of problems, tracepoints and agents, with their definitions.
import type { Schemas } from "../api/client.ts";
import { stateLabel } from "../logic/format.ts";

const glyphs: Record<string, string> = {
  none: "○",
  opened: "○",
  investigating: "◔",
  located: "◑",
  explained: "●",
  exhausted: "⊘",
  gone: "✓",
  unlisted: "✓",
  joined: "⊂",
  open: "●",
  on: "●",
  pending: "◔",
  off: "○",
  baseline: "▪",
  forbidden: "⊘",
  current: "●",
  behind: "◔",
  lost: "⊘",
  incident: "▲",
  failing: "✕",
  silent: "⊘",
  slower: "◔",
  new: "○",
  well: "✓",
  idle: "○",
};

// StateBadge shows a state as a word with a glyph, never by colour alone. Its title is the definition.
export function StateBadge({ of, title = definitions[of] }: { of: string; title?: string | undefined }) {
  return (
    <span className={`badge state-${of}`} title={title}>
      <span aria-hidden="true">{glyphs[of] ?? "○"}</span> {stateLabel(of)}
    </span>
  );
}

const ends: Record<Schemas["IncidentEnd"]["reason"], string> = {
  recovered: "✓",
  accepted: "✓",
  stopped: "?",
  no_traces: "?",
  moved: "→",
  replaced: "→",
  merged: "⊂",
};

// ClosedBadge shows that an incident closed. Only one that is over has a check mark; the text of the end is beside it.
export function ClosedBadge({ of: end }: { of: Schemas["IncidentEnd"] }) {
  return (
    <span className={`badge end-${end.reason}`}>
      <span aria-hidden="true">{ends[end.reason]}</span> closed
    </span>
  );
}

const signs: Record<Schemas["Severity"], string> = { critical: "▲", major: "◆", minor: "●" };

const severities: Record<Schemas["Severity"], string> = {
  critical: "Requests took half as long again as usual, half of them failed, or an error budget burned fast",
  major: "Requests took a tenth longer, a quarter of a request type failed, or an objective was missed",
  minor: "Requests took less than a tenth longer than usual",
};

// SeverityBadge shows the severity of an incident as a word with a sign, never by colour alone. Its title is the reason
// or, if that is unknown, the definition.
export function SeverityBadge({ of, reason = severities[of] }: { of: Schemas["Severity"]; reason?: string }) {
  return (
    <span className={`severity severity-${of}`} title={reason}>
      <span aria-hidden="true">{signs[of]}</span> {of}
    </span>
  );
}

const incidentKinds: Record<Schemas["IncidentKind"], [label: string, definition: string]> = {
  slow: ["slow", "Requests take longer than in the hours before"],
  crept: ["slower for days", "Requests have become slower over hours or days, compared with one or four weeks ago"],
  failing: ["failing", "More requests fail, or get no answer"],
  silent: ["silent", "Requests have stopped that used to come steadily"],
  objective: ["objective", "Requests miss an objective, and no service stands out"],
};

// IncidentKindTag shows what requests suffer from in an incident.
export function IncidentKindTag({ of }: { of: Schemas["IncidentKind"] }) {
  const [label, definition] = incidentKinds[of];
  return (
    <span className="tag" title={definition}>
      {label}
    </span>
  );
}

// ProblemTags shows onset and kind of a problem.
export function ProblemTags({ onset, kind }: { onset: Schemas["Onset"]; kind: Schemas["Kind"] }) {
  return (
    <>
      <span className="tag" title={definitions[onset]}>
        {onset}
      </span>{" "}
      <span className="tag" title={definitions[kind]}>
        {kindLabels[kind]}
      </span>
    </>
  );
}

export const kindLabels: Record<Schemas["Kind"], string> = {
  variable: "variable",
  slow: "slow",
  shifted: "call flow",
};

// definitions explain states, onsets and kinds.
export const definitions: Record<string, string> = {
  changed: "These requests used to perform better",
  chronic: "These requests have been like this for as long as Sibyl has seen them",
  variable: "Some of these requests take far longer than others",
  slow: "These requests take longer on average than expected",
  shifted: "These requests changed their call flow, or started to fail",
  none: "Waiting: worse problems are investigated first",
  joined: "Part of an incident, which is investigated as a whole",
  opened: "Just detected; the search starts with the next epoch",
  investigating: "Tracepoints are being switched on and off to find the cause",
  located: "The location is known; no tracepoint below it is left to try",
  explained: "The location is known, and so is the reason: what its threads wait for, or attributes that correlate",
  exhausted: "Every available tracepoint was tried; no location is certain",
  open: "Requests are still slower, or fail more often, than usual",
  gone: "The search ended with its problem or incident",
  unlisted: "It has closed, or a filter now hides it",
  on: "On now",
  pending: "Requested; no agent has confirmed it yet",
  off: "Off",
  baseline: "Always on",
  forbidden: "An override forbids switching it on",
  current: "Runs the current plan",
  behind: "Has not applied the latest plan yet",
  lost: "Not heard from recently",
  incident: "The first suspect of an open incident",
  failing: "Clearly more calls fail than usual",
  silent: "Calls stopped, or its spans answer far fewer of them than usual",
  slower: "The median duration, or the mean own time, is clearly longer than usual",
  new: "There is no history to compare with yet",
  well: "Rate, errors and durations are as usual",
  idle: "Not judged: no calls in the last minutes, or too few",
};
