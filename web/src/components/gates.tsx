// GatesPanel: the size at which a change raises an incident, with a form and a preview.
import { useState } from "react";
import { Link } from "wouter";
import { ApiError, type Schemas, client, unwrap } from "../api/client.ts";
import { useResource } from "../api/queries.ts";
import { type Gate, gateValue, gatesRequest } from "../logic/gates.ts";
import { Async } from "./async-state.tsx";
import { Dialog } from "./dialog.tsx";
import { showToast } from "./toast.tsx";

const names: [Gate, string][] = [
  ["growth", "Growth of an operation (%)"],
  ["time_ns", "Time that each call loses (ms)"],
  ["lost_ns", "Time that all calls lose (ms/s)"],
  ["failing", "Failed calls of an operation (%)"],
  ["score", "Score of a service (%)"],
];

export function GatesPanel() {
  const [changing, setChanging] = useState(false);
  const resource = useResource("gates", (signal) => client.GET("/gates", { signal }), true);
  return (
    <section aria-labelledby="gates">
      <h2 id="gates">Gates</h2>
      <p className="hint">Smaller changes raise no incident.</p>
      <Async of={resource} what="the gates">
        {(gates) => (
          <>
            <ul className="plain">
              {names.map(([gate, text]) => (
                <li key={gate}>
                  {text}: {gateValue(gates, gate)}
                  {gates.configured.includes(gate) && <span className="dim">, set by the configuration</span>}
                  {gates.edited.includes(gate) && <span className="dim">, set by {gates.by}</span>}
                </li>
              ))}
            </ul>
            <button type="button" onClick={() => setChanging(true)}>
              Change gates …
            </button>
            {changing && <Form of={gates} close={() => setChanging(false)} changed={resource.reload} />}
          </>
        )}
      </Async>
    </section>
  );
}

function Form({ of, close, changed }: { of: Schemas["Gates"]; close: () => void; changed: () => void }) {
  const [values, setValues] = useState(
    () => Object.fromEntries(names.map(([gate]) => [gate, String(gateValue(of, gate))])) as Record<Gate, string>,
  );
  const [preview, setPreview] = useState<Schemas["GatesPreview"]>();
  const [failure, setFailure] = useState("");
  const body = gatesRequest(of, values);
  const act = async () => {
    await unwrap<unknown>(client.PUT("/gates", { body }));
    showToast("Saved.");
    changed();
  };
  const ask = async () => {
    try {
      setPreview(await unwrap<Schemas["GatesPreview"]>(client.POST("/gates/preview", { body })));
      setFailure("");
    } catch (error) {
      setFailure(error instanceof ApiError ? error.detail : String(error));
    }
  };
  const hidden = preview?.items.filter((x) => !x.opens) ?? [];
  return (
    <Dialog title="Gates" verb="Save" close={close} act={act} wide>
      {names.map(([gate, text]) => (
        <label className="field" key={gate}>
          {text}
          <input
            type="number"
            required
            min="0.001"
            step="any"
            disabled={of.configured.includes(gate)}
            value={values[gate]}
            onChange={(e) => (setValues({ ...values, [gate]: e.target.value }), setPreview(undefined))}
          />
        </label>
      ))}
      <button type="button" onClick={() => void ask()}>
        Preview
      </button>
      {failure && (
        <p className="bad" role="alert">
          {failure}
        </p>
      )}
      {preview && (
        <div role="status">
          <p>
            {hidden.length} of the {preview.items.length} kept incidents would not have opened
            {hidden.length > 0 ? ":" : "."}
          </p>
          <ul className="plain">
            {hidden.map((x) => (
              <li key={x.id}>
                <Link href={`/incidents/${x.id}`}>{x.sentence}</Link>
              </li>
            ))}
          </ul>
          {preview.lower.length > 0 && (
            <p>
              Lower gates may open more incidents. What stayed below the gates is not kept: play a recording with sibyl
              backtest.
            </p>
          )}
        </div>
      )}
    </Dialog>
  );
}
