// Toasts: short messages about actions without other visible effect.
import { useEffect, useState } from "react";

const toasts = new EventTarget();

const visibleFor = 5000; // ms

// showToast shows a message for some seconds, in place of the previous one.
export const showToast = (text: string) => void toasts.dispatchEvent(new CustomEvent("toast", { detail: text }));

// Toast renders the message.
export function Toast() {
  const [text, setText] = useState("");
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout>;
    const show = (event: Event) => {
      setText((event as CustomEvent<string>).detail);
      clearTimeout(timer);
      timer = setTimeout(() => setText(""), visibleFor);
    };
    toasts.addEventListener("toast", show);
    return () => {
      toasts.removeEventListener("toast", show);
      clearTimeout(timer);
    };
  }, []);
  return (
    <div className="toast" role="status">
      {text && <p>{text}</p>}
    </div>
  );
}

// copyText copies a text to the clipboard and confirms it. Browsers offer no clipboard API to pages served over plain
// HTTP.
export async function copyText(text: string) {
  const done = await (navigator.clipboard?.writeText(text) ?? Promise.reject(new Error("no clipboard"))).then(
    () => true,
    () => copyBySelection(text),
  );
  showToast(done ? "Copied." : "The browser does not allow copying here. Save the file instead.");
}

function copyBySelection(text: string): boolean {
  const before = document.activeElement as HTMLElement | null;
  const area = document.createElement("textarea");
  area.value = text;
  area.style.cssText = "position: fixed; top: 0; opacity: 0";
  document.body.append(area);
  area.select();
  try {
    return document.execCommand("copy");
  } finally {
    area.remove();
    before?.focus();
  }
}
