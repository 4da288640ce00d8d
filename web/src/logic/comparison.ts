import type { Schemas } from "../api/client.ts";
import { type Zone, count, duration, formatTimesIn } from "./format.ts";

// sides names the two sides of a comparison, each with its mean and its number of requests.
export function sides({ a, b }: Schemas["Comparison"], zone: Zone, now: number): string {
  const [first, second] = [a, b].map(
    ({ label, mean_ns, requests }) =>
      `${duration(mean_ns)} on average for ${formatTimesIn(label, zone, now)} (${count(requests)})`,
  );
  return `${first}, ${second!.replace(" on average", "")}`;
}
