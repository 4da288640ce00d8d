// The words that are said of problems, tracepoints and agents, and what they mean.
import type { Schemas } from "../api/client.ts";
import { stateLabel } from "../lib/format.ts";

const glyphs: Record<string, string> = {
  none: "○",
  opened: "○",
  investigating: "◔",
  located: "◑",
  explained: "●",
  exhausted: "⊘",
  gone: "✓",
  on: "●",
  wanted: "◔",
  off: "○",
  baseline: "▪",
  forbidden: "⊘",
  current: "●",
  behind: "◔",
  lost: "⊘",
};

// State is a word with a shape: never colour alone. Pointing at it says what it means.
export function StateBadge({ of, title = definitions[of] }: { of: string; title?: string | undefined }) {
  return (
    <span className={`badge state-${of}`} title={title}>
      <span aria-hidden="true">{glyphs[of] ?? "○"}</span> {stateLabel(of)}
    </span>
  );
}

// Tags are what kind of problem it is, with what that means.
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
  shifted: "other paths",
};

// meanings says what the words of problems and tracepoints mean, for whom they are new.
export const definitions: Record<string, string> = {
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
