import { useState } from "react";
import { serverNow } from "../api/clock.ts";
import { type Schemas, unwrap, client } from "../api/client.ts";
import { Select } from "../components/controls.tsx";
import { Dialog } from "../components/dialog.tsx";

export type Note = "acknowledge" | "mute";

const durations = [
  ["1", "an hour"],
  ["8", "8 hours"],
  ["24", "a day"],
  ["168", "a week"],
  ["719", "30 days"],
] as const;

const texts = {
  acknowledge: {
    set: { title: "Acknowledge this problem", verb: "Acknowledge" },
    withdraw: { title: "Withdraw the acknowledgement", verb: "Withdraw" },
  },
  mute: {
    set: { title: "Mute this problem", verb: "Mute" },
    withdraw: { title: "Unmute this problem", verb: "Unmute" },
  },
};

// NoteDialog acknowledges or mutes a problem for some time, or withdraws the note that existed when it opened. It does
// not switch between the two if others change the note meanwhile, but shows their note.
export function NoteDialog({
  problem,
  note,
  close,
  changed,
}: {
  problem: Schemas["Problem"];
  note: Note;
  close: () => void;
  changed: () => void;
}) {
  const now = note === "mute" ? problem.notes.muted : problem.notes.acknowledged;
  const [noted] = useState(now);
  const [hours, setHours] = useState("24");
  const [text, setText] = useState("");
  const params = { params: { path: { problem: problem.id } } };
  const act = async () => {
    if (noted) {
      await unwrap<unknown>(
        note === "mute"
          ? client.DELETE("/problems/{problem}/mute", params)
          : client.DELETE("/problems/{problem}/acknowledge", params),
      );
    } else {
      const body = { text, expires: new Date(serverNow() + Number(hours) * 3_600_000).toISOString() };
      await unwrap<unknown>(
        note === "mute"
          ? client.PUT("/problems/{problem}/mute", { ...params, body })
          : client.PUT("/problems/{problem}/acknowledge", { ...params, body }),
      );
    }
    changed();
  };
  const { title, verb } = texts[note][noted ? "withdraw" : "set"];
  return (
    <Dialog title={title} close={close} act={act} verb={verb}>
      <p className="dim">{problem.diagnosis}</p>
      {noted ? (
        <NoteText by={noted} />
      ) : (
        <>
          <p>
            {note === "mute"
              ? "It is hidden from the list until then; Sibyl keeps investigating it."
              : "Others see that you own it."}
          </p>
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
