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

// Noting asks what to note about a problem, and until when; or whether to take back what was noted when it was opened. It stays what it is while
// others note something: whoever is about to press its button has read it.
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
  const verb = note === "mute" ? (noted ? "Unmute" : "Mute") : noted ? "Take back" : "Acknowledge";
  return (
    <Dialog
      title={
        note === "mute"
          ? noted
            ? "Show this problem again"
            : "Mute this problem"
          : noted
            ? "Nobody looks after it any more"
            : "Acknowledge this problem"
      }
      close={close}
      act={act}
      verb={verb}
    >
      <p className="dim">{problem.diagnosis}</p>
      {noted ? (
        <NoteText by={noted} />
      ) : (
        <>
          <p>
            {note === "mute"
              ? "It is left out of the list until then; Sibyl goes on with it."
              : "Others see that somebody looks after it."}
          </p>
          <Select label="For" value={hours} pick={setHours} of={durations} />
          <label className="field">
            Why (others see it)
            <input maxLength={1024} value={text} onChange={(e) => setText(e.target.value)} />
          </label>
        </>
      )}
      {now?.at !== noted?.at && (
        <div className="notice" role="status">
          <strong>{now ? "Meanwhile:" : "It was taken back meanwhile, or ended."}</strong>{" "}
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
