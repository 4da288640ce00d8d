import * as Radix from "@radix-ui/react-dialog";
import { type FormEvent, type ReactNode, useState } from "react";
import { Failure } from "../api/client.ts";

// Dialog asks something; act does what was asked for, and while that fails the dialog stays and says why.
export function Dialog(props: { title: string; close: () => void; act?: () => Promise<unknown>; verb?: string; children: ReactNode; wide?: boolean }) {
  const [busy, setBusy] = useState(false);
  const [failure, setFailure] = useState("");
  const submit = async (event: FormEvent) => {
    event.preventDefault();
    if (!props.act) return props.close();
    setBusy(true);
    try {
      await props.act();
      props.close();
    } catch (error) {
      setFailure(error instanceof Failure ? error.detail : String(error));
    } finally {
      setBusy(false);
    }
  };
  return (
    <Radix.Root open onOpenChange={(open) => !open && props.close()}>
      <Radix.Portal>
        <Radix.Overlay className="overlay" />
        <Radix.Content className={props.wide ? "dialog wide" : "dialog"} aria-describedby={undefined}>
          <form onSubmit={submit}>
            <Radix.Title asChild>
              <h2>{props.title}</h2>
            </Radix.Title>
            {props.children}
            {failure && (
              <p className="bad" role="alert">
                {failure}
              </p>
            )}
            <footer>
              {props.act && (
                <Radix.Close asChild>
                  <button type="button">Cancel</button>
                </Radix.Close>
              )}
              <button type="submit" className="primary" disabled={busy}>
                {props.verb ?? "Close"}
              </button>
            </footer>
          </form>
        </Radix.Content>
      </Radix.Portal>
    </Radix.Root>
  );
}
