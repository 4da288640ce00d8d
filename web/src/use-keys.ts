import { useEffect, useEffectEvent } from "react";

// useKeys runs the action of a key pressed outside text fields, dialogs and menus.
export function useKeys(actions: Record<string, () => void>) {
  const onKey = useEffectEvent((event: KeyboardEvent) => {
    const on = event.target as HTMLElement;
    const typing = on.closest("input, textarea, select, [role=dialog], [role=menu]");
    if (event.ctrlKey || event.metaKey || event.altKey || typing) return;
    const act = actions[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });
  useEffect(() => {
    const listener = (event: KeyboardEvent) => onKey(event);
    document.addEventListener("keydown", listener);
    return () => document.removeEventListener("keydown", listener);
  }, []);
}

// moveFocus focuses the next or the previous matching element; the first or the last if none is focused.
export function moveFocus(selector: string, by: 1 | -1) {
  const all = [...document.querySelectorAll<HTMLElement>(selector)];
  const at = all.indexOf(document.activeElement as HTMLElement);
  const start = by > 0 ? 0 : all.length - 1;
  const next = all[at < 0 ? start : Math.max(0, Math.min(all.length - 1, at + by))];
  next?.focus();
  next?.closest("tr")?.scrollIntoView({ block: "nearest" });
}
