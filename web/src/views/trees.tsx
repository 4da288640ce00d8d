// Trees: one calling-context tree for each request type.
import { Link } from "wouter";
import { client } from "../api/client.ts";
import { useResource } from "../api/queries.ts";
import { count } from "../logic/format.ts";
import { moveFocus, useKeys } from "../use-keys.ts";
import { useTitle } from "../components/basics.tsx";
import { Search } from "../components/controls.tsx";
import { Figure } from "../components/figure.tsx";
import { TruncationNote, Table } from "../components/table.tsx";
import { Empty, Async } from "../components/async-state.tsx";
import { useSearchText } from "../url.ts";

export default function Trees() {
  useTitle("Trees");
  const [q, setQ] = useSearchText();
  useKeys({ j: () => moveFocus("tbody a", 1), k: () => moveFocus("tbody a", -1) });
  const query = { limit: 500, ...(q && { q }) };
  const resource = useResource(`trees ${q}`, (signal) => client.GET("/trees", { params: { query }, signal }), true);
  return (
    <>
      <div className="toolbar">
        <h1>Calling-context trees</h1>
        <Search value={q} pick={setQ} label="Search request types ( / )" />
      </div>
      <Figure
        title="Request types"
        table={() => ({
          header: ["request type", "requests", "calling contexts", "tracepoints", "dropped"],
          rows: (resource.value?.items ?? []).map((t) => [
            t.request_type_name,
            t.requests,
            t.nodes,
            t.tracepoints,
            t.dropped,
          ]),
        })}
        tableOnly
      >
        <Async of={resource} what="trees">
          {(list) =>
            list.items.length === 0 ? (
              <Empty title={q ? "No matching request types" : "No trees yet"}>
                {q
                  ? "Try a shorter search."
                  : "Trees grow as requests arrive: send traces, and check again after an epoch."}
              </Empty>
            ) : (
              <>
                <Table
                  label="Trees"
                  className="trees"
                  head={[
                    "Request type",
                    { text: "Requests", number: true },
                    { text: "Calling contexts", number: true },
                    { text: "Tracepoints", number: true },
                    { text: "Dropped", number: true, title: "Contexts beyond the limit" },
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
                </Table>
                <TruncationNote list={list} how="Search to see them." />
              </>
            )
          }
        </Async>
      </Figure>
    </>
  );
}
