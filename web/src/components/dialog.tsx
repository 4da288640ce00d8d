import * as Radix from "@radix-ui/react-dialog";
import { type FormEvent, type ReactNode, useState } from "react";
import { ApiError } from "../api/client.ts";

// opener returns the element that gets the focus when a dialog closes: the focused one, or the button of its menu.
function opener(): HTMLElement | null {
  const on = document.activeElement as HTMLElement | null;
  return document.getElementById(on?.closest("[role=menu]")?.getAttribute("aria-labelledby") ?? "") ?? on;
}

// Dialog runs act when it is submitted. If act fails, the dialog stays open and shows the error.
export function Dialog(props: {
  title: string;
  close: () => void;
  act?: () => Promise<unknown>;
  verb?: string;
  children: ReactNode;
  wide?: boolean;
}) {
  const [busy, setBusy] = useState(false);
  const [failure, setFailure] = useState("");
  const [before] = useState(opener);
  const back = (event: Event) => {
    event.preventDefault();
    (before?.isConnected ? before : document.getElementById("main"))?.focus();
  };
  const submit = async (event: FormEvent) => {
    event.preventDefault();
    if (!props.act) return props.close();
    setBusy(true);
    try {
      await props.act();
      props.close();
    } catch (error) {
      setFailure(error instanceof ApiError ? error.detail : String(error));
    } finally {
      setBusy(false);
    }
  };
  return (
    <Radix.Root open onOpenChange={(open) => !open && props.close()}>
      <Radix.Portal>
        <Radix.Overlay className="overlay" />
        <Radix.Content
          className={props.wide ? "dialog wide" : "dialog"}
          aria-describedby={undefined}
          onCloseAutoFocus={back}
        >
          <form onSubmit={(event) => void submit(event)}>
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
