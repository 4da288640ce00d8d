import type { Schemas } from "../api/client.ts";
import { wholes } from "./located.ts";
import { matters } from "./recovery.ts";
import { duration, percent, rate, share, stateLabel } from "./format.ts";

// markdown formats a problem for a ticket or a chat. Text from traces is escaped and stays on one line.
export function markdown(
  {
    problem: p,
    edges,
    located,
    explanations,
    contrasts,
    what_if: recoveries,
    common,
    decisions,
    next,
  }: Schemas["ProblemDetail"],
  url: string,
): string {
  return [
    `**${plain(p.diagnosis)}**`,
    "",
    `P50 ${duration(p.p50_ns)}, P99 ${duration(p.p99_ns)}, ${rate(p.rate)}, ${p.since ? `since ${p.since}` : "since when is unknown"}, ${stateLabel(p.state)}. ${plain(next)}`,
    "",
    ...(located ? [locatedText(located)] : []),
    ...edges.slice(0, 5).map((e) => `- ${plain(e.place.label)}: ${edgeShare(p, e)}`),
    ...explanations.slice(0, 3).map((x) => `- correlated: ${plain(x.text)} (${percent(x.effect.value)})`),
    ...contrasts.slice(0, 3).map((x) => `- slower than others: ${plain(x.text)}`),
    ...recoveries
      .filter(matters)
      .slice(0, 3)
      .map((x) => `- what if: ${plain(x.text)}`),
    ...common.slice(0, 3).map((x) => `- ${plain(x.text)}`),
    ...decisions.slice(0, 3).map((d) => `- ${d.at} ${plain(d.text)}`),
    "",
    url,
    "",
  ].join("\n");
}

// locatedText names a located place with its share.
const locatedText = (x: Schemas["LocatedPlace"]) =>
  `- located: ${plain(x.operation)} (${share(x.share.value)} ${wholes[x.of]})`;

// edgeShare returns the share of an edge that the diagnosis tells of the leading one.
const edgeShare = (p: Schemas["Problem"], e: Schemas["Edge"]) => `${share(e.score)} ${wholes[p.share_of]}`;

const plain = (text: string) => text.replaceAll(/\s*[\r\n]\s*/g, " ").replaceAll(/[\\`*_[\]<>#|~&@]/g, "\\$&");
