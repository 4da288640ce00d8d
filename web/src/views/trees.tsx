// Trees: what requests call, one tree for each request type.
import { Link } from "wouter";
import { client } from "../api/client.ts";
import { useRead } from "../api/read.ts";
import { count } from "../compute/format.ts";
import { moveFocus, useKeys } from "../keys.ts";
import { useTitle } from "../parts/basics.tsx";
import { Search } from "../parts/controls.tsx";
import { Figure } from "../parts/figure.tsx";
import { Further, Listing } from "../parts/listing.tsx";
import { Empty, Read } from "../parts/reading.tsx";
import { useSought } from "../url.ts";

export default function Trees() {
  useTitle("Trees");
  const [q, setQ] = useSought();
  useKeys({ j: () => moveFocus("tbody a", 1), k: () => moveFocus("tbody a", -1) });
  const ask = { limit: 500, ...(q && { q }) };
  const reading = useRead(`trees ${q}`, (signal) => client.GET("/trees", { params: { query: ask }, signal }), true);
  return (
    <>
      <div className="toolbar">
        <h1>Calling-context trees</h1>
        <Search value={q} pick={setQ} label="Search request types ( / )" />
      </div>
      <Figure
        title="Request types"
        table={() => ({
          header: ["request type", "requests", "calling contexts", "tracepoints", "left out"],
          rows: (reading.value?.items ?? []).map((t) => [
            t.request_type_name,
            t.requests,
            t.nodes,
            t.tracepoints,
            t.dropped,
          ]),
        })}
        tableOnly
      >
        <Read of={reading} what="trees">
          {(list) =>
            list.items.length === 0 ? (
              <Empty title={q ? "No request type fits" : "No trees yet"}>
                {q
                  ? "Search for less of its name."
                  : "They grow with the requests that come: send traces, and look again after an epoch."}
              </Empty>
            ) : (
              <>
                <Listing
                  label="Trees"
                  head={[
                    "Request type",
                    { text: "Requests", number: true },
                    { text: "Calling contexts", number: true },
                    { text: "Tracepoints", number: true },
                    { text: "Left out", number: true, title: "Contexts beyond the bound" },
                  ]}
                >
                  {list.items.map((t) => (
                    <tr key={t.request_type}>
                      <td>
                        <Link href={`/trees/${t.request_type}`}>{t.request_type_name}</Link>
                      </td>
                      <td className="number">{count(t.requests)}</td>
                      <td className="number">{count(t.nodes)}</td>
                      <td className="number">{count(t.tracepoints)}</td>
                      <td className="number">{count(t.dropped)}</td>
                    </tr>
                  ))}
                </Listing>
                <Further list={list} how="Search to see them." />
              </>
            )
          }
        </Read>
      </Figure>
    </>
  );
}
