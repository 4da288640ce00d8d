// Objectives: their goals, states and budgets, for people.
import type { Schemas } from "../api/client.ts";
import { coarseDuration, duration, percent, ratio } from "./format.ts";

type Objective = Schemas["Objective"];

// exact formats a percentage with the digits that it was configured with.
const exact = (x: number) => `${Number(x.toPrecision(6))} %`;

// goal describes what an objective demands.
export const goal = ({ below_ns: below, percentile, budget }: Objective): string =>
  below === undefined ? `at most ${exact(100 * budget)} fail` : `${exact(percentile ?? 0)} below ${duration(below)}`;

// objectiveState says whether requests meet an objective.
export function objectiveState({ requests, burning, waived, remaining }: Objective): string {
  if (requests === 0) return "no requests yet";
  if (burning === null) return remaining < 0 ? "missed" : "met";
  return waived ? "burns, accepted" : "burns";
}

// budgetLeft describes the part of the budget that is left.
export const budgetLeft = ({ requests, remaining }: Objective): string => {
  if (requests === 0) return "–";
  return remaining < 0 ? `spent ${ratio(1 - remaining)} times` : `${percent(remaining)} left`;
};

// previewSpan describes the time between two instants.
export const previewSpan = (from: string, to: string): string => coarseDuration(Date.parse(to) - Date.parse(from));

// previewSummary says what an objective would have done in the kept past, and how much of it is missing.
export function previewSummary({ from, to, lacks_ns: lacks, burned }: Schemas["ObjectivePreview"]): string {
  if (from === null) return "No requests of this entry are kept: check its spelling, or wait until some arrive.";
  const joined = burned.filter((x) => x.incident).length;
  const opened = burned.length - joined;
  const did = [
    opened > 0 && `opened ${opened} ${opened === 1 ? "incident" : "incidents"}`,
    joined > 0 && `joined ${joined} that ${joined === 1 ? "was" : "were"} open`,
  ].filter(Boolean);
  const said = `In the past ${previewSpan(from, to)} it would have ${did.join(" and ") || "opened no incident"}.`;
  return lacks > 0 ? `${said} All its windows can be judged in ${coarseDuration(lacks / 1e6)}.` : said;
}
