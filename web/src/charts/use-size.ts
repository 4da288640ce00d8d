import { type RefObject, useEffect, useRef, useState } from "react";

export type Size = { width: number; height: number };

// useSize returns a ref for an element and its size in whole px; first, until it is measured.
export function useSize<E extends Element>(first: Size): [RefObject<E | null>, Size] {
  const element = useRef<E>(null);
  const [size, setSize] = useState(first);
  useEffect(() => {
    const watch = new ResizeObserver((entries) =>
      entries.forEach(({ contentRect: { width, height } }) =>
        setSize({ width: Math.round(width), height: Math.round(height) }),
      ),
    );
    watch.observe(element.current!);
    return () => watch.disconnect();
  }, []);
  return [element, size];
}
