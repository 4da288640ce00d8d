// Traces: a search over the kept traces, and the same query for the tracing backends.
import { type FormEvent, useState } from "react";
import { Link, useLocation } from "wouter";
import { type Schemas, client } from "../api/client.ts";
import { useResource } from "../api/queries.ts";
import { count, duration, milli } from "../logic/format.ts";
import { type Fields, isTraceID, parametersOf, problemsOf, typeOf } from "../logic/trace-search.ts";
import { rangeParameters } from "../logic/range.ts";
import { Async, Empty } from "../components/async-state.tsx";
import { Bar, When, useTitle } from "../components/basics.tsx";
import { Choice, More } from "../components/controls.tsx";
import { Figure } from "../components/figure.tsx";
import { RangeSelect, useRange } from "../components/range.tsx";
import { Table } from "../components/table.tsx";
import { query, useEnum, useQuery } from "../url.ts";
import { Durations, Types } from "./kept-traces.tsx";
import { useServices } from "./services.tsx";

type List = Schemas["TraceList"];

const pageSize = 500; // the most that the service reads for a page
const fewTraces = 50; // listed at once

export default function Traces() {
  useTitle("Traces");
  const [trace, setTrace] = useQuery("trace");
  const [service, setService] = useQuery("service");
  const [operation, setOperation] = useQuery("operation");
  const [longer, setLonger] = useQuery("longer");
  const [shorter, setShorter] = useQuery("shorter");
  const [error, setError] = useEnum("error", ["", "yes", "no"]);
  const [attributes, setAttributes] = useQuery("attributes");
  const [type, setType] = useQuery("type");
  const [sort, setSort] = useEnum("sort", ["newest", "slowest"]);
  const [cursors, setCursors] = useState<string[]>([]); // of the pages after the first
  const [, go] = useLocation();
  const fields: Fields = { trace, service, operation, longer, shorter, error, attributes };
  const problems = problemsOf(fields);
  const [range, setRange] = useRange();
  const when = trace.trim() === "" ? rangeParameters(range) : {}; // an ID is looked up whatever the time
  const parameters = { ...parametersOf(fields), ...when, sort, limit: pageSize };
  const cursor = cursors.at(-1);
  const key = JSON.stringify([parameters, cursor]);
  const resource = useResource(problems.length > 0 ? null : `traces ${key}`, (signal) =>
    client.GET("/traces", { params: { query: { ...parameters, ...(cursor && { cursor }) } }, signal }),
  );
  const search = (next: Fields) => {
    if (isTraceID(next.trace)) return go(`/traces/${next.trace.trim().toLowerCase()}`);
    setCursors([]);
    setTrace(next.trace.trim());
    setService(next.service.trim());
    setOperation(next.operation.trim());
    setLonger(next.longer.trim());
    setShorter(next.shorter.trim());
    setError(next.error === "yes" || next.error === "no" ? next.error : "");
    setAttributes(next.attributes.trim());
    setType("");
  };
  return (
    <>
      <div className="toolbar">
        <h1>Traces</h1>
        <RangeSelect value={range} pick={(text) => (setCursors([]), setRange(text))} />
        <Choice
          label="Order"
          value={sort}
          pick={(value) => (setCursors([]), setSort(value))}
          of={[
            ["newest", "Newest"],
            ["slowest", "Slowest"],
          ]}
        />
      </div>
      <Form key={JSON.stringify(fields)} of={fields} search={search} />
      {problems.map((text) => (
        <p key={text} className="bad" role="alert">
          {text}
        </p>
      ))}
      {problems.length === 0 && (
        <Async of={resource} what="traces">
          {(list) => (
            <Results
              list={list}
              type={type}
              setType={setType}
              page={cursors.length}
              next={() => list.next_cursor && setCursors([...cursors, list.next_cursor])}
              back={() => setCursors(cursors.slice(0, -1))}
            />
          )}
        </Async>
      )}
    </>
  );
}

