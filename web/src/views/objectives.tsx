// Objectives: whether requests meet them, what is left of their error budgets, and how fast they spend them.
import { useState } from "react";
import { Link } from "wouter";
import { type Schemas, client, unwrap } from "../api/client.ts";
import { useResource } from "../api/queries.ts";
import { coarseDuration, count, factor, keepUnits, milli, percent } from "../logic/format.ts";
import { budgetLeft, goal, objectiveState } from "../logic/objectives.ts";
import { Async, Empty } from "../components/async-state.tsx";
import { When, useTitle } from "../components/basics.tsx";
import { Dialog } from "../components/dialog.tsx";
import { Figure } from "../components/figure.tsx";
import { GatesPanel } from "../components/gates.tsx";
import { ObjectiveDialog } from "../components/objective-dialog.tsx";
import { Table } from "../components/table.tsx";

type Objective = Schemas["Objective"];

const windowName = (ns: number) => coarseDuration(ns / 1e6);

export default function Objectives() {
  useTitle("Objectives");
  const resource = useResource("objectives", (signal) => client.GET("/objectives", { signal }), true);
  const [editing, setEditing] = useState<Objective | "new">();
  const [deleting, setDeleting] = useState<Objective>();
  const items = resource.value?.items ?? [];
  const windows = items[0]?.windows.map((w) => windowName(w.window_ns)) ?? [];
  return (
    <>
      <div className="toolbar">
        <h1>Objectives</h1>
        <button type="button" onClick={() => setEditing("new")}>
          New objective …
        </button>
      </div>
      <Figure
        title="Error budgets"
        hint="At a burn rate of 1, the budget lasts exactly 30 days. An incident opens if the burn rate reaches 14.4 over both 5 minutes and an hour, or 6 over both 30 minutes and 6 hours."
        table={() => ({
          header: [
            "objective",
            "entry",
            "kind",
            "below (ms)",
            "budget (of 1)",
            "state",
            "budget left (of 1)",
            "requests",
            "missed",
            ...windows.map((w) => `burn rate, ${w}`),
            "incident",
          ],
          rows: items.map((x) => [
            x.name,
            x.entry,
            x.kind,
            milli(x.below_ns),
            x.budget,
            objectiveState(x),
            x.remaining,
            x.requests,
            x.missed,
            ...x.windows.map((w) => w.rate),
            x.incident ?? "",
          ]),
        })}
        tableOnly
      >
        <Async of={resource} what="objectives">
          {(list) =>
            list.items.length === 0 ? (
              <Empty title="No objectives">
                To set latency and error targets for requests, add them here, or list them under objectives in the
                configuration.
              </Empty>
            ) : (
              <Table
                label="Objectives"
                className="results"
                head={[
                  "Objective",
                  "State",
                  { text: "Budget", title: "Share of the 30-day error budget that is left" },
                  ...windows.map((w) => ({ text: w, number: true as const, title: `Burn rate of the last ${w}` })),
                ]}
              >
                {list.items.map((x) => (
                  <Row
                    key={x.id ?? `${x.entry} ${x.kind} ${x.below_ns}`}
                    of={x}
                    edit={() => setEditing(x)}
                    remove={() => setDeleting(x)}
                  />
                ))}
              </Table>
            )
          }
        </Async>
      </Figure>
      <GatesPanel />
      {editing && (
        <ObjectiveDialog
          {...(editing !== "new" && { of: editing })}
          close={() => setEditing(undefined)}
          changed={resource.reload}
        />
      )}
      {deleting && (
        <Dialog
          title="Delete the objective?"
          verb="Delete"
          close={() => setDeleting(undefined)}
          act={async () => {
            const path = { objective: deleting.id ?? 0 };
            await unwrap<unknown>(client.DELETE("/objectives/{objective}", { params: { path } }));
            resource.reload();
          }}
        >
          <p>
            <bdi>{deleting.name}</bdi> and its counts are lost.
          </p>
        </Dialog>
      )}
    </>
  );
}

function Row({ of: x, edit, remove }: { of: Objective; edit: () => void; remove: () => void }) {
  return (
    <tr>
      <td>
        <strong>
          <bdi>{x.name}</bdi>
        </strong>
        <div className="small">
          {x.name !== x.entry && (
            <>
              <span className="mono">
                <bdi>{x.entry}</bdi>
              </span>
              :{" "}
            </>
          )}
          {keepUnits(goal(x))}
        </div>
        <div className="small">
          {x.id ? (
            <>
              <span className="dim">by {x.by} </span>
              <button type="button" className="link" onClick={edit} aria-label={`Edit ${x.name}`}>
                Edit
              </button>{" "}
              <button type="button" className="link" onClick={remove} aria-label={`Delete ${x.name}`}>
                Delete
              </button>
            </>
          ) : (
            <span className="dim">set by the configuration</span>
          )}
        </div>
      </td>
      <td data-label="State">
        <span className={x.burning && !x.waived ? "bad" : undefined}>
          {x.replaced ? "without effect: the configuration limits these requests" : objectiveState(x)}
        </span>
        {x.burning && (
          <div className="small">
            since <When at={x.burning} />
          </div>
        )}
        {x.incident && (
          <div className="small">
            <Link href={`/incidents/${x.incident}`}>Incident</Link>
          </div>
        )}
      </td>
      <td data-label="Budget">
        {keepUnits(budgetLeft(x))}
        {x.from && (
          <div className="dim small">
            {count(x.missed)} of {count(x.requests)} requests missed since <When at={x.from} />
          </div>
        )}
      </td>
      {x.windows.map((w) => (
        <td
          key={w.window_ns}
          className={`number${w.rate >= w.alert ? " bad" : ""}`}
          title={`${percent(w.requests > 0 ? w.missed / w.requests : 0)} of ${count(w.requests)} requests missed; too high at ${factor(w.alert)} or more`}
        >
          {w.requests > 0 ? factor(w.rate) : "–"}
        </td>
      ))}
    </tr>
  );
}
