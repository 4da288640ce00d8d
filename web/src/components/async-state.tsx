// States of data that is read from the API: loading, empty, failed, stale.
import { type ReactNode, useEffect, useState } from "react";
import type { ApiError } from "../api/client.ts";
import type { Resource } from "../api/queries.ts";

// Loading shows a message after a delay, so that fast answers cause no flicker.
export function Loading({ what }: { what: string }) {
  const [late, setLate] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => setLate(true), 300);
    return () => clearTimeout(timer);
  }, []);
  return (
    <div className="state" aria-busy="true" role="status">
      {late && `Loading ${what} …`}
    </div>
  );
}

// Empty is a message in place of missing content, on a page of its own or within one.
export function Empty({ title, children, page }: { title: string; children?: ReactNode; page?: boolean }) {
  return (
    <div className="state">
      {page ? <h1>{title}</h1> : <strong>{title}</strong>}
      {children && <p>{children}</p>}
    </div>
  );
}

export function Failed({ failure, reload }: { failure: ApiError; reload?: () => void }) {
  return (
    <div className="state bad" role="alert">
      <strong>{failure.title}</strong>
      <p>{failure.detail}</p>
      {reload && (
        <button type="button" onClick={reload}>
          Try again
        </button>
      )}
    </div>
  );
}

// Stale warns that refreshing failed.
function Stale({ failure, reload }: { failure: ApiError; reload: () => void }) {
  return (
    <p className="notice" role="status">
      <strong>Stale.</strong> Refreshing failed: {failure.status === 0 ? `${failure.title}.` : failure.detail}{" "}
      <button type="button" onClick={reload}>
        Try again
      </button>
    </p>
  );
}

// Async renders a resource, or its loading, failed or stale state.
export function Async<T>({ of, what, children }: { of: Resource<T>; what: string; children: (value: T) => ReactNode }) {
  if (of.value === undefined)
    return of.failure ? <Failed failure={of.failure} reload={of.reload} /> : <Loading what={what} />;
  return (
    <>
      {of.failure && <Stale failure={of.failure} reload={of.reload} />}
      {children(of.value)}
    </>
  );
}
