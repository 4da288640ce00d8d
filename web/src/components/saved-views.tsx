// Saved views: names for addresses of the UI, which the service stores for all people.
import { useState } from "react";
import { useLocation } from "wouter";
import { type Schemas, base, client, unwrap } from "../api/client.ts";
import { useResource } from "../api/queries.ts";
import { time } from "../logic/format.ts";
import { useNow, useZone } from "../settings.ts";
import { Dialog } from "./dialog.tsx";
import { Menu } from "./menu.tsx";
import { showToast } from "./toast.tsx";

const longest = 128; // characters of a name

// here returns the address of the current view, below the base path.
const here = () => location.pathname.slice(base.length) + location.search;

export function SavedViews() {
  const { value, reload } = useResource("saved views", (signal) => client.GET("/views", { signal }), true);
  const [, go] = useLocation();
  const [dialog, setDialog] = useState<"save" | "delete">();
  const views = value?.items ?? [];
  const close = () => setDialog(undefined);
  return (
    <>
      <Menu
        label="Saved views"
        icon="★"
        items={[
          ...views.map((v) => ({ text: v.name, act: () => go(v.path) })),
          ...(views.length > 0 ? [null] : []),
          { text: "Save this view …", act: () => setDialog("save") },
          ...(views.length > 0 ? [{ text: "Delete saved views …", act: () => setDialog("delete") }] : []),
        ]}
      />
      {dialog === "save" && <Save existing={views} close={close} changed={reload} />}
      {dialog === "delete" && <Delete of={views} close={close} changed={reload} />}
    </>
  );
}

type Props = { close: () => void; changed: () => void };

function Save({ existing, close, changed }: Props & { existing: Schemas["View"][] }) {
  const [name, setName] = useState(() => document.title.replace(/ · Sibyl$/, "").slice(0, longest));
  const [path] = useState(here);
  const act = async () => {
    await unwrap(client.POST("/views", { body: { name, path } }));
    showToast("Saved for everybody: ★ lists it.");
    changed();
  };
  return (
    <Dialog title="Save this view" verb="Save" close={close} act={act}>
      <p className="dim">The view with its filters, selection and time range.</p>
      <label className="field">
        Name (visible to others)
        <input required maxLength={longest} value={name} onChange={(e) => setName(e.target.value)} />
      </label>
      {existing.some((v) => v.name === name.trim()) && <p role="status">It replaces the saved view of this name.</p>}
    </Dialog>
  );
}

function Delete({ of: views, close, changed }: Props & { of: Schemas["View"][] }) {
  const [chosen, setChosen] = useState<ReadonlySet<number>>(new Set());
  const [zone] = useZone();
  const now = useNow();
  const act = async () => {
    for (const view of chosen) await unwrap<unknown>(client.DELETE("/views/{view}", { params: { path: { view } } }));
    changed();
  };
  const toggle = (id: number, yes: boolean) => {
    const next = new Set(chosen);
    next.delete(id);
    setChosen(yes ? next.add(id) : next);
  };
  return (
    <Dialog title="Delete saved views" verb="Delete" close={close} act={act}>
      <ul className="plain">
        {views.map((v) => (
          <li key={v.id}>
            <label>
              <input type="checkbox" checked={chosen.has(v.id)} onChange={(e) => toggle(v.id, e.target.checked)} />{" "}
              <bdi>{v.name}</bdi>{" "}
              <span className="dim small">
                saved by <bdi>{v.by}</bdi>, {time(v.at, zone, now)}
              </span>
            </label>
          </li>
        ))}
      </ul>
    </Dialog>
  );
}
