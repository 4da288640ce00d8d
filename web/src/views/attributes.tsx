// The attributes in which the two sides of a comparison differ, as the service tested them.
import type { Schemas } from "../api/client.ts";
import { count, duration, milli, percent, pValue, range, signed } from "../logic/format.ts";
import { More } from "../components/controls.tsx";
import { Figure } from "../components/figure.tsx";
import { Table } from "../components/table.tsx";
import { useEnum } from "../url.ts";
import { type ComparisonKind, sideNames } from "./comparison-table.tsx";

export const significant = 0.05; // p-value up to which a value is listed at once

type Props = { title: string; kind: ComparisonKind; of: Schemas["AttributeComparison"]; folded?: boolean };

// Attributes lists the values of attributes that one side has significantly more often than the other, and all others
// on demand.
export function Attributes({ title, kind, of, folded = false }: Props) {
  const { a, b, items } = of;
  const [shown, setShown] = useEnum("attributes", ["significant", "all"]);
  const [nameOfA, nameOfB] = sideNames[kind];
  const found = items.filter((x) => x.p_value <= significant);
  return (
    <Figure
      id="attributes"
      title={title}
      hint={
        items.length > 0 &&
        `From ${count(a)} and ${count(b)} sampled requests${others(of)}. Difference: mean duration with the value minus the mean duration without it. p: Fisher's exact test, corrected for the number of values (Holm).`
      }
      table={() => ({
        header: [
          "service",
          "context",
          "attribute",
          "value",
          `${nameOfA.toLowerCase()} (of 1)`,
          `${nameOfB.toLowerCase()} (of 1)`,
          "mean with it (ms)",
          "mean without it (ms)",
          "difference (ms)",
          "low (ms)",
          "high (ms)",
          "p",
        ],
        rows: items.map((x) => [
          x.service,
          x.where.join(" > "),
          x.key,
          x.value,
          x.a_share,
          x.b_share,
          milli(x.with_ns),
          milli(x.without_ns),
          milli(x.difference_ns.value),
          milli(x.difference_ns.low),
          milli(x.difference_ns.high),
          x.p_value,
        ]),
      })}
      tableOnly
      folded={folded}
    >
      {found.length === 0 && <p className="dim">{nothingFound(a, b, items.length)}</p>}
      {(found.length > 0 || shown === "all") && items.length > 0 && (
        <Table
          label="Attributes"
          className="attributes"
          head={[
            "Attribute",
            { text: nameOfA, number: true },
            { text: nameOfB, number: true },
            { text: "Difference", number: true, title: "Mean duration with the value minus mean duration without it" },
            { text: "p", number: true, title: "Probability of a difference at least as large by chance" },
          ]}
        >
          {(shown === "all" ? items : found).map((x, i) => (
            <tr key={i}>
              <td title={x.where.join(" → ")}>
                <div className="clamp" title={`${x.key} = ${x.value}`}>
                  {x.key} = <strong>{x.value}</strong>
                </div>
                <div className="small dim clamp" title={x.where.join(" → ")}>
                  at {x.where.at(-1) ?? x.service}
                </div>
              </td>
              <td className="number">{percent(x.a_share)}</td>
              <td className="number">{percent(x.b_share)}</td>
              <td className="number nowrap" title={range(x.difference_ns, duration)}>
                {signed(x.difference_ns.value)}
              </td>
              <td className="number nowrap">{pValue(x.p_value)}</td>
            </tr>
          ))}
        </Table>
      )}
      <More
        rest={items.length - found.length}
        what={`, not significant (p above ${significant})`}
        shown={shown === "all"}
        toggle={() => setShown(shown === "all" ? "significant" : "all")}
      />
    </Figure>
  );
}

// others says among how many requests all attributes were compared; the setting keys lists those of the others.
const others = ({ whole_a, whole_b }: Schemas["AttributeComparison"]) =>
  whole_a > 0 && whole_b > 0
    ? `; all attributes were compared for ${count(whole_a)} and ${count(whole_b)} of them, only those in the setting keys for the others`
    : "";

const fewRequests = 12; // below, the API compares no attributes

function nothingFound(a: number, b: number, compared: number): string {
  if (compared > 0) return "No attribute differs significantly.";
  if (a === 0 || b === 0 || a + b < fewRequests)
    return "Too few requests were sampled to compare attributes: each side needs at least five, and both together twelve.";
  return "The sampled requests do not differ in any attribute.";
}
