// The control of the time range that all views share. It is in the URL; views opened without one continue with the last.
import { useEffect, useMemo, useState } from "react";
import { type Range, fieldTime, formatRange, parseRange, presets, readField } from "../logic/range.ts";
import { useNow, useZone } from "../settings.ts";
import { useQuery } from "../url.ts";
import { Dialog } from "./dialog.tsx";
import { Select } from "./controls.tsx";
import { time } from "../logic/format.ts";

const fallback = presets[0][0];
let last: string = fallback; // of this tab

// useRange returns the time range and its setter.
export function useRange(): [Range, (text: string) => void] {
  const [text, setText] = useQuery("range", "");
  const now = useNow();
  useEffect(() => {
    if (text === "" && last !== fallback)
      setText(last); // the view was opened by a link without a range
    else if (text !== "") last = text;
  }, [text, setText]);
  const set = (next: string) => {
    last = next;
    setText(next === fallback ? "" : next);
  };
  const minute = Math.floor(now / 60_000); // a live range moves once a minute
  const range = useMemo(() => parseRange(text, minute * 60_000), [text, minute]);
  return [range, set];
}

export function RangeSelect({ value: r, pick }: { value: Range; pick: (text: string) => void }) {
  const [asking, setAsking] = useState(false);
  const [zone] = useZone();
  const now = useNow();
  const fixed = r.live ? [] : [[r.text, `${time(r.from, zone, now)} – ${time(r.to, zone, now)}`] as const];
  return (
    <>
      <Select
        label="Time"
        value={r.text}
        pick={(text) => (text === "custom" ? setAsking(true) : pick(text))}
        of={[...presets.map(([name, words]) => [name, words] as const), ...fixed, ["custom", "Other …"]]}
      />
      {asking && <Custom of={r} pick={pick} close={() => setAsking(false)} />}
    </>
  );
}

function Custom({ of: r, pick, close }: { of: Range; pick: (text: string) => void; close: () => void }) {
  const [zone] = useZone();
  const utc = zone === "utc";
  const [from, setFrom] = useState(fieldTime(r.from, utc));
  const [to, setTo] = useState(fieldTime(r.to, utc));
  const [first, end] = [readField(from, utc), readField(to, utc)];
  const valid = first < end;
  const act = () => Promise.resolve(pick(formatRange(first, end)));
  return (
    <Dialog title="Time range" verb={valid ? "Show" : "Close"} close={close} {...(valid && { act })}>
      <label className="field">
        From{utc && " (UTC)"}
        <input type="datetime-local" value={from} onChange={(e) => setFrom(e.target.value)} />
      </label>
      <label className="field">
        To{utc && " (UTC)"}
        <input type="datetime-local" value={to} onChange={(e) => setTo(e.target.value)} />
      </label>
      {!valid && (
        <p className="bad" role="alert">
          The range must end after it starts.
        </p>
      )}
    </Dialog>
  );
}
