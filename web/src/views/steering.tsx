// Steering: people start or end the search for the cause of an incident or a problem.
import { useState } from "react";
import { client, type Schemas, unwrap } from "../api/client.ts";
import { When } from "../components/basics.tsx";
import { Dialog } from "../components/dialog.tsx";
import { showToast } from "../components/toast.tsx";

type SteeringProps = {
  subject: string; // ID of the incident or the problem, which must be open
  investigation: Schemas["Investigation"] | undefined;
  changed: () => void;
};

// verbs are what can be done, with an explanation.
const verbs = {
  start: [
    "Search now",
    "For an hour, Sibyl searches for this cause ahead of all others, within the budget. A search that is over begins anew.",
  ],
  end: ["End the search", "Its tracepoints are switched off, and it does not begin again for a day."],
} as const;

// Steering offers to end a search that is under way, to start another one, or to withdraw such a decision.
export function Steering({ subject, investigation: v, changed }: SteeringProps) {
  const [asking, setAsking] = useState(false);
  const [reason, setReason] = useState("");
  const path = { params: { path: { subject } } };
  const done = (text: string) => {
    showToast(text);
    changed();
  };
  if (v?.steering) {
    const { kind, by, until } = v.steering;
    const withdraw = async () => {
      await unwrap<unknown>(client.DELETE("/investigations/{subject}", path));
      done("Withdrawn: Sibyl decides again when the epoch ends.");
    };
    return (
      <span className="small">
        {kind === "end" ? "Ended" : "Started"} by {by || "a person"}, until <When at={until} />{" "}
        <button type="button" onClick={() => void withdraw()}>
          Withdraw
        </button>
      </span>
    );
  }
  const kind = v?.state === "opened" || v?.state === "investigating" ? "end" : "start";
  const [verb, explanation] = verbs[kind];
  const act = async () => {
    await unwrap<unknown>(client.PUT("/investigations/{subject}", { ...path, body: { kind, reason } }));
    done("It takes effect when the epoch ends.");
  };
  return (
    <>
      <button type="button" onClick={() => setAsking(true)}>
        {verb} …
      </button>
      {asking && (
        <Dialog title={`${verb}?`} verb={verb} close={() => setAsking(false)} act={act}>
          <p>{explanation}</p>
          <label className="field">
            Reason (visible to others)
            <input maxLength={1000} value={reason} onChange={(e) => setReason(e.target.value)} />
          </label>
        </Dialog>
      )}
    </>
  );
}
