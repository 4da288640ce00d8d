// ServicesNow shows, on the first page, the services: those that need attention, then those that make other calls than
// before, then those with most calls.
import { useId } from "react";
import { Link } from "wouter";
import type { Schemas } from "../api/client.ts";
import { count } from "../logic/format.ts";
import type { Range } from "../logic/range.ts";
import { sortedBy, states, summary } from "../logic/services.ts";
import { Async } from "../components/async-state.tsx";
import { When } from "../components/basics.tsx";
import { ServiceRow, serviceColumns, useServices } from "./services.tsx";

const most = 10; // services

export default function ServicesNow({ range }: { range: Range }) {
  return (
    <Async of={useServices(range)} what="the services">
      {(list) => list.items.length > 0 && <Busiest list={list} />}
    </Async>
  );
}

function Busiest({ list }: { list: Schemas["ServiceList"] }) {
  const heading = useId();
  const busiest = sortedBy(
    list.items,
    (s) => s.now.rate,
    true,
    (s) => s.service,
  );
  const shown = sortedBy(
    busiest.map((s, at) => ({ s, at: `${s.changed_calls ? 0 : 1} ${String(at).padStart(4, "0")}` })),
    ({ s }) => states.indexOf(s.state),
    false,
    ({ at }) => at,
  ).slice(0, most);
  return (
    <section aria-labelledby={heading}>
      <h2 id={heading} className="section">
        Services
      </h2>
      <p className="under">
        <span>{summary(list.states)}</span>
        <span>
          in the ten minutes to <When at={list.to} />
          {list.items.some((s) => s.now_from) && ", of services of an incident since it began or ended"}
        </span>
        <span>· usual values in small print</span>
      </p>
      <table className="queue fleet" aria-labelledby={heading}>
        <thead>
          <tr>
            {serviceColumns.map(([name, , title, className]) => (
              <th key={name} scope="col" className={className} title={title}>
                {name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {shown.map(({ s }, at) => (
            <ServiceRow key={s.id} s={s} at={at} />
          ))}
        </tbody>
      </table>
      {list.items.length > shown.length && (
        <p className="under">
          <Link href="/services">All {count(list.items.length)} services</Link>
        </p>
      )}
    </section>
  );
}
