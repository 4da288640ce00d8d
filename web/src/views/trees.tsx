// Trees: what requests call, one tree for each request type.
import { Link } from "wouter";
import { client } from "../api/client.ts";
import { useRead } from "../api/read.ts";
import { count } from "../compute/format.ts";
import { Empty, Read, Search, useTitle } from "../parts/basics.tsx";
import { useQuery } from "../url.ts";

export default function Trees() {
  useTitle("Trees");
  const [q, setQ] = useQuery("q");
  const ask = { limit: 500, ...(q && { q }) };
  const reading = useRead(`trees ${q}`, (signal) => client.GET("/trees", { params: { query: ask }, signal }), true);
  return (
    <>
      <div className="toolbar">
        <h1>Calling-context trees</h1>
        <Search value={q} pick={setQ} label="Search request types ( / )" />
      </div>
      <Read of={reading} what="trees">
        {(list) =>
          list.items.length === 0 ? (
            <Empty title={q ? "No request type fits" : "No trees yet"}>{q ? "Search for less of its name." : "They grow with the requests that come: send traces, and look again after an epoch."}</Empty>
          ) : (
            <div className="scroll" tabIndex={0} role="group" aria-label="Trees">
              <table>
                <thead>
                  <tr>
                    <th scope="col">Request type</th>
                    <th scope="col" className="number">Requests</th>
                    <th scope="col" className="number">Calling contexts</th>
                    <th scope="col" className="number">Tracepoints</th>
                    <th scope="col" className="number" title="Contexts beyond the bound">Left out</th>
                  </tr>
                </thead>
                <tbody>
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
                </tbody>
              </table>
            </div>
          )
        }
      </Read>
    </>
  );
}
