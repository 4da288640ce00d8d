import { useEffect, useRef } from "react";

// useKeys does what is said for keys that are pressed while nobody types or picks.
export function useKeys(does: Record<string, () => void>) {
  const latest = useRef(does);
  latest.current = does;
  useEffect(() => {
    const pressed = (event: KeyboardEvent) => {
      const on = event.target as HTMLElement;
      if (
        event.ctrlKey ||
        event.metaKey ||
        event.altKey ||
        on.closest("input, textarea, select, [role=dialog], [role=menu]")
      )
        return;
      const act = latest.current[event.key];
      if (!act) return;
      event.preventDefault();
      act();
    };
    document.addEventListener("keydown", pressed);
    return () => document.removeEventListener("keydown", pressed);
  }, []);
}

// moveFocus focuses the next, or previous, of the elements that match.
export function moveFocus(selector: string, by: 1 | -1) {
  const all = [...document.querySelectorAll<HTMLElement>(selector)];
  const at = all.indexOf(document.activeElement as HTMLElement);
  const next = all[at < 0 ? (by > 0 ? 0 : all.length - 1) : Math.max(0, Math.min(all.length - 1, at + by))];
  next?.focus();
  next?.closest("tr")?.scrollIntoView({ block: "nearest" });
}
