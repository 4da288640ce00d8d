// ObjectiveDialog: a form for an objective, with a preview of what it would have done.
import { useState } from "react";
import { Link } from "wouter";
import { ApiError, type Schemas, client, unwrap } from "../api/client.ts";
import { previewSpan, previewSummary } from "../logic/objectives.ts";
import { When } from "./basics.tsx";
import { Select } from "./controls.tsx";
import { Dialog } from "./dialog.tsx";
import { showToast } from "./toast.tsx";

type Objective = Schemas["Objective"];
type Request = Schemas["ObjectiveRequest"];

type Props = { of?: Objective; close: () => void; changed: () => void };

// ObjectiveDialog changes an objective or, without one, adds one.
export function ObjectiveDialog({ of, close, changed }: Props) {
  const [entry, setEntry] = useState(of?.entry ?? "");
  const [name, setName] = useState(of && of.name !== of.entry ? of.name : "");
  const [kind, setKind] = useState<string>(of?.kind ?? "latency");
  const [percentile, setPercentile] = useState(String(of?.percentile ?? 99));
  const [below, setBelow] = useState(String((of?.below_ns ?? 3e8) / 1e6));
  const [errors, setErrors] = useState(of?.kind === "errors" ? String(+(100 * of.budget).toPrecision(6)) : "0.1");
  const body: Request = {
    entry,
    ...(name && { name }),
    ...(kind === "latency"
      ? { percentile: Number(percentile), below_ns: Math.round(Number(below) * 1e6) }
      : { errors: Number(errors) / 100 }),
  };
  const act = async () => {
    await unwrap<unknown>(
      of?.id
        ? client.PUT("/objectives/{objective}", { params: { path: { objective: of.id } }, body })
        : client.POST("/objectives", { body }),
    );
    showToast("Saved.");
    changed();
  };
  return (
    <Dialog title={of ? "Objective" : "New objective"} verb="Save" close={close} act={act} wide>
      <label className="field">
        Entry: a service and an operation, or a service
        <input
          required
          maxLength={4096}
          placeholder="shop GET /cart"
          value={entry}
          onChange={(e) => setEntry(e.target.value)}
        />
      </label>
      <label className="field">
        Name (optional)
        <input maxLength={256} value={name} onChange={(e) => setName(e.target.value)} />
      </label>
      <Select
        label="Requests must"
        value={kind}
        pick={setKind}
        of={[
          ["latency", "be fast"],
          ["errors", "not fail"],
        ]}
      />
      {kind === "latency" ? (
        <>
          <label className="field">
            Percent of the requests
            <input
              type="number"
              required
              min="50"
              max="99.999"
              step="any"
              value={percentile}
              onChange={(e) => setPercentile(e.target.value)}
            />
          </label>
          <label className="field">
            must take less than (ms)
            <input
              type="number"
              required
              min="0.001"
              max="86400000"
              step="any"
              value={below}
              onChange={(e) => setBelow(e.target.value)}
            />
          </label>
        </>
      ) : (
        <label className="field">
          Percent that may fail
          <input
            type="number"
            required
            min="0.001"
            max="50"
            step="any"
            value={errors}
            onChange={(e) => setErrors(e.target.value)}
          />
        </label>
      )}
      <Preview key={JSON.stringify(body)} of={body} />
    </Dialog>
  );
}

// Preview asks, on request, when an objective would have burned.
function Preview({ of }: { of: Request }) {
  const [value, setValue] = useState<Schemas["ObjectivePreview"]>();
  const [failure, setFailure] = useState("");
  const ask = async () => {
    try {
      setValue(await unwrap<Schemas["ObjectivePreview"]>(client.POST("/objectives/preview", { body: of })));
      setFailure("");
    } catch (error) {
      setFailure(error instanceof ApiError ? error.detail : String(error));
    }
  };
  return (
    <>
      <button type="button" onClick={() => void ask()} disabled={of.entry === ""}>
        Preview
      </button>
      {failure && (
        <p className="bad" role="alert">
          {failure}
        </p>
      )}
      {value && (
        <div role="status">
          <p>{previewSummary(value)}</p>
          <ul className="plain">
            {value.burned.map((x) => (
              <li key={x.from}>
                <When at={x.from} />
                {x.until ? `, for ${previewSpan(x.from, x.until)}` : ", until now"}
                {x.incident && (
                  <>
                    ; joins this <Link href={`/incidents/${x.incident}`}>incident</Link>
                  </>
                )}
              </li>
            ))}
          </ul>
        </div>
      )}
    </>
  );
}
