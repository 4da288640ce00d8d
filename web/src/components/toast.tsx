// What was done, or could not be, said for a moment: what has no place of its own on the page.
import { useEffect, useState } from "react";

const toasts = new EventTarget();

const visibleFor = 5000; // ms

// say shows a text for a moment, in place of the one before.
export const showToast = (text: string) => void toasts.dispatchEvent(new CustomEvent("toast", { detail: text }));

// Said is where it is shown.
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

// copy puts a text on the clipboard, and says so. What the page came by is often HTTP, where browsers have no clipboard for scripts.
export async function copyText(text: string) {
  const done = await (navigator.clipboard?.writeText(text) ?? Promise.reject()).then(
    () => true,
    () => copyBySelection(text),
  );
  showToast(done ? "Copied." : "The browser does not let this page copy: save it instead.");
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
