// Objectives: their goals, states and budgets, for people.
import type { Schemas } from "../api/client.ts";
import { duration, percent, ratio } from "./format.ts";

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