// Form edits a query, which search applies.
function Form({ of, search }: { of: Fields; search: (fields: Fields) => void }) {
  const [fields, setFields] = useState(of);
  const services = useServices().value?.items ?? [];
  const set = (name: keyof Fields) => (event: { target: { value: string } }) =>
    setFields({ ...fields, [name]: event.target.value });
  const submit = (event: FormEvent) => {
    event.preventDefault();
    search(fields);
  };
  const text = (name: keyof Fields, label: string, placeholder: string, list?: string) => (
    <label className="field">
      {label}
      <input value={fields[name]} onChange={set(name)} placeholder={placeholder} maxLength={256} list={list} />
    </label>
  );
  return (
    <form className="search-form" onSubmit={submit} aria-label="Search traces">
      {text("service", "Service", "any", "services")}
      <datalist id="services">
        {services.map((s) => (
          <option key={s.id} value={s.service} />
        ))}
      </datalist>
      {text("operation", "Operation", "any")}
      {text("longer", "Longer than", "250ms")}
      {text("shorter", "Shorter than", "2s")}
      {text("attributes", "Attributes", "key=value, key")}
      <label className="field">
        Status
        <select value={fields.error} onChange={(event) => search({ ...fields, error: event.target.value })}>
          <option value="">any</option>
          <option value="yes">error</option>
          <option value="no">no error</option>
        </select>
      </label>
      {text("trace", "Trace ID", "its first digits")}
      <div className="submit">
        <button type="submit" className="primary">
          Search
        </button>
        <button
          type="button"
          onClick={() =>
            search({ trace: "", service: "", operation: "", longer: "", shorter: "", error: "", attributes: "" })
          }
        >
          Clear
        </button>
      </div>
    </form>
  );
}

type ResultsProps = {
  list: List;
  type: string;
  setType: (type: string) => void;
  page: number;
  next: () => void;
  back: () => void;
};

function Results({ list, type, setType, page, next, back }: ResultsProps) {
  const [shown, setShown] = useEnum("list", ["first", "all"]);
  const found = list.items.filter((t) => type === "" || typeOf(t) === type);
  const listed = shown === "all" ? found : found.slice(0, fewTraces);
  const longest = Math.max(1, ...found.map((t) => t.duration_ns));
  const kept = (
    <Figure
      title="Kept traces"
      hint="Sibyl keeps the slowest, the fastest, failed and some typical requests of each group, and samples of problems and incidents."
      tools={
        list.links.length > 0 && (
          <span className="requests">
            <span className="dim">All traces:</span>
            {list.links.map((link) => (
              <a key={link.url} href={link.url} rel="noreferrer" target="_blank">
                Search in {link.name}
              </a>
            ))}
          </span>
        )
      }
      table={() => ({
        header: ["trace", "start", "service", "operation", "duration (ms)", "spans", "services", "errors", "kept as"],
        rows: found.map((t) => [
          t.id,
          t.start,
          t.service,
          t.operation,
          milli(t.duration_ns),
          t.spans,
          t.services,
          t.errors,
          t.strata.join(" "),
        ]),
      })}
      tableOnly
    >
      {found.length === 0 ? (
        <Empty title={list.kept === 0 ? "No traces kept in this time range" : "No matching traces"}>
          {list.kept > 0 && `Searched ${count(list.read)} of the ${count(list.kept)} kept traces. `}
          {list.links.length > 0
            ? "Your tracing backend has all traces: search there with the same query."
            : "Your tracing backend has all traces: set a search template in trace-url to open this query there."}
        </Empty>
      ) : (
        <Table
          label="Kept traces"
          className="results traces"
          head={[
            "Request",
            "Duration",
            { text: "Spans", number: true },
            { text: "Errors", number: true },
            "Kept as",
            "Start",
          ]}
        >
          {listed.map((t) => (
            <tr key={t.id}>
              <td>
                <Link href={`/traces/${t.id}${query({ span: t.span })}`}>
                  <bdi className="mono">
                    {t.service} {t.operation}
                  </bdi>
                </Link>{" "}
                <span className="dim small mono">{t.id.slice(0, 8)}</span>
              </td>
              <td className="bars">
                {duration(t.duration_ns)}
                <Bar of={t.duration_ns} max={longest} />
              </td>
              <td className="number" title={`${count(t.services)} services`}>
                {count(t.spans)}
              </td>
              <td className={t.errors > 0 ? "number bad" : "number"}>{t.errors > 0 ? `✕ ${count(t.errors)}` : "0"}</td>
              <td>{t.strata.join(", ")}</td>
              <td>
                <When at={t.start} />
              </td>
            </tr>
          ))}
        </Table>
      )}
      <More
        rest={found.length - fewTraces}
        shown={shown === "all"}
        toggle={() => setShown(shown === "all" ? "first" : "all")}
      />
      <p className="under">
        <span role="status">
          {count(found.length)} found{type !== "" && ` of ${type}`}, {count(list.read)} of {count(list.kept)} searched
          {page > 0 && `, page ${page + 1}`}
        </span>
        {page > 0 && (
          <button type="button" className="link" onClick={back}>
            Back
          </button>
        )}
        {list.next_cursor !== null && (
          <button type="button" className="link" onClick={next}>
            Search more
          </button>
        )}
      </p>
    </Figure>
  );
  return (
    <>
      {list.items.length > 0 && (
        <div className="columns">
          <Durations of={found} />
          <Types of={list.items} type={type} pick={setType} />
        </div>
      )}
      {kept}
    </>
  );
}
