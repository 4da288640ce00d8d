// Comments on an incident.
import { type FormEvent, useState } from "react";
import { ApiError, type Schemas, client, unwrap } from "../api/client.ts";
import { When } from "../components/basics.tsx";
import { Dialog } from "../components/dialog.tsx";
import { Figure } from "../components/figure.tsx";

type Comment = Schemas["Comment"];

const longest = 4096; // characters that the service takes

export function Comments({ of: { incident, comments }, changed }: Props) {
  const [deleting, setDeleting] = useState<Comment>();
  return (
    <Figure
      id="comments"
      title="Comments"
      table={() => ({ header: ["at", "by", "text"], rows: comments.map((c) => [c.at, c.by, c.text]) })}
      tableOnly
    >
      <ol className="comments">
        {comments.map((c) => (
          <li key={c.id}>
            <p className="dim small">
              <bdi>{c.by}</bdi>, <When at={c.at} />
              {c.helped && <b> · this helped</b>}
              <button type="button" className="link" onClick={() => setDeleting(c)} aria-label={`Delete: ${c.text}`}>
                Delete
              </button>
            </p>
            <p className="comment">
              <bdi>{c.text}</bdi>
            </p>
          </li>
        ))}
      </ol>
      {incident.closed && !comments.some((c) => c.helped) && (
        <NewComment incident={incident.id} changed={changed} helped />
      )}
      <NewComment incident={incident.id} changed={changed} />
      {deleting && (
        <Dialog
          title="Delete this comment?"
          verb="Delete"
          close={() => setDeleting(undefined)}
          act={async () => {
            await unwrap<unknown>(
              client.DELETE("/incidents/{incident}/comments/{comment}", {
                params: { path: { incident: incident.id, comment: deleting.id } },
              }),
            );
            changed();
          }}
        >
          <p className="comment">
            <bdi>{deleting.text}</bdi>
          </p>
        </Dialog>
      )}
    </Figure>
  );
}

type Props = { of: Schemas["IncidentDetail"]; changed: () => void };

// NewComment keeps its text if it cannot be stored. With `helped` it asks, in one line, what ended the incident.
function NewComment({
  incident,
  changed,
  helped = false,
}: {
  incident: string;
  changed: () => void;
  helped?: boolean;
}) {
  const [text, setText] = useState("");
  const [busy, setBusy] = useState(false);
  const [failure, setFailure] = useState("");
  const add = async (event: FormEvent) => {
    event.preventDefault();
    if (text.trim() === "") return;
    setBusy(true);
    setFailure("");
    try {
      await unwrap(
        client.POST("/incidents/{incident}/comments", { params: { path: { incident } }, body: { text, helped } }),
      );
      setText("");
      changed();
    } catch (error) {
      setFailure(error instanceof ApiError ? error.detail : String(error));
    } finally {
      setBusy(false);
    }
  };
  return (
    <form className="new-comment" onSubmit={(event) => void add(event)}>
      {helped ? (
        <input
          aria-label="What helped?"
          placeholder="What helped? The next incident of this service will show it."
          maxLength={longest}
          value={text}
          onChange={(e) => setText(e.target.value)}
        />
      ) : (
        <textarea
          aria-label="New comment"
          placeholder="What you found, what you did …"
          rows={2}
          maxLength={longest}
          value={text}
          onChange={(e) => setText(e.target.value)}
        />
      )}
      <button type="submit" disabled={busy || text.trim() === ""}>
        {helped ? "This helped" : "Comment"}
      </button>
      {failure && (
        <p className="bad" role="alert">
          {failure}
        </p>
      )}
    </form>
  );
}
