// Browser storage. If the browser denies it, values are kept in memory while the page is open.

type Kind = "localStorage" | "sessionStorage";

const memory = new Map<string, string>();

// load returns the value of a key, or null.
export function load(kind: Kind, key: string): string | null {
  try {
    return globalThis[kind].getItem(key);
  } catch {
    return memory.get(kind + key) ?? null;
  }
}

// store sets the value of a key; null deletes it.
export function store(kind: Kind, key: string, value: string | null) {
  try {
    if (value === null) globalThis[kind].removeItem(key);
    else globalThis[kind].setItem(key, value);
  } catch {
    if (value === null) memory.delete(kind + key);
    else memory.set(kind + key, value);
  }
}
