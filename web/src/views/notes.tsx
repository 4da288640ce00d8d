import { useState } from "react";
import { Link } from "wouter";
import { serverNow } from "../api/clock.ts";
import { type Schemas, unwrap, client } from "../api/client.ts";
import { Select } from "../components/controls.tsx";
import { Dialog } from "../components/dialog.tsx";
import { ago } from "../logic/format.ts";
import { useNow } from "../settings.ts";
import { useEnum } from "../url.ts";
import { useKeys } from "../use-keys.ts";

export type Note = "acknowledge" | "mute";

const durations = [
  ["1", "an hour"],
  ["8", "8 hours"],
  ["24", "a day"],
  ["168", "a week"],
  ["719", "30 days"],
] as const;

// Subject is a problem or an incident with its notes. text describes it.
export type Subject = { kind: "problem" | "incident"; id: string; text: string; notes: Schemas["Notes"] };

export const problemSubject = (p: Schemas["Problem"]): Subject => ({
  kind: "problem",
  id: p.id,
  text: p.diagnosis,
  notes: p.notes,
});

export const incidentSubject = (x: Schemas["Incident"]): Subject => ({
  kind: "incident",
  id: x.id,
  text: x.sentence,
  notes: x.notes,
});

const texts = {
  acknowledge: {
    set: { title: "Acknowledge this", verb: "Acknowledge" },
    withdraw: { title: "Withdraw the acknowledgement of this", verb: "Withdraw" },
  },
  mute: {
    set: { title: "Mute this", verb: "Mute" },
    withdraw: { title: "Unmute this", verb: "Unmute" },
  },
};

const mutedMeans = {
  problem: "It is hidden from the list until then; Sibyl keeps investigating it.",
  incident: "It is hidden from the list until then, and webhooks are not called; Sibyl keeps following it.",
};

type Body = Schemas["NoteRequest"];

// requests set and withdraw the notes of problems and incidents.
const requests = {
  problem: (problem: string) => {
    const params = { path: { problem } };
    return {
      acknowledge: (body: Body) => client.PUT("/problems/{problem}/acknowledge", { params, body }),
      mute: (body: Body) => client.PUT("/problems/{problem}/mute", { params, body }),
      unacknowledge: () => client.DELETE("/problems/{problem}/acknowledge", { params }),
      unmute: () => client.DELETE("/problems/{problem}/mute", { params }),
    };
  },
  incident: (incident: string) => {
    const params = { path: { incident } };
    return {
      acknowledge: (body: Body) => client.PUT("/incidents/{incident}/acknowledge", { params, body }),
      mute: (body: Body) => client.PUT("/incidents/{incident}/mute", { params, body }),
      unacknowledge: () => client.DELETE("/incidents/{incident}/acknowledge", { params }),
      unmute: () => client.DELETE("/incidents/{incident}/mute", { params }),
    };
  },
};

// NoteDialog acknowledges or mutes a problem or an incident for some time, or withdraws the note that existed when it
// opened. It does not switch between the two if others change the note meanwhile, but shows their note.
export function NoteDialog({
  subject,
  note,
  close,
  changed,
}: {
  subject: Subject;
  note: Note;
  close: () => void;
  changed: () => void;
}) {
  const now = note === "mute" ? subject.notes.muted : subject.notes.acknowledged;
  const [noted] = useState(now);
  const [hours, setHours] = useState("24");
  const [text, setText] = useState("");
  const act = async () => {
    const request = requests[subject.kind](subject.id);
    const withdraw = note === "mute" ? request.unmute : request.unacknowledge;
    const expires = new Date(serverNow() + Number(hours) * 3_600_000).toISOString();
    await unwrap<unknown>(noted ? withdraw() : request[note]({ text, expires }));
    changed();
  };
  const { title, verb } = texts[note][noted ? "withdraw" : "set"];
  return (
    <Dialog title={`${title} ${subject.kind}`} close={close} act={act} verb={verb}>
      <p className="dim">{subject.text}</p>
      {noted ? (
        <NoteText by={noted} />
      ) : (
        <>
          <p>{note === "mute" ? mutedMeans[subject.kind] : "Others see that you own it."}</p>
          <Select label="For" value={hours} pick={setHours} of={durations} />
          <label className="field">
            Reason (visible to others)
            <input maxLength={1024} value={text} onChange={(e) => setText(e.target.value)} />
          </label>
        </>
      )}
      {now?.at !== noted?.at && (
        <div className="notice" role="status">
          <strong>{now ? "In the meantime:" : "It has been withdrawn or has expired in the meantime."}</strong>{" "}
          {now && <NoteText by={now} />}
        </div>
      )}
    </Dialog>
  );
}

// NoteTags shows who acknowledged or muted something.
export function NoteTags({ of: { acknowledged, muted } }: { of: Schemas["Notes"] }) {
  const now = useNow();
  return (
    <>
      {acknowledged && <span className="tag noted">✓ acknowledged by {acknowledged.by}</span>}
      {muted && (
        <span className="tag noted">
          muted by {muted.by}
          {muted.expires && `, ends ${ago(muted.expires, now)}`}
        </span>
      )}
    </>
  );
}

// SilencedTag shows which silence covers an incident.
export function SilencedTag({ of: { by, until } }: { of: Schemas["Silenced"] }) {
  const now = useNow();
  return (
    <Link className="tag noted" href="/silences" title="Nobody is notified of this incident.">
      silenced by {by}, ends {ago(until, now)}
    </Link>
  );
}

// dialogs are the values of the parameter with which a link, as in a notification, opens a dialog.
export const dialogs = ["", "acknowledge", "mute", "accept"] as const;

// NoteButtons opens the dialogs that change the notes of a subject. It is a component of its own so that opening a
// dialog renders nothing else. A link opens no dialog to withdraw a note: somebody else was faster.
export function NoteButtons({ of: subject, changed }: { of: Subject; changed: () => void }) {
  const [linked, setLinked] = useEnum("dialog", dialogs);
  const [note, setNote] = useState<Note | undefined>(() => {
    if (linked === "acknowledge" && !subject.notes.acknowledged) return linked;
    return linked === "mute" && !subject.notes.muted ? linked : undefined;
  });
  const close = () => {
    setNote(undefined);
    if (linked) setLinked("");
  };
  useKeys({ a: () => setNote("acknowledge"), m: () => setNote("mute") });
  const { acknowledged, muted } = subject.notes;
  return (
    <>
      <button type="button" onClick={() => setNote("acknowledge")}>
        {acknowledged ? `✓ acknowledged by ${acknowledged.by}` : "Acknowledge"}
      </button>
      <button type="button" onClick={() => setNote("mute")}>
        {muted ? `Muted by ${muted.by}` : "Mute …"}
      </button>
      {note && <NoteDialog subject={subject} note={note} close={close} changed={changed} />}
    </>
  );
}

const NoteText = ({ by }: { by: Schemas["Note"] }) => (
  <p>
    <bdi>{by.by}</bdi> noted
    {by.text && (
      <>
        : “<bdi>{by.text}</bdi>”
      </>
    )}
    .
  </p>
);
