// Preferences stored in the browser: theme and time zone.
import {
  createContext,
  useCallback,
  useContext,
  useEffect,
  useLayoutEffect,
  useState,
  useSyncExternalStore,
} from "react";
import { corrected, serverNow } from "./api/clock.ts";
import type { Zone } from "./logic/format.ts";
import { store, load } from "./storage.ts";

export type Theme = "system" | "light" | "dark";

const changes = new EventTarget();

function storedSetting<T extends string>(key: string, values: readonly T[]) {
  const read = (): T => values.find((v) => v === load("localStorage", `sibyl.${key}`)) ?? values[0]!;
  const write = (value: T) => {
    store("localStorage", `sibyl.${key}`, value);
    changes.dispatchEvent(new Event("change"));
  };
  const subscribe = (changed: () => void) => {
    changes.addEventListener("change", changed);
    addEventListener("storage", changed); // written by another tab
    return () => {
      changes.removeEventListener("change", changed);
      removeEventListener("storage", changed);
    };
  };
  return () => [useSyncExternalStore(subscribe, read), write] as const;
}

export const useTheme = storedSetting<Theme>("theme", ["system", "light", "dark"]);
export const useZone = storedSetting<Zone>("zone", ["local", "utc"]);

// useMedia reports whether a media query matches.
export function useMedia(query: string): boolean {
  const subscribe = useCallback(
    (changed: () => void) => {
      const list = matchMedia(query);
      list.addEventListener("change", changed);
      return () => list.removeEventListener("change", changed);
    },
    [query],
  );
  return useSyncExternalStore(subscribe, () => matchMedia(query).matches);
}

// useApplyTheme applies the preferred theme to the page and returns the one in effect.
export function useApplyTheme(): "light" | "dark" {
  const [theme] = useTheme();
  const system = useMedia("(prefers-color-scheme: dark)") ? "dark" : "light";
  const inEffect = theme === "system" ? system : theme;
  // A layout effect, since charts read the colours of the page in their effects, which run before this component's.
  useLayoutEffect(() => {
    document.documentElement.dataset.theme = inEffect;
  }, [inEffect]);
  return inEffect;
}

// ThemeContext is the theme in effect, for canvases.
export const ThemeContext = createContext<"light" | "dark">("light");

// NowContext is the service's time in ms, updated every few seconds.
export const NowContext = createContext(serverNow());

export function useClock(every: number): number {
  const [now, setNow] = useState(serverNow);
  useEffect(() => {
    const tick = () => setNow(serverNow());
    const timer = setInterval(tick, every);
    corrected.addEventListener("corrected", tick);
    return () => {
      clearInterval(timer);
      corrected.removeEventListener("corrected", tick);
    };
  }, [every]);
  return now;
}

export const useNow = () => useContext(NowContext);
